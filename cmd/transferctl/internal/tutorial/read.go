package tutorial

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/wire"
)

// ended are the states in which nothing is left to be done.
func ended() bson.A { return bson.A{done, canceled, cancelled} }

// unfinished selects what is not over: also what the library was not asked for yet.
func unfinished() bson.D {
	return bson.D{{Key: "$or", Value: bson.A{
		bson.D{{Key: stateField, Value: bson.D{{Key: "$nin", Value: ended()}}}},
		bson.D{{Key: takenOver + ".settled", Value: false}},
	}}}
}

// readTransactions reads what is unfinished, in the order of the IDs.
func (b *Books) readTransactions(ctx context.Context) (all []transaction, err error) {
	if b.BalancesOnly {
		return nil, nil
	}
	byID := bson.D{{Key: "$sort", Value: bson.D{{Key: "_id", Value: 1}}}}
	rows, err := b.Transactions.Aggregate(ctx, mongo.Pipeline{{{Key: "$match", Value: unfinished()}}, byID})
	if err != nil {
		return nil, wire.ServerErrorOf(err, wire.RightFind, wire.NamespaceOf(b.Transactions))
	}
	defer func() { _ = rows.Close(ctx) }()
	for rows.Next(ctx) {
		all = append(all, decodeTransaction(cloned(rows.Current)))
	}
	return all, rows.Err()
}

// decodeTransaction reads a document, whatever its fields are.
func decodeTransaction(raw bson.Raw) (t transaction) {
	t.ID, t.Source, t.Destination, t.Value = raw.Lookup("_id"), raw.Lookup("source"), raw.Lookup("destination"), raw.Lookup("value")
	t.State, _ = raw.Lookup(stateField).StringValueOK()
	if over, ok := raw.Lookup(takenOver).DocumentOK(); ok {
		t.TakenOver = &taken{}
		t.TakenOver.As, _ = over.Lookup("as").StringValueOK()
		t.TakenOver.Settled, _ = over.Lookup("settled").BooleanOK()
	}
	return t
}

// readAccounts reads the accounts that a filter selects.
func (b *Books) readAccounts(ctx context.Context, filter bson.D, each func(account, bson.Raw)) error {
	fields := b.Fields.Projection()
	for _, name := range []string{marksField, b.Key} {
		if !slices.ContainsFunc(fields, func(e bson.E) bool { return e.Key == name }) {
			fields = append(fields, bson.E{Key: name, Value: 1})
		}
	}
	rows, err := b.Accounts.Aggregate(ctx, mongo.Pipeline{{{Key: "$match", Value: filter}}, {{Key: "$project", Value: fields}}})
	if err != nil {
		return wire.ServerErrorOf(err, wire.RightFind, wire.NamespaceOf(b.Accounts))
	}
	defer func() { _ = rows.Close(ctx) }()
	for rows.Next(ctx) {
		raw := cloned(rows.Current)
		each(b.decodeAccount(raw), raw)
	}
	return rows.Err()
}

// decodeAccount reads an account, whatever its fields are.
func (b *Books) decodeAccount(raw bson.Raw) account {
	a := account{id: raw.Lookup("_id"), key: raw.Lookup(b.Key), balance: raw.Lookup(b.Fields.Balance)}
	a.currency, _ = raw.Lookup(b.Fields.Currency).StringValueOK()
	marks := raw.Lookup(marksField)
	array, ok := marks.ArrayOK()
	if !ok {
		a.noArray = marks.Type != 0
		return a
	}
	a.marks, _ = array.Values()
	return a
}

// cloned returns a document that stays when the next one is read.
func cloned(raw bson.Raw) bson.Raw { return append(bson.Raw(nil), raw...) }
