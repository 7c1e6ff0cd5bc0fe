package mongostore_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// Nothing is paid in where the sum can't be stored exactly, and the marker stays. Where
// the marker is gone the money was paid, and nothing is refused.
func TestNoRoomForWhatIsPaidIn(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		balance, owed money.Amount
		kind          protocol.Kind
	}{
		"settled decimals": {money.MaxExact(money.Decimal), dec("0.000000000001"), protocol.Settle},
		"paid decimals":    {dec("9999999999999999999999.9"), dec("0.2"), protocol.Pay},
		"undone decimals":  {dec("9999999999999999999999.9"), dec("-0.2"), protocol.Undo},
		"paid units":       {money.MaxExact(money.Whole), money.Units(1), protocol.Pay},
		"undone units":     {money.MaxExact(money.Whole), money.Units(-1), protocol.Undo},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t)
			const id = "$owed.0 to\x00whom?"
			markers := bson.M{document.MarkerKey(id): row.owed.Value()}
			full := storetest.Account("full", bson.M{"balance": row.balance.Value(), "pending": markers})
			b.Put(full)
			owed := b.Attempt(id, b.LegIn("", "full", row.owed))
			assert.Equal(t, protocol.Failed, b.On(owed, storetest.At(row.kind, 0)).Result)
			require.Error(t, owed.Cause)
			if row.balance.Kind() == money.Decimal {
				require.ErrorContains(t, owed.Cause, "the balance would have more digits than can be stored")
			}
			b.Has("accounts", full)

			gone := b.Attempt("gone", b.LegIn("", "full", row.owed))
			assert.Equal(t, protocol.NotMatched, b.On(gone, storetest.At(row.kind, 0)).Result)
			b.Has("accounts", full)
		})
	}
}

// Of two credits that are paid in at once, and don't find room together, one does.
func TestRoomForOneOfTwo(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	half := dec("0.6")
	b.Put(storetest.Account("full", bson.M{
		"balance": dec("9999999999999999999999.0").Value(), "pending": bson.M{"one": half.Value(), "two": half.Value()},
	}))
	var rs requests
	for _, id := range []string{"one", "two"} {
		rs.add(b.Attempt(id, b.LegIn("", "full", half)), storetest.At(protocol.Settle, 0))
	}
	assert.Equal(t, []protocol.Result{protocol.Applied, protocol.Failed}, b.batch(rs))
	b.Has("accounts", storetest.Account("full", bson.M{
		"balance": dec("9999999999999999999999.6").Value(), "pending": bson.M{"two": half.Value()},
	}))
}

// A credit without room is refused by the server only if all that is paid in beside it is
// still owed, whichever of them comes first.
func TestNoRoomBesideWhatIsPaidAlready(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][]string{"it comes first": {"there", "paid"}, "it comes last": {"paid", "there"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t)
			half := dec("0.6")
			marked := func(id string) bson.M { return bson.M{id: half.Value()} }
			full := storetest.Account("full", bson.M{"balance": money.MaxExact(money.Decimal).Value(), "pending": marked("there")})
			b.Put(full)
			b.Put(storetest.Account("other", bson.M{"balance": half.Value(), "pending": marked("else")}))
			var rs requests
			for _, id := range order {
				rs.add(b.Attempt(id, b.LegIn("", "full", half)), storetest.At(protocol.Pay, 0))
			}
			rs.add(b.Attempt("else", b.LegIn("", "other", half)), storetest.At(protocol.Settle, 0))
			results := map[string]protocol.Result{}
			for i, result := range b.batch(rs) {
				results[append(order, "else")[i]] = result
			}
			assert.Equal(t, map[string]protocol.Result{
				"there": protocol.Failed, "paid": protocol.Applied, "else": protocol.Applied,
			}, results)
			b.Has("accounts", full)
		})
	}
}

// Where the balance is no number, the server refuses to pay in for that reason.
func TestNothingIsPaidInWhereTheBalanceIsNoNumber(t *testing.T) {
	t.Parallel()
	for name, balance := range map[string]any{
		"text": "12", "date": bson.DateTime(12), "flag": true, "document": bson.M{}, "list": bson.A{dec("12").Value()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t)
			odd := storetest.Account("odd", bson.M{"balance": balance, "pending": bson.M{"owed": dec("1.5").Value()}})
			b.Put(odd)
			owed := b.Attempt("owed", b.LegIn("", "odd", dec("1.5")))
			assert.Equal(t, protocol.Failed, b.On(owed, storetest.At(protocol.Pay, 0)).Result)
			require.ErrorContains(t, owed.Cause, "TypeMismatch")
			require.NotContains(t, owed.Cause.Error(), "digits")
			b.Has("accounts", odd)
		})
	}
}
