package mongostore_test

import (
	"strconv"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// BenchmarkFacts measures the check of an account that a read has shown, by the number of
// its transfers in flight.
func BenchmarkFacts(b *testing.B) {
	for _, inFlight := range []int{0, 60} {
		b.Run(strconv.Itoa(inFlight), func(b *testing.B) {
			s := newOffline(b)
			a, err := s.NewAttempt(document.Transfer{ID: "order", Currency: "EUR", Legs: []document.Leg{
				{Namespace: s.Namespace(""), Account: "alice", Amount: money.Units(-60)},
				{Namespace: s.Namespace("eu"), Ledger: "eu", Account: "bob", Amount: money.Units(60)},
			}}, "me")
			if err != nil {
				b.Fatal(err)
			}
			pending := bson.M{}
			for i := range inFlight {
				pending["order-"+strconv.Itoa(i)] = int64(-1)
			}
			stored := encode(storetest.Account("alice", bson.M{"balance": int64(1000), "currency": "EUR",
				"fence": storetest.Fence0(), "pending": pending}))
			b.ReportAllocs()
			for b.Loop() {
				if facts := s.FactsOf(a, a.Participant(0), stored); facts.Refusal() != 0 {
					b.Fatal(facts)
				}
			}
		})
	}
}
