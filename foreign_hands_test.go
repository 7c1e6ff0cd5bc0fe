package transfer_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// wrap makes a list of an account's markers, behind the library's back, and unwrap makes
// it the map again that it was.
func (b *bank) wrap(account string) { b.t.Helper(); b.rewrite(account, bson.A{"$pending"}) }
func (b *bank) unwrap(account string) {
	b.t.Helper()
	b.rewrite(account, bson.D{{Key: "$first", Value: "$pending"}})
}

func (b *bank) rewrite(account string, pending any) {
	b.t.Helper()
	pipeline := bson.A{bson.D{{Key: "$set", Value: bson.D{{Key: "pending", Value: pending}}}}}
	result, err := b.db.Collection("accounts").UpdateOne(b.t.Context(), bson.D{{Key: "_id", Value: account}}, pipeline)
	require.NoError(b.t, err)
	require.EqualValues(b.t, 1, result.ModifiedCount)
}

// An account whose markers somebody has made a list of is paid once or not at all,
// however many answers are lost: a filter looks into a list and finds the marker there,
// and no update takes it out. The transfer is stuck, says why, and goes on once the list
// is a map again.
func TestMarkersInAList(t *testing.T) {
	t.Parallel()
	for _, account := range []string{"a", "b"} {
		for _, decision := range []string{"post", "post a part", "void"} {
			for point := range 8 {
				t.Run(fmt.Sprintf("%s/%s/answer %d is lost", account, decision, point), func(t *testing.T) {
					t.Parallel()
					decideOnAList(t, account, decision, point)
				})
			}
		}
	}
}

func decideOnAList(t *testing.T, account, decision string, point int) {
	t.Helper()
	b := newBareBank(t)
	b.open([]int64{100, 0})
	b.hold("h", 60, time.Hour)
	b.wrap(account)
	w := &wire{at: point, what: answerLost, also: map[int]fault{point + 2: answerLost, point + 3: answerLost}}
	c := b.coordinator(b.through(w.client()))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
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
	b.unwrap(account)
	b.recoverAll()
	require.Equal(t, want, b.balances())
}
