package mongostore

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// awkwardIDs are IDs with everything that means something to the server, and how their markers are named.
func awkwardIDs() map[string]string {
	return map[string]string{
		"order-17":                "order-17",
		"a.b.c":                   "a%2Eb%2Ec",
		".":                       "%2E",
		"..":                      "%2E%2E",
		"$":                       "%24",
		"$set":                    "%24set",
		"$[]":                     "%24[]",
		"$[x].y":                  "%24[x]%2Ey",
		"a$b":                     "a%24b",
		"%":                       "%25",
		"%2E":                     "%252E",
		"%25":                     "%2525",
		"\x00":                    "%00",
		"a\x00b":                  "a%00b",
		"0":                       "%30",
		"7":                       "%37",
		"17":                      "%317",
		"00":                      "%300",
		"1234567890":              "%31234567890",
		"-1":                      "-1",
		"1a":                      "1a",
		"a1":                      "a1",
		"١٢":                      "١٢", // digits, but not the server's
		" ":                       " ",
		"\n\t\x7f\x01":            "\n\t\x7f\x01",
		"Überweisung 💶":           "Überweisung 💶",
		"e\u0301":                 "e\u0301",
		"\u00e9":                  "\u00e9",
		"_id":                     "_id",
		"__proto__":               "__proto__",
		"\"quoted\" and 'single'": "\"quoted\" and 'single'",
		strings.Repeat("$", 255):  strings.Repeat("%24", 255),
		strings.Repeat("9", 255):  "%39" + strings.Repeat("9", 254),
		strings.Repeat("é", 127):  strings.Repeat("é", 127),
	}
}

// Transfers with any ID move their money exactly and leave no marker, also where their markers lie beside each other.
func TestAwkwardIDsOnTheServer(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.put(account("alice", bson.M{"balance": int64(1_000_000)}), account("bob", bson.M{"pending": nil}))
	var attempts []*Attempt
	balance := int64(1_000_000)
	for id := range awkwardIDs() {
		a := b.prepared(b.claimed(id, b.leg("alice", -60), b.leg("bob", 60)))
		facts := b.on(a, at(protocol.Look, 0)).Facts
		assert.True(t, facts.Marker, "%q", id)
		assert.Equal(t, protocol.NotMatched, b.on(a, b.ready(a)[0]).Result, "%q is prepared twice", id)
		attempts = append(attempts, a)
		balance -= 60
	}
	pending := b.raw("accounts", "alice").Lookup("pending").Document()
	elements, err := pending.Elements()
	require.NoError(t, err)
	require.Len(t, elements, len(attempts))
	for i, a := range attempts {
		kind := protocol.Settle
		if i%3 == 0 {
			kind, balance = protocol.Undo, balance+60
		}
		b.applied(a, replacing(at(kind, 0)), replacing(at(kind, 1)))
		assert.False(t, b.on(a, at(protocol.Look, 0)).Facts.Marker)
		if kind == protocol.Undo {
			b.applied(a, at(protocol.FenceOnly, 0))
		}
	}
	b.checkCleared(account("alice", bson.M{"balance": balance}), true)
	b.checkCleared(account("bob", bson.M{"balance": 100 + 1_000_000 - balance}), true)
}

// ObjectIDs are hex digits outside, in lower case, and ObjectIds inside.
func TestObjectIDs(t *testing.T) {
	t.Parallel()
	b := newBank(t, func(c *config) { c.IDs = document.ObjectIDs })
	oid := bson.NewObjectID()
	upper := strings.ToUpper(oid.Hex())
	b.put(account(oid, nil), account(oid.Hex(), nil))
	assert.Equal(t, oid.Hex(), document.ObjectIDs.Canonical(upper))
	assert.Equal(t, "AbC", document.StringIDs.Canonical("AbC"))
	for i, text := range []string{upper, oid.Hex()} {
		a := b.prepared(b.work(text[:1+i], b.leg(text, -60+int64(i)*20)))
		b.applied(a, at(protocol.Settle, 0))
	}
	b.has("accounts", account(oid, bson.M{"balance": int64(0)}))
	b.has("accounts", account(oid.Hex(), nil))
	got, found, err := b.store.Get(t.Context(), "", upper)
	require.NoError(t, err)
	assert.True(t, found)
	assert.Equal(t, oid.Hex(), got.ID)

	for _, id := range []string{"", "alice", oid.Hex()[1:], oid.Hex() + "00", "0x" + oid.Hex()[2:], strings.Repeat("g", 24)} {
		_, err := document.ObjectIDs.Encode(id)
		require.Error(t, err, "%q", id)
		_, err = b.store.NewAttempt(document.Transfer{ID: "order", Legs: []document.Leg{b.leg(id, 1)}}, "me")
		require.Error(t, err, "%q", id)
	}
}
