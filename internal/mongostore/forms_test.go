package mongostore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/pipeline"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

const (
	formSeed  = 20250301
	formCases = 6000
)

// forms performs updates in both forms, each on documents of its own.
type forms struct {
	t              testing.TB
	store          *mongostore.Store
	single, shared *mongo.Collection
}

// perform stores the accounts twice, and performs the updates of one of each by
// themselves, and of the other one in statements that they share.
func (f forms) perform(cases []*formCase) (alone, together map[string]bson.Raw) {
	f.t.Helper()
	var documents []bson.Raw
	var statements []*mongostore.Statement
	shapes := map[pipeline.Shape][]*formCase{}
	for _, c := range cases {
		documents = append(documents, c.before)
		statements = append(statements, c.update.Single())
		shapes[c.update.Shape()] = append(shapes[c.update.Shape()], c)
	}
	_, err := f.single.InsertMany(f.t.Context(), documents)
	require.NoError(f.t, err)
	stored := f.read(f.single, cases) // with times in place of empty timestamps
	for i, c := range cases {
		c.before = stored[c.id]
		documents[i] = c.before
	}
	_, err = f.shared.InsertMany(f.t.Context(), documents)
	require.NoError(f.t, err)
	wire.ModifyAll(f.t.Context(), f.single, statements)
	for _, group := range shapes {
		f.share(group)
	}
	return f.read(f.single, cases), f.read(f.shared, cases)
}

// share performs updates in statements of some each. None is refused but those of
// accounts that become too large.
func (f forms) share(group []*formCase) {
	f.t.Helper()
	for some := range slices.Chunk(group, 100) {
		var updates []*mongostore.MergedUpdate
		for _, c := range some {
			updates = append(updates, c.update)
		}
		done := wire.ModifyAll(f.t.Context(), f.shared, []*mongostore.Statement{f.store.SharedStatement(updates...)})
		if done.Verdicts[0].Err == nil {
			continue
		}
		for _, c := range some {
			done := wire.ModifyAll(f.t.Context(), f.shared, []*mongostore.Statement{f.store.SharedStatement(c.update)})
			var refused wire.StatementError
			if errors.As(done.Verdicts[0].Err, &refused) != c.tooLarge || wire.IsEvaluation(refused.Code) {
				f.t.Errorf("refused: %v\n%.1000s", done.Verdicts[0].Err, c.before)
			}
		}
	}
}

// read returns the documents of cases.
func (f forms) read(collection *mongo.Collection, cases []*formCase) map[string]bson.Raw {
	f.t.Helper()
	var ids bson.A
	for _, c := range cases {
		ids = append(ids, c.id)
	}
	cursor, err := collection.Find(f.t.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}})
	require.NoError(f.t, err)
	var all []bson.Raw
	require.NoError(f.t, cursor.All(f.t.Context(), &all))
	byID := map[string]bson.Raw{}
	for _, d := range all {
		byID[d.Lookup("_id").StringValue()] = d
	}
	return byID
}

// judge requires of one account what the forms promise of each other, and returns what
// became of it in each.
func (c *formCase) judge(t testing.TB, alone, together bson.Raw) (byItself, shared bool) {
	t.Helper()
	byItself, shared = string(alone) != string(c.before), string(together) != string(c.before)
	switch {
	case shared && !byItself:
		t.Errorf("%s: changed only together with others:\n%s\n%s\n%s", c, c.before, alone, together)
	case shared && string(inMarkerOrder(alone)) != string(inMarkerOrder(together)):
		t.Errorf("%s: changed in another way:\n%s\n%s\n%s", c, c.before, alone, together)
	case c.plain && byItself && !shared:
		t.Errorf("%s: not changed together with others:\n%s\n%s", c, c.before, alone)
	}
	return byItself, shared
}

// String describes the update.
func (c *formCase) String() string {
	var text strings.Builder
	for _, call := range c.calls {
		fmt.Fprintf(&text, "%s of %s by %q, ", call.Op.Kind, call.Attempt.Participant(0).Leg().Amount, call.Attempt.Transfer.ID)
	}
	return text.String() + "odd: " + c.odd
}

// inMarkerOrder returns an account with its markers in the order of their keys.
func inMarkerOrder(account bson.Raw) bson.Raw {
	m := wire.NewMessage(len(account))
	for _, field := range wire.Elements(account) {
		markers, ok := field.Value().DocumentOK()
		if field.Key() != "pending" || !ok {
			m.Value(field.Key(), field.Value())
			continue
		}
		elements := wire.Elements(markers)
		slices.SortStableFunc(elements, func(a, b bson.RawElement) int { return strings.Compare(a.Key(), b.Key()) })
		m.Begin("pending")
		for _, e := range elements {
			m.Value(e.Key(), e.Value())
		}
		m.End()
	}
	m.End()
	return m.Data
}

// The form that many accounts share applies nothing that the other one would not, and
// leaves the same bytes. Where an account is as the library writes it, it applies all
// that the other one does.
func TestFormsAgree(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	l := lottery{rand.New(rand.NewPCG(formSeed, 0))}
	cases := make([]*formCase, formCases)
	for i := range cases {
		cases[i] = l.drawForm(b.Store, fmt.Sprintf("case %05d", i))
	}
	f := forms{t, b.Store.Store, b.Store.Ledgers[""].Commands, b.Store.Ledgers["eu"].Commands}
	alone, together := f.perform(cases)
	counts := map[string]int{}
	for _, c := range cases {
		byItself, shared := c.judge(t, alone[c.id], together[c.id])
		counts[formRow("what is odd: "+c.odd, byItself, shared)]++
		counts[formRow(fmt.Sprint(c.update.Shape()), byItself, shared)]++
		for _, call := range c.calls {
			counts[formRow(call.Op.Kind.String(), byItself, shared)]++
		}
		if c.odd == "pending" {
			continue // which may add the trace that a call needs
		}
		for _, what := range c.found {
			counts[formRow(what, byItself, shared)]++
			assert.False(t, byItself || shared, "%s: %s\n%s", c, what, c.before)
		}
	}
	for what, count := range formRows(counts) {
		assert.Positive(t, count, what)
	}
	assert.Zero(t, counts[formRow("what is odd: twice", true, true)])
}

func formRow(what string, byItself, shared bool) string {
	return fmt.Sprintf("%s, changed by itself: %t, together: %t", what, byItself, shared)
}

// formRows returns the counts of what has to happen: each outcome, for each odd field,
// for each shape, and for each operation, also where it finds another trace.
func formRows(counts map[string]int) map[string]int {
	rows := map[string]int{}
	add := func(row string) { rows[row] = counts[row] }
	for _, odd := range []string{"", "balance", "pending", "fence", "floor", "currency", "closed", "frozen", "twice"} {
		for _, outcome := range [][2]bool{{false, false}, {true, false}, {true, true}} {
			if odd != "twice" || !outcome[1] {
				add(formRow("what is odd: "+odd, outcome[0], outcome[1]))
			}
		}
	}
	for _, kind := range []money.Kind{money.Whole, money.Decimal} {
		for _, shape := range []pipeline.Shape{
			{Prepares: true, Sets: true}, {Removes: true}, {Sets: true, Removes: true}, {Prepares: true, Sets: true, Removes: true},
		} {
			shape.Kind = kind
			add(formRow(fmt.Sprint(shape), false, false))
			add(formRow(fmt.Sprint(shape), true, true))
		}
	}
	for _, kind := range []protocol.Kind{protocol.Prepare, protocol.Pay, protocol.Settle, protocol.Clear, protocol.Undo} {
		add(formRow(kind.String(), false, false))
		add(formRow(kind.String(), true, true))
		for _, key := range []string{"", "x", "%"} {
			own := map[protocol.Kind]string{protocol.Prepare: "", protocol.Clear: "%"}
			if needed, other := own[kind]; other && needed == key || !other && key == "x" {
				continue
			}
			add(formRow(foundRow(kind, key), false, false))
		}
	}
	return rows
}
