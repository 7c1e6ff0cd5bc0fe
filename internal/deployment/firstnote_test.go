package deployment_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// A hold that is held has its markers. One of them in another field shows that the field
// had another name, even where other markers are in the configured field. A transfer that
// is not held need not have markers: there a map of the user's may look like one.
func TestMarkerInAnotherFieldOfAHold(t *testing.T) {
	t.Parallel()
	for name, held := range map[string]bool{"held": true, "not held": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := storetest.New(t)
			for _, id := range []string{"alice", "bob", "carol", "dave"} {
				b.Put(storetest.Account(id, nil))
			}
			b.Prepared(b.Claimed("confirms the name", b.Leg("alice", -1), b.Leg("carol", 1)))
			a := b.Attempt("order", b.Leg("bob", -1), b.Leg("dave", 1))
			if held {
				a.Transfer.Hold, a.HoldFor = true, time.Hour
			}
			b.Applied(a, storetest.Claim(protocol.Insert))
			b.Prepared(a)
			if held {
				mark := storetest.About(protocol.MarkHeld)
				mark.Epoch, mark.Clean = 1, true
				b.Applied(a, mark)
			}
			b.Change("accounts", "bob", bson.M{"$rename": bson.M{"pending": "reserved"}})
			err := b.Store.Connect(t.Context(), document.Address{})
			if !held {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, collections.ErrUnsupported)
			require.ErrorContains(t, err, `in the field "reserved", and WithFields says "pending"`)
		})
	}
}

// paid stores a transfer of which nothing is left but the done mark of the last account.
func paid(b *storetest.Bank, id string, legs ...document.Leg) *mongostore.Attempt {
	b.T.Helper()
	a, last := b.Prepared(b.Claimed(id, legs...)), len(legs)-1
	b.Applied(a, storetest.At(protocol.Pay, last))
	b.Applied(a, storetest.Decide(protocol.Committed, 1))
	for i := range last {
		b.Applied(a, storetest.At(protocol.Settle, i))
	}
	return a
}

// A done mark in the configured field shows that the name is right. What looks like a
// marker in another field is a map of the user's then.
func TestDoneMarkConfirmsTheName(t *testing.T) {
	t.Parallel()
	for name, cleared := range map[string]bool{"with the done mark": false, "without": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := storetest.New(t)
			b.Put(storetest.Account("alice", nil), storetest.Account("bob", nil),
				storetest.Account("carol", bson.M{"notes": bson.M{"order": int64(-1)}}))
			a := paid(b, "confirms the name", b.Leg("alice", -1), b.Leg("bob", 1))
			b.Claimed("order", b.Leg("carol", -1), b.Leg("alice", 1))
			if cleared {
				b.Applied(a, storetest.At(protocol.Clear, 1))
			}
			err := b.Store.Connect(t.Context(), document.Address{})
			if !cleared {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, collections.ErrUnsupported)
			require.ErrorContains(t, err, `in the field "notes", and WithFields says "pending"`)
		})
	}
}

// A done mark in another field shows that the field had another name.
func TestDoneMarkInAnotherField(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	b.Put(storetest.Account("alice", nil), storetest.Account("bob", nil))
	paid(b, "order", b.Leg("alice", -1), b.Leg("bob", 1))
	b.Change("accounts", "bob", bson.M{"$rename": bson.M{"pending": "reserved"}})
	err := b.Store.Connect(t.Context(), document.Address{})
	require.ErrorIs(t, err, collections.ErrUnsupported)
	require.ErrorContains(t, err, `in the field "reserved", and WithFields says "pending"`)
}
