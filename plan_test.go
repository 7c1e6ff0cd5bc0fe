package transfer

import (
	"context"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// newPlanner returns a coordinator with the ledgers "" and "eu" that has no server.
func newPlanner(tb testing.TB, ids IDCodec) *Coordinator {
	tb.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost:1"))
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	db := client.Database("bank")
	c, err := NewCoordinator(db, WithAccountIDs(ids), WithLedger("eu", db.Collection("accounts_eu")))
	require.NoError(tb, err)
	return c
}

// TestDigestsAreForEver promises that the digest of a payload is the same in each version of the library, byte for byte: those of
// years ago are stored, and one that differs makes a repeated request a conflict, and a stalled transfer one that nobody touches.
func TestDigestsAreForEver(t *testing.T) {
	decimal := func(text string) Amount {
		amount, err := ParseDecimal(text)
		require.NoError(t, err)
		return amount
	}
	strings, objects := newPlanner(t, StringIDs), newPlanner(t, ObjectIDs)
	for name, row := range map[string]struct {
		c      *Coordinator
		req    Request
		digest string
	}{
		"units": {strings, Request{From: "alice", To: "bob", Amount: Units(6000)},
			"01fc17ac9fc20e1d9fd2eba1dff11a14b8f725841d97a6be9849d1ca979a9700dd"},
		"a currency": {strings, Request{From: "bob", To: "Zoë", Amount: Units(1 << 48), Currency: "EUR"},
			"01a1b8d318e7d5f2009c98cc084bc8fa45962a8d8886d84a1f0fdb689ccc4ba0aa"},
		"decimals": {strings, Request{From: "alice", To: "bob", Amount: decimal("12.50")},
			"01687c954f8b3db3961631f6fff11165ca572f7d8bdf120511730b19f749edf75d"},
		"whole decimals": {strings, Request{From: "alice", To: "bob", Amount: decimal("1000.00"), Currency: "€"},
			"017310a16149c4bb4f50aeb280e2659f500727a05df98f9aeb1e7a0caea9423308"},
		"many legs, which are netted": {strings, Request{Legs: []Leg{
			{"eu", "carol", decimal("0.000000000001")}, {"", "bob", decimal("-7.5")}, {"", "alice", decimal("10")},
			{"eu", "bob", decimal("2.499999999999")}, {"", "alice", decimal("-5.00")}, {"eu", "alice", decimal("1")},
			{"eu", "alice", decimal("-1.0")}}},
			"01a447273dd7e0b6290366ff0915e32ef8bb951c05d0a689cab16fe265764094c9"},
		"long IDs": {strings, Request{From: long("a"), To: long("b"), Amount: Units(1)},
			"01534c2e999736db3baca2593e45bf5072720715dc97e5eaa371382084c2372857"},
		"ObjectIds": {objects, Request{From: "0123456789ABCDEFabcdef00", To: "0123456789abcdefABCDEF01", Amount: Units(7)},
			"0113adaf000f713b1d440f099a29575dccba1bbda4ffd323ef1377e2792acf52a3"},
	} {
		row.req.ID = "order-17"
		planned, err := row.c.plan(row.req)
		require.NoError(t, err, name)
		require.Equal(t, row.digest, hex.EncodeToString(planned.Digest), name)
	}
}

func long(id string) string { return strings.Repeat(id, 255) }
