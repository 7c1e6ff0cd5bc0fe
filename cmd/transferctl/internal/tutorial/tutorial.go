// Package tutorial takes over what the two-phase commit of MongoDB's tutorial has left: a
// collection of transactions, and an array of marks in each account.
//
// [Books.Plan] reads what there is and what is to be done, and writes nothing. Where it
// finds a [Problem], nothing may be done. Then these follow, in this order, and each can
// be repeated if it was cut short:
//
//  1. [Books.MakeWhole] makes whole numbers of amounts that were stored as doubles.
//  2. [Books.End] brings one transaction to its end, by a transaction of MongoDB's own:
//     the state and both accounts change at once, or not at all. So a process that is
//     killed leaves nothing half done, and a late message of it changes nothing, because
//     the state is not any more as it was.
//  3. [Books.Ask] asks the library for what had not begun. Before that its state says
//     canceled, and what it was taken over as. So it can't happen both ways.
//  4. [Books.Clear] removes the empty arrays.
//
// Nobody else may work on the transactions meanwhile.
package tutorial

import (
	"fmt"
	"math"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/document"
)

// The names of the tutorial's fields.
const (
	marksField = "pendingTransactions"
	stateField = "state"
	takenOver  = "takenOver"
)

// The tutorial's states. The first edition has committed for applied.
const (
	initial   = "initial"
	pending   = "pending"
	applied   = "applied"
	committed = "committed"
	canceling = "canceling"
	done      = "done"
	canceled  = "canceled"
	cancelled = "cancelled"
)

// Books are the collections of the tutorial.
type Books struct {
	// Accounts and Transactions are the collections.
	Accounts, Transactions *mongo.Collection
	// Transfers are those of the library.
	Transfers *mongo.Collection
	// BalancesOnly says that there are no transactions: only balances are converted.
	BalancesOnly bool
	// Fields are the names of the fields of an account.
	Fields document.Fields
	// Key is the field by which transactions name accounts: "_id", or "name" in the
	// tutorial's first edition.
	Key string
	// ObjectIDs says that account IDs are stored as ObjectIds.
	ObjectIDs bool
	// Prefix is what the IDs of transfers begin with that were transactions.
	Prefix string
}

// transaction is a document of the transactions.
type transaction struct {
	ID, Source, Destination, Value bson.RawValue

	State     string
	TakenOver *taken
}

// taken says as which transfer a transaction goes on, and whether that has an outcome.
type taken struct {
	As      string
	Settled bool
}

// same reports whether a transaction is still as it was when its end was planned. A whole
// number that was a double then is the same.
func (t transaction) same(planned transaction) bool {
	over := t.TakenOver == planned.TakenOver ||
		t.TakenOver != nil && planned.TakenOver != nil && *t.TakenOver == *planned.TakenOver
	return over && t.State == planned.State && key(t.Value) == key(planned.Value) &&
		key(t.Source) == key(planned.Source) && key(t.Destination) == key(planned.Destination)
}

// account is an account's document.
type account struct {
	id       bson.RawValue
	key      bson.RawValue // what transactions name it by
	balance  bson.RawValue
	currency string
	marks    []bson.RawValue
	noArray  bool // the marks are something else than an array
}

// marked returns how many marks of a transaction the account has.
func (a *account) marked(id bson.RawValue) (n int) {
	for _, mark := range a.marks {
		if key(mark) == key(id) {
			n++
		}
	}
	return n
}

// maxExact bounds the whole numbers that a double holds exactly.
const maxExact = 1 << 53

// wholeOf returns the whole number that a double is.
func wholeOf(v bson.RawValue) (n int64, ok bool) {
	f, ok := v.DoubleOK()
	if !ok || math.Trunc(f) != f || math.Abs(f) > maxExact { // NaN is no number that is equal to itself
		return 0, false
	}
	return int64(f), true
}

// amountOf returns a stored amount.
func amountOf(v bson.RawValue) (a transfer.Amount, ok bool) {
	if n, ok := wholeOf(v); ok {
		return transfer.Units(n), true
	}
	return a, a.UnmarshalBSONValue(byte(v.Type), v.Value) == nil
}

// isDecimal reports whether a stored amount is a decimal.
func isDecimal(v bson.RawValue) bool { return v.Type == bson.TypeDecimal128 }

// key returns what is equal for values that the server takes for equal.
func key(v bson.RawValue) string {
	if n, ok := v.AsInt64OK(); ok && v.Type != bson.TypeDouble {
		return "n" + strconv.FormatInt(n, 10)
	}
	if n, ok := wholeOf(v); ok {
		return "n" + strconv.FormatInt(n, 10)
	}
	return fmt.Sprintf("%d:%s", v.Type, v.Value)
}

// textOf returns an _id as a text, and whether it is one that has a plain form.
func textOf(v bson.RawValue) (text string, plain bool) {
	if text, ok := v.StringValueOK(); ok {
		return text, true
	}
	if oid, ok := v.ObjectIDOK(); ok {
		return oid.Hex(), true
	}
	if n, ok := wholeOf(v); ok {
		return strconv.FormatInt(n, 10), true
	}
	if n, ok := v.AsInt64OK(); ok && v.Type != bson.TypeDouble {
		return strconv.FormatInt(n, 10), true
	}
	return v.String(), false
}

// accountID returns an account's ID as the library has it.
func (b *Books) accountID(v bson.RawValue) (id string, ok bool) {
	if b.ObjectIDs {
		oid, ok := v.ObjectIDOK()
		return oid.Hex(), ok
	}
	return v.StringValueOK()
}
