package events

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// counted counts the commands on a test's transfers and accounts, and their statements.
type counted struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *counted) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		collection, _ := e.Command.Lookup(e.CommandName).StringValueOK()
		if collection != "transfers" && collection != "accounts" {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.counts[e.CommandName+" "+collection]++
		for _, list := range []string{"updates", "documents"} {
			if statements, is := e.Command.Lookup(list).ArrayOK(); is {
				values, _ := statements.Values()
				c.counts[fmt.Sprint(list, " of ", collection)] += len(values)
			}
		}
	}}
}

// taken returns the counts since the last call.
func (c *counted) taken() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := c.counts
	c.counts = map[string]int{}
	return counts
}

// Who moves money sends as many commands with as many statements with events as without,
// and stores as many documents: for transfers that succeed and fail, and for holds.
func TestSameCommands(t *testing.T) {
	t.Parallel()
	const n = 20
	play := func(opts ...transfer.Option) (commands map[string]int, documents int64) {
		b := bank.NewWith(t, slices.Clone(opts), 1000, 0).WithIndexes()
		c := &counted{counts: map[string]int{}}
		opts = append(opts, transfer.WithReturnAt(transfer.AtSuccess))
		coord := b.NewCoordinator(b.Through(options.Client().SetMonitor(c.monitor())), opts...)
		_, err := coord.Transfer(t.Context(), bank.Move("warm", "a", "b", 1))
		require.NoError(t, err)
		c.taken()
		for i := range n {
			_, err := coord.Transfer(t.Context(), bank.Move(fmt.Sprint("pay", i), "a", "b", 1))
			require.NoError(t, err)
			_, err = coord.Transfer(t.Context(), bank.Move(fmt.Sprint("much", i), "a", "b", 5000))
			require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
			_, err = coord.Hold(t.Context(), bank.Move(fmt.Sprint("hold", i), "a", "b", 1), 1<<40)
			require.NoError(t, err)
			_, err = coord.Post(t.Context(), fmt.Sprint("hold", i))
			require.NoError(t, err)
		}
		commands = c.taken()
		for _, name := range []string{"transfers", "accounts"} {
			stored, err := b.DB.Collection(name).CountDocuments(t.Context(), bson.M{})
			require.NoError(t, err)
			documents += stored
		}
		b.CheckBooks(bank.Balances(1000, 0))
		return commands, documents
	}
	var off, on map[string]int
	var documents, with int64
	for round := 0; round == 0 || !maps.Equal(off, on) && round < 5; round++ { // a busy server may be asked twice
		off, documents = play()
		on, with = play(silent())
	}
	require.NotEmpty(t, off)
	t.Logf("%v for %d of each", on, n)
	require.Equal(t, off, on)
	require.Equal(t, documents, with)
}
