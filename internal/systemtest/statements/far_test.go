package statements

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// farAway is how long a message takes to a server, and its answer back.
const farAway = 40 * time.Millisecond

// far returns the options of a client that is far from its server.
func far() *options.ClientOptions { return options.Client().SetDialer(farDialer{}) }

type farDialer struct{ net.Dialer }

func (d farDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.Dialer.DialContext(ctx, network, address)
	return &farConn{Conn: conn}, err
}

type farConn struct {
	net.Conn
	asked atomic.Bool
}

func (c *farConn) Write(message []byte) (int, error) {
	c.asked.Store(true)
	if err := collections.Pause(context.Background(), farAway); err != nil {
		return 0, err
	}
	return c.Conn.Write(message)
}

func (c *farConn) Read(answer []byte) (int, error) {
	n, err := c.Conn.Read(answer)
	if c.asked.CompareAndSwap(true, false) {
		_ = collections.Pause(context.Background(), farAway)
	}
	return n, err
}

// The past of a busy account comes to an end although the account is in another cluster,
// and both clusters are far away: transfers are prepared and cleared on it within the
// time of each read. What was read stays.
func TestStatementOfABusyAccountFarAway(t *testing.T) {
	t.Parallel()
	b := bank.NewBranches(t, bank.StartServer(t), 1_000_000, 1_000_000)
	there, err := b.NewCoordinator(b.Through(far()), b.Other(far())).Ledger("other")
	require.NoError(t, err)
	began := time.Now()

	moving, stop := context.WithCancel(t.Context())
	defer stop()
	var movers sync.WaitGroup
	for m := range 4 {
		movers.Go(func() {
			sign := int64(1 - m%2*2)
			for i := 0; moving.Err() == nil; i++ {
				_, err := b.Both.Transfer(t.Context(), bank.Across(fmt.Sprintf("mover %d, %d", m, i), sign*int64(1+i%7)))
				if err != nil {
					t.Error(err)
					return
				}
				_ = collections.Pause(moving, farAway/4)
			}
		})
	}
	limited, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var read [][]transfer.Entry
	balances := map[time.Time]transfer.Amount{}
	for range 2 {
		at := time.Now()
		balances[at], err = there.BalanceAt(limited, "a", at)
		require.NoError(t, err)
		balances[began], err = there.BalanceAt(limited, "a", began)
		require.NoError(t, err)
		require.Equal(t, transfer.Units(1_000_000), balances[began])
		var entries []transfer.Entry
		for e, err := range there.Statement(limited, "a", transfer.StatementQuery{NewestFirst: true, Limit: 200}) {
			require.NoError(t, err)
			entries = append(entries, e)
		}
		read = append(read, entries)
	}
	stop()
	movers.Wait()

	other, err := b.Both.Ledger("other")
	require.NoError(t, err)
	for at, balance := range balances {
		got, err := other.BalanceAt(t.Context(), "a", at)
		require.NoError(t, err)
		require.Equal(t, balance, got)
	}
	for _, entries := range read {
		require.NotEmpty(t, entries)
		bank.RequireChain(t, transfer.StatementQuery{NewestFirst: true}, entries)
		q := transfer.StatementQuery{Before: entries[0].At.Add(time.Millisecond), NewestFirst: true, Limit: len(entries)}
		require.Equal(t, entries, b.MustStatement(other, "a", q))
	}
	b.CheckBooks()
}
