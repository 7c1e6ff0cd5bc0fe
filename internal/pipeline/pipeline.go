// Package pipeline puts the writes to many accounts into one statement: an update of many
// documents by an aggregation pipeline, in which each account has parameters of its own.
//
// The server parses and plans a statement once, whatever the number of its documents.
// With a statement for each account that takes a third of its time.
//
//	{q: {_id: {$in: ids}}, multi: true, u: [{$replaceWith: {$let: {
//		vars: {p: <the account's parameters>},
//		in: {$cond: [<conditions>, <the changed account>, "$$ROOT"]},
//	}}}]}
//
// All conditions are inside, where they are evaluated together with the change, on one
// version of the document. An account that does not fulfil them stays as it is, and is
// missing in the reply's nModified. Each change changes something: a marker is added or
// removed.
//
// The conditions are stricter than those of a statement for one account, and never less
// strict. They are written for documents as the library writes them; whatever else a
// document may have in a field, such as an array or a zero for false, is left to the
// other form. So an account that is refused here may still be changed by that one, and
// one that is changed here would have been changed there in the same way.
//
// A document that the server refuses to write ends the statement, and the reply says that
// nothing was changed although accounts before it are.
package pipeline

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Names of an account's parameters. Each is written for every account of a statement
// whose shape asks for it.
const (
	// Low and High are the bounds of the balance.
	Low  = "low"
	High = "high"
	// Net is what is added to the balance.
	Net = "net"
	// Absent are the keys of the markers that must not be there, an array.
	Absent = "absent"
	// Set are the markers that are added, a document.
	Set = "set"
	// Removed are the keys of the markers that must be there and are removed, an array.
	Removed = "removed"
	// Fence is the fence that prepares name, or null.
	Fence = "fence"
	// Currency is the currency, or "".
	Currency = "currency"
	// Floor is the stored floor that a debit was judged by, or null. It counts where
	// Debits is true.
	Floor = "floor"
	// Debits says that money is taken.
	Debits = "debits"
)

// Shape is what the accounts of one statement have in common.
type Shape struct {
	// Kind is the kind of their amounts.
	Kind money.Kind
	// Prepares says that there are prepares for each account.
	Prepares bool
	// Removes says that markers are removed from each account.
	Removes bool
}

// shapes returns all of them.
func shapes() []Shape {
	var all []Shape
	for _, kind := range []money.Kind{money.Whole, money.Decimal} {
		all = append(all, Shape{kind, true, false}, Shape{kind, false, true}, Shape{kind, true, true})
	}
	return all
}

// Bodies are the parts of the statements that don't depend on the accounts, by shape.
type Bodies map[Shape]bson.Raw

// New encodes the bodies for accounts with the given names of fields.
func New(fields document.Fields) (Bodies, error) {
	all := Bodies{}
	for _, shape := range shapes() {
		body, err := bson.Marshal(body(fields, shape))
		if err != nil {
			return nil, err
		}
		all[shape] = body
	}
	return all, nil
}

// Account is one account of a statement.
type Account interface {
	// ID is the account's _id.
	ID() bson.RawValue
	// WriteParameters writes the account's parameters.
	WriteParameters(m *wire.Message)
}

// Write writes the statement for accounts of a shape. No account is there twice.
func Write[A Account](m *wire.Message, body bson.Raw, accounts []A) {
	m.Begin("q")
	m.Begin("_id")
	writeIDs(m, "$in", accounts)
	m.End()
	m.End()
	m.BeginArray("u")
	m.Begin("0")
	m.Begin("$replaceWith")
	m.Begin("$let")
	m.Begin("vars")
	m.Begin("p")
	writeChoice(m, accounts)
	m.End()
	m.End()
	m.Document("in", body)
	m.End()
	m.End()
	m.End()
	m.End()
	m.Flag("multi", true)
}

// writeChoice writes the expression that chooses the parameters of the account at hand.
// The server looks an _id up in the list by a hash table, which it makes once.
//
// An account that is not found in the list of IDs has the last parameters, which are
// empty: no balance lies within their bounds. It would be one whose _id the server takes
// for another one's.
func writeChoice[A Account](m *wire.Message, accounts []A) {
	m.BeginArray("$arrayElemAt")
	m.Begin("0")
	m.BeginArray("$literal")
	for i, account := range accounts {
		m.Begin(wire.Index(i))
		account.WriteParameters(m)
		m.End()
	}
	m.Begin(wire.Index(len(accounts)))
	m.End()
	m.End()
	m.End()
	m.Begin("1")
	m.BeginArray("$indexOfArray")
	m.Begin("0")
	writeIDs(m, "$literal", accounts)
	m.End()
	m.Text("1", "$_id")
	m.End()
	m.End()
	m.End()
}

func writeIDs[A Account](m *wire.Message, operator string, accounts []A) {
	m.BeginArray(operator)
	for i, account := range accounts {
		m.Value(wire.Index(i), account.ID())
	}
	m.End()
}
