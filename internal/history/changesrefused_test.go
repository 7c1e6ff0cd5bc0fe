package history_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// Without the right to watch the account, the past is closed once no transfer is
// committed in the middle of the read. A caller who stops waiting before that learns why.
func TestClosingWithoutTheRightToWatch(t *testing.T) { // not parallel: it makes commands fail
	s, refused := &steps{}, storetest.NewCommandLog()
	b := newBank(t, func(c *storetest.Config) {
		name := c.Transfers.Database().Name()
		c.Transfers = mongotest.Client(t, s.monitor()).Database(name).Collection("transfers")
		watched := mongotest.Client(t, refused.Options(), options.Client().SetAppName(name))
		c.Ledgers[""] = watched.Database(name).Collection("accounts")
	})
	require.NoError(t, b.Store.Setup(t.Context()))
	b.flush()
	s.stored = b.stored
	b.Failing(1000, []string{"aggregate"}, bson.M{"errorCode": 13})
	refused.Take()
	for name, busy := range map[string]int{"for a while": 40, "for longer than its caller waits": 80} {
		b.Put(storetest.Account(name, nil))
		due := map[int][]func(){}
		for n := range busy {
			m := mover{b, fmt.Sprint(name, n), name, 1, 1, false}
			due[n] = []func(){m.prepare, m.commit, m.settle}
		}
		limited, cancel := context.WithTimeout(t.Context(), time.Minute)
		if busy > 40 {
			due[busy] = []func(){cancel}
		}
		end := s.begin(due)
		closed, _, err := b.history(name).BalanceAsOf(limited, time.Time{})
		commands := end()
		cancel()
		if busy > 40 {
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorContains(t, err, "committed faster than it can be read")
			continue
		}
		require.NoError(t, err)
		require.Greater(t, commands, busy)
		require.Equal(t, money.Units(int64(100+busy)), closed.Balance)
	}
	watches := 0
	for _, c := range refused.Take() {
		if c.Name == "aggregate" {
			watches++
		}
	}
	require.Equal(t, 1, watches, "a refusal is remembered")
}
