package bank

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
)

// Move asks for a transfer of units.
func Move(id, from, to string, units int64) transfer.Request {
	return transfer.Request{ID: id, From: from, To: to, Amount: transfer.Units(units)}
}

// AtMost asks for a transfer of units, or of what is there if that is less.
func AtMost(id, from, to string, units int64) transfer.Request {
	req := Move(id, from, to, units)
	req.AtMost = true
	return req
}

// Later returns a request that no worker runs yet.
func Later(id string, units int64) transfer.Request {
	req := Move(id, "a", "b", units)
	req.NotBefore = time.Now().Add(time.Hour)
	return req
}

// Decimal parses a decimal amount.
func Decimal(t *testing.T, text string) transfer.Amount {
	t.Helper()
	a, err := transfer.ParseDecimal(text)
	require.NoError(t, err)
	return a
}

// Numbered returns n IDs.
func Numbered(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint(prefix, i)
	}
	return ids
}

// OddIDs are IDs that would mean something else to the server if they were keys, or could
// be taken for one another.
func OddIDs() []string {
	return []string{
		"a.b", ".", "..", "a.", "%2E", "a$b", "$", "$set", "$inc.b", "%24set", "100%", "%", "%%", "%25", "\x00", "nul\x00nul", "%00",
		"0", "17", "%30", "0000000000000000000000000000000000000000", " ", " two  spaces ", "\t\n", "\"'\\{}[]", "_id", "balance",
		"Müller 日本 🙂", "Mu\u0308ller", "\ufeff", strings.Repeat("x", 255), strings.Repeat("ü", 127) + "y", strings.Repeat(".", 255),
		strings.Repeat("\x00", 255), strings.Repeat("7", 255),
	}
}

// ToZ moves a unit from account a to account z of the ledger other.
func ToZ(id string) transfer.Request {
	return transfer.Request{ID: id, Legs: []transfer.Leg{
		{Account: "a", Amount: transfer.Units(-1)}, {Ledger: "other", Account: "z", Amount: transfer.Units(1)},
	}}
}
