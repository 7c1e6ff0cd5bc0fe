package faults

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// wrap turns an account's map of markers into a list, behind the library's back, and
// unwrap turns it into the map again.
func wrap(b *bank.Bank, account string) { b.T.Helper(); rewrite(b, account, bson.A{"$pending"}) }

func unwrap(b *bank.Bank, account string) {
	b.T.Helper()
	rewrite(b, account, bson.D{{Key: "$first", Value: "$pending"}})
}

func rewrite(b *bank.Bank, account string, pending any) {
	b.T.Helper()
	pipeline := bson.A{bson.D{{Key: "$set", Value: bson.D{{Key: "pending", Value: pending}}}}}
	result, err := b.DB.Collection("accounts").UpdateOne(b.T.Context(), bson.D{{Key: "_id", Value: account}}, pipeline)
	require.NoError(b.T, err)
	require.EqualValues(b.T, 1, result.ModifiedCount)
}

// An account whose map of markers was turned into a list is paid once or not at all,
// however many answers are lost.
// A filter searches a list and finds the marker there, and no update can remove it.
// The transfer is stuck, says why, and goes on once the list is a map again.
func TestMarkersInAList(t *testing.T) {
	t.Parallel()
	for _, account := range []string{"a", "b"} {
		for _, decision := range []string{"post", "post a part", "void"} {
			t.Run(account+"/"+decision, func(t *testing.T) {
				t.Parallel()
				b := bank.NewBare(t)
				for point := range 8 {
					t.Run(fmt.Sprintf("answer %d is lost", point), func(t *testing.T) {
						decideOnAList(t, b, account, decision, point)
					})
				}
			})
		}
	}
}

// Why a transfer is stuck is stored even if the message with the reason is lost.
func TestLostReasonIsSentAgain(t *testing.T) {
	t.Parallel()
	for _, what := range []bank.Fault{bank.Lost, bank.AnswerLost} {
		t.Run(string(what), func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0)
			b.MustHold("h", 60, time.Hour)
			wrap(b, "b")
			w := &bank.Wire{Is: func(message []byte) bool { return bytes.Contains(message, []byte("stuckAt")) }, What: what}
			c := b.NewCoordinator(b.Through(w.Client()))
			_, err := c.Void(t.Context(), "h")
			require.Error(t, err)
			require.True(t, w.HasStruck())
			rec, err := b.Get(t.Context(), "h")
			require.NoError(t, err)
			require.NotNil(t, rec.Stuck)
			require.Equal(t, "b", rec.Stuck.Account)
			unwrap(b, "b")
			b.RecoverAll()
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}

func decideOnAList(t *testing.T, b *bank.Bank, account, decision string, point int) {
	t.Helper()
	b.Renew(t, 100, 0)
	b.MustHold("h", 60, time.Hour)
	wrap(b, account)
	w := &bank.Wire{At: point, What: bank.AnswerLost, Also: map[int]bank.Fault{point + 2: bank.AnswerLost, point + 3: bank.AnswerLost}}
	c := b.NewCoordinator(b.Through(w.Client()))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var err error
	state, code, want := transfer.StateCommitted, protocol.Unwritable.String(), map[string]int64{"a": 40, "b": 60}
	switch decision {
	case "post":
		_, err = c.Post(ctx, "h")
	case "post a part":
		_, err = c.Post(ctx, "h", transfer.PostAmount(transfer.Units(50)))
		want = map[string]int64{"a": 50, "b": 50}
	default:
		_, err = c.Void(ctx, "h")
		state, want = transfer.StateRollback, map[string]int64{"a": 100, "b": 0}
	}
	require.Error(t, err)
	rec, err := b.Get(t.Context(), "h")
	require.NoError(t, err)
	require.Equal(t, state, rec.State)
	require.NotNil(t, rec.Stuck)
	require.Equal(t, code, rec.Stuck.Code)
	require.Equal(t, account, rec.Stuck.Account)
	require.Contains(t, rec.Stuck.Message, "pending")
	unwrap(b, account)
	b.RecoverAll()
	require.Equal(t, want, b.Balances())
}
