package verbs

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// A transfer has up to 100 effects, and each of them requires and sets up to 100 fields
// of 64 KB.
// These limits are allowed, and nothing beyond them.
func TestLimitsOfEffects(t *testing.T) {
	t.Parallel()
	b := bank.NewShop(t)
	effects := make([]transfer.Effect, 101)
	for i := range effects {
		b.Insert("orders", bank.Order(fmt.Sprint("many-", i)))
		effects[i] = transfer.Effect{Documents: "orders", ID: fmt.Sprint("many-", i), Set: bson.D{{Key: "status", Value: "paid"}}}
	}
	_, err := b.Transfer(t.Context(), transfer.Request{ID: "101", Effects: effects})
	require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	_, err = b.Transfer(t.Context(), transfer.Request{ID: "100", Effects: effects[:100]})
	require.NoError(t, err)
	const around = 4 + 1 + len("x\x00") + 4 + 1 + 1 // what BSON writes around one text
	fields := func(bytes int) bson.D { return bson.D{{Key: "x", Value: strings.Repeat("x", bytes-around)}} }
	for bytes, want := range map[int]error{64 << 10: nil, 64<<10 + 1: transfer.ErrInvalidRequest} {
		set := transfer.Effect{Documents: "orders", ID: "o-1", Set: fields(bytes)}
		_, err := b.Transfer(t.Context(), transfer.Request{ID: fmt.Sprint("sets ", bytes), Effects: []transfer.Effect{set}})
		require.ErrorIs(t, err, want)
	}
	for count, want := range map[int]error{100: nil, 101: transfer.ErrInvalidRequest} {
		for verb, wide := range map[string]transfer.Effect{
			"requires": {Documents: "orders", ID: "o-2", Require: manyFields(count, nil)},
			"sets":     {Documents: "orders", ID: "o-2", Set: manyFields(count, nil)},
		} {
			_, err := b.Transfer(t.Context(), transfer.Request{ID: fmt.Sprint(verb, count), Effects: []transfer.Effect{wide}})
			require.ErrorIs(t, err, want, "%s %d fields", verb, count)
		}
	}
	long := transfer.Effect{Documents: "orders", ID: "o-1", Require: fields(64<<10 + 1)}
	_, err = b.Transfer(t.Context(), transfer.Request{ID: "requires", Effects: []transfer.Effect{long}})
	require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	b.CheckBooks(bank.Balances())
}

// Effects of many fields are spread over commands: none has the server compare or set
// more than 2,000, which take it far less than the time of a command.
func TestEffectsOfManyFields(t *testing.T) {
	t.Parallel()
	b := bank.NewShop(t)
	var mu sync.Mutex
	var most, all int
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if name, _ := e.Command.Lookup(e.CommandName).StringValueOK(); name == "orders" {
			mu.Lock()
			defer mu.Unlock()
			n := strings.Count(e.Command.String(), `"wide`)
			most, all = max(most, n), all+n
		}
	}}
	db := b.Through(options.Client().SetMonitor(monitor))
	c := b.NewCoordinator(db, bank.Orders(db)...)
	pay := transfer.Request{ID: "pay"}
	for i := range 100 {
		b.Insert("orders", bank.Order(fmt.Sprint("many-", i)))
		pay.Effects = append(pay.Effects, transfer.Effect{
			Documents: "orders", ID: fmt.Sprint("many-", i), Require: manyFields(100, nil), Set: manyFields(100, 1),
		})
	}
	_, err := c.Transfer(t.Context(), pay)
	require.NoError(t, err)
	pay.ID = "again"
	_, err = c.Transfer(t.Context(), pay)
	require.ErrorIs(t, err, transfer.ErrRequirementFailed)
	mu.Lock()
	defer mu.Unlock()
	require.GreaterOrEqual(t, all, 3*100*100, "required, set, and required again")
	require.LessOrEqual(t, most, 2000)
	b.CheckBooks(bank.Balances())
}

// manyFields returns fields of the same value.
func manyFields(count int, value any) bson.D {
	fields := make(bson.D, count)
	for i := range fields {
		fields[i] = bson.E{Key: fmt.Sprint("wide", i), Value: value}
	}
	return fields
}
