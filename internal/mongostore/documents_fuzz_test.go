package mongostore_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// choices is a source for a lottery whose draws are the bytes of a fuzzing engine.
// One changed byte changes one draw. When the bytes are used up, a fixed seed draws the
// rest.
type choices struct {
	bytes []byte
	rest  *rand.PCG
}

func (c *choices) Uint64() uint64 {
	if len(c.bytes) == 0 {
		return c.rest.Uint64()
	}
	next := uint64(c.bytes[0])
	c.bytes = c.bytes[1:]
	return next * 0x0101010101010101
}

func lotteryOf(data []byte) lottery { return lottery{rand.New(&choices{data, rand.NewPCG(1, 1)})} }

// newOffline returns a store without a server.
func newOffline(f testing.TB) *storetest.Rooms {
	f.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost:1"))
	require.NoError(f, err)
	f.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	db := client.Database("bank")
	s, err := storetest.NewRooms(storetest.Config{
		Transfers:   db.Collection("transfers"),
		Ledgers:     map[string]*mongo.Collection{"": db.Collection("accounts"), "eu": db.Collection("accounts_eu")},
		Fields:      storetest.StandardFields(),
		MarkerLimit: 100,
		Now:         time.Now,
	})
	require.NoError(f, err)
	return s
}

// whole returns a transfer with every field set.
func whole(s *storetest.Rooms) document.Transfer {
	return document.Transfer{
		ID: "order", State: protocol.Rollback, Open: true, Currency: "EUR",
		Digest: document.Digest{Format: document.Format, Sum: []byte{1, 42}}, Epoch: 3, Owner: "me",
		Attempts: 2, Clean: true,
		Legs: []document.Leg{
			{Namespace: s.Namespace(""), Account: "alice", Amount: dec("-60.50")},
			{Ledger: "eu", Namespace: s.Namespace("eu"), Account: "bob", Amount: dec("60.50"), Currency: "USD"},
		},
		CreatedAt: time.UnixMilli(1).UTC(), LastModified: time.UnixMilli(2).UTC(), CommittedAt: time.UnixMilli(3).UTC(),
		NotBefore: time.UnixMilli(4).UTC(), FundsUntil: time.UnixMilli(5).UTC(), Metadata: encode(bson.M{"a": 1}),
		Failure: &document.Failure{Code: "cancelled", Ledger: "eu", Account: "bob", Message: "because", Detail: "more", Others: 2},
	}
}

// Whatever bytes are stored as a transfer, reading them returns an error or exactly the
// stored payload.
// Written again it is the same, and its legs are those that the document names.
func FuzzTransferDocument(f *testing.F) {
	s := newOffline(f)
	valid := encode(whole(s))
	f.Add([]byte(valid), -1, []byte{})
	f.Add([]byte{}, -1, []byte{})
	f.Add([]byte{5, 0, 0, 0, 0}, -1, []byte{})
	elements, err := valid.Elements()
	require.NoError(f, err)
	for field := range elements {
		for seed := range byte(24) {
			f.Add([]byte(valid), field, []byte{255, seed * 10, 255, seed * 11})
		}
	}
	f.Fuzz(func(t *testing.T, doc []byte, field int, replaced []byte) {
		doc = replaceField(doc, field, lotteryOf(replaced).anything(2))
		read, err := document.DecodeTransfer(doc)
		if err != nil {
			require.ErrorIs(t, err, document.ErrUnreadable)
			return
		}
		requirePayload(t, doc, read)
		written, err := bson.Marshal(read)
		if err != nil {
			return // bytes in the metadata that no server stores, and that are not checked
		}
		again, err := document.DecodeTransfer(written)
		require.NoError(t, err)
		require.Equal(t, bson.Raw(written), encode(again))
		if a, err := s.NewAttempt(read, "me"); err == nil {
			require.Equal(t, len(read.Legs), a.Participants())
			for i := range a.Participants() {
				require.Equal(t, read.Legs[i], *a.Participant(i).Leg())
			}
			a.Image(read)
			a.Evidence(a.Participants())
		}
	})
}

// replaceField returns a document with another value for its n-th field, or unchanged if
// it has no such field.
func replaceField(document bson.Raw, n int, value any) bson.Raw {
	elements, err := document.Elements()
	if err != nil || n < 0 || n >= len(elements) {
		return document
	}
	changed := make(bson.D, len(elements))
	for i, e := range elements {
		changed[i] = bson.E{Key: e.Key(), Value: e.Value()}
	}
	changed[n].Value = value
	return encode(changed)
}

// field returns the value that the driver reads into a field: the last one of that name,
// in upper or lower case.
func field(t *testing.T, document bson.Raw, name string) bson.RawValue {
	t.Helper()
	elements, err := document.Elements()
	require.NoError(t, err)
	var value bson.RawValue
	for _, e := range elements {
		if strings.ToLower(e.Key()) == name {
			value = e.Value()
		}
	}
	return value
}

// requirePayload requires that a transfer moves what its document says.
func requirePayload(t *testing.T, doc bson.Raw, read document.Transfer) {
	t.Helper()
	text := func(of bson.Raw, name, got string) {
		stored := field(t, of, name)
		if want, ok := stored.StringValueOK(); ok {
			require.Equal(t, want, got)
		} else if document.Absent(stored) {
			require.Empty(t, got, name)
		}
	}
	text(doc, "_id", read.ID)
	text(doc, "state", string(read.State))
	text(doc, "currency", read.Currency)
	text(doc, "owner", read.Owner)
	legs, ok := field(t, doc, "legs").ArrayOK()
	if !ok {
		require.Empty(t, read.Legs)
		return
	}
	values, err := legs.Values()
	require.NoError(t, err)
	require.Len(t, read.Legs, len(values))
	for i, value := range values {
		leg, ok := value.DocumentOK()
		if !ok {
			require.Zero(t, read.Legs[i], "%s", value)
			continue
		}
		text(leg, "ledger", read.Legs[i].Ledger)
		text(leg, "ns", read.Legs[i].Namespace)
		text(leg, "account", read.Legs[i].Account)
		text(leg, "currency", read.Legs[i].Currency)
		stored := field(t, leg, "amount")
		amount, err := money.FromBSON(stored)
		require.True(t, err == nil || stored.Type == 0, "%s was read as %s", stored, read.Legs[i].Amount)
		require.Equal(t, amount, read.Legs[i].Amount)
	}
}

// Whatever bytes are stored as an account, checking it doesn't panic, and all its readers
// agree.
// It has money only if the balance is an exact number within the bounds.
func FuzzAccountDocument(f *testing.F) {
	s := newOffline(f)
	f.Add([]byte{}, []byte{}, false)
	f.Add([]byte{5, 0, 0, 0, 0}, []byte{}, false)
	for seed := range byte(64) {
		f.Add([]byte(encode(storetest.Account("alice", nil))), []byte{seed * 4, seed * 7, seed * 11}, seed%2 == 0)
		f.Add([]byte(encode(storetest.Account("alice", bson.M{"balance": dec("100.5")}))), []byte{seed * 4, seed * 5}, false)
	}
	f.Fuzz(func(t *testing.T, doc, draws []byte, drawn bool) {
		l := lotteryOf(draws)
		a, err := s.NewAttempt(document.Transfer{ID: pick(l, "order", "7", "a.b"), Currency: pick(l, "", "EUR"), Legs: []document.Leg{
			{Namespace: s.Namespace(""), Account: "alice", Amount: l.amount()},
		}}, "me")
		require.NoError(t, err)
		p := a.Participant(0)
		if drawn {
			doc = encode(l.document("alice", document.MarkerKey(a.Transfer.ID), p))
		}
		if doc == nil {
			return
		}
		facts := s.FactsOf(a, p, doc)
		require.True(t, facts.Found)
		s.NewMergedUpdate(&mongostore.Call{Attempt: a, Op: storetest.PrepareWith(0, facts.Fence)})
		requireFacts(t, s, a, doc, facts)
		read, err := s.Fields.View(doc).Account(s.IDs)
		if err != nil {
			return
		}
		require.Equal(t, read.Closed, !facts.Open)
		require.Equal(t, read.Frozen, !facts.Unfrozen)
		require.Equal(t, &read.Balance, a.Evidence(0).Balance)
		require.GreaterOrEqual(t, read.Reserved.Sign(), 0)
		require.GreaterOrEqual(t, read.Incoming.Sign(), 0)
	})
}

// requireFacts requires that facts are true if they let a transfer through.
func requireFacts(t *testing.T, s *storetest.Rooms, a *mongostore.Attempt, document bson.Raw, facts protocol.Facts) {
	t.Helper()
	amount := a.Transfer.Legs[0].Amount
	balance, err := money.FromBSON(document.Lookup(s.Fields.Balance))
	if !facts.Kind || !facts.Funds || !facts.WithinLimits {
		return
	}
	require.NoError(t, err)
	require.Equal(t, amount.Kind(), balance.Kind())
	require.True(t, balance.Within(money.MaxBalance(balance.Kind())))
	after, err := balance.Add(amount)
	require.NoError(t, err)
	require.True(t, after.Within(money.MaxBalance(balance.Kind())), "%s becomes %s", balance, after)
	floor := s.Fields.View(document).Floor()
	if amount.Sign() < 0 && !floor.None {
		require.GreaterOrEqual(t, after.Cmp(floor.Amount), 0, "%s falls below %s", after, floor.Amount)
	}
}
