package mongostore_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// Transfers with any ID move their money exactly and leave no marker, even if their
// markers are on one account.
func TestAwkwardIDsOnTheServer(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", bson.M{"balance": int64(1_000_000)}), storetest.Account("bob", bson.M{"pending": nil}))
	var attempts []*mongostore.Attempt
	balance := int64(1_000_000)
	for id := range storetest.AwkwardIDs() {
		a := b.Prepared(b.Claimed(id, b.Leg("alice", -60), b.Leg("bob", 60)))
		facts := b.On(a, storetest.At(protocol.Look, 0)).Facts
		assert.Equal(t, protocol.Reserved, facts.Trace, "%q", id)
		assert.Equal(t, protocol.NotMatched, b.On(a, b.Ready(a)[0]).Result, "%q is prepared twice", id)
		attempts = append(attempts, a)
		balance -= 60
	}
	pending := b.Raw("accounts", "alice").Lookup("pending").Document()
	elements, err := pending.Elements()
	require.NoError(t, err)
	require.Len(t, elements, len(attempts))
	for i, a := range attempts {
		kind := protocol.Settle
		if i%3 == 0 {
			kind, balance = protocol.Undo, balance+60
		}
		b.Applied(a, storetest.Replacing(storetest.At(kind, 0)), storetest.Replacing(storetest.At(kind, 1)))
		assert.Equal(t, protocol.NoTrace, b.On(a, storetest.At(protocol.Look, 0)).Facts.Trace)
		if kind == protocol.Undo {
			b.Applied(a, storetest.At(protocol.FenceOnly, 0))
		}
	}
	b.checkCleared(storetest.Account("alice", bson.M{"balance": balance}), true)
	b.checkCleared(storetest.Account("bob", bson.M{"balance": 100 + 1_000_000 - balance}), true)
}

// ObjectIDs are hex digits in lower case in the API, and ObjectIds in the database.
func TestObjectIDs(t *testing.T) {
	t.Parallel()
	b := newBank(t, func(c *storetest.Config) { c.IDs = document.ObjectIDs })
	oid := bson.NewObjectID()
	upper := strings.ToUpper(oid.Hex())
	b.Put(storetest.Account(oid, nil), storetest.Account(oid.Hex(), nil))
	assert.Equal(t, oid.Hex(), document.ObjectIDs.Canonical(upper))
	assert.Equal(t, "AbC", document.StringIDs.Canonical("AbC"))
	for i, text := range []string{upper, oid.Hex()} {
		a := b.Prepared(b.Attempt(text[:1+i], b.Leg(text, -60+int64(i)*20)))
		b.Applied(a, storetest.At(protocol.Settle, 0))
	}
	b.Has("accounts", storetest.Account(oid, bson.M{"balance": int64(0)}))
	b.Has("accounts", storetest.Account(oid.Hex(), nil))
	got, found, err := b.Store.Get(t.Context(), "", upper)
	require.NoError(t, err)
	assert.True(t, found)
	assert.Equal(t, oid.Hex(), got.ID)

	for _, id := range []string{"", "alice", oid.Hex()[1:], oid.Hex() + "00", "0x" + oid.Hex()[2:], strings.Repeat("g", 24)} {
		_, err := document.ObjectIDs.Encode(id)
		require.Error(t, err, "%q", id)
		_, err = b.Store.NewAttempt(document.Transfer{ID: "order", Legs: []document.Leg{b.Leg(id, 1)}}, "me")
		require.Error(t, err, "%q", id)
	}
}
