package servers

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
	"github.com/mongotransfer/transfer/internal/wire"
)

// mute returns the option for a ledger on a server that never answers.
func mute(b *bank.Bank) transfer.Option {
	b.T.Helper()
	listener, err := (&net.ListenConfig{}).Listen(b.T.Context(), "tcp", "127.0.0.1:0")
	require.NoError(b.T, err)
	b.T.Cleanup(func() { _ = listener.Close() }) // until then it keeps callers waiting
	client := bank.Client(b.T, "mongodb://"+listener.Addr().String()+"/?directConnection=true")
	return transfer.WithLedger("other", client.Database(b.DB.Name()).Collection("more"))
}

// holdNear holds a transfer to z, whose ledger this coordinator reaches on the same
// server.
// It returns that coordinator.
func holdNear(b *bank.Bank, id string) *transfer.Coordinator {
	b.T.Helper()
	b.Insert("more", bson.M{"_id": "z", "balance": int64(0)})
	near := b.NewCoordinator(b.DB, transfer.WithLedger("other", b.DB.Collection("more")))
	_, err := near.Hold(b.T.Context(), bank.ToZ(id), time.Hour)
	require.NoError(b.T, err)
	return near
}

// beside is work that a worker has beside transfers to a cluster that doesn't answer.
type beside struct {
	threshold time.Duration
	begun     func(s *bank.Searches) <-chan struct{}
	away      bson.M // the changes that make the transfers to it
	near      func(b *bank.Bank)
	want      transfer.State
}

// A worker has transfers to a cluster that doesn't answer, which it has never reached.
// They don't keep it from recovering other transfers, voiding their holds, or ending.
// It does so while it still waits for the answer.
func TestWorkerPassesOverAClusterThatIsAway(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]beside{
		"stalled": {
			time.Second, func(s *bank.Searches) <-chan struct{} { return s.Stalled },
			bson.M{"state": "Committed", "committedAt": bank.ThresholdsAgo(1), "lastModified": bank.ThresholdsAgo(1)},
			func(b *bank.Bank) { b.StallAt("near", bank.Settles, bank.Lost, 60); b.Silence("near", time.Minute) }, transfer.StateSuccess,
		},
		"expired": {
			time.Hour, func(s *bank.Searches) <-chan struct{} { return s.Expired },
			bson.M{"expiresAt": bank.ThresholdsAgo(1)},
			func(b *bank.Bank) { b.MustHold("near", 60, time.Hour); b.Expire("near") }, transfer.StateFail,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Others may keep a machine busy for as long as the answer is waited for.
			for round := 0; passesOver(t, row) >= wire.CommandLimit; round++ {
				require.Less(t, round, 5, "it has waited until the others were given up")
			}
		})
	}
}

// passesOver returns how long it takes a worker to do what it has to do nearby, and to
// end.
func passesOver(t *testing.T, row beside) time.Duration {
	t.Helper()
	b := bank.New(t, 100, 0).WithIndexes()
	near := holdNear(b, "far")

	s := bank.NewSearches()
	worker := b.NewCoordinator(b.Through(s.Client()), mute(b), transfer.WithStallThreshold(row.threshold))
	end := bank.InBackground(t, worker)
	// The sweep has searched for expired holds too, and the next one is a threshold away.
	bank.Within(t, s.Stalled)
	far := b.Plant("far", 20, row.away)
	begun := row.begun(s)
	select {
	case <-begun: // before the transfers were there
	default:
	}
	bank.Within(t, begun)
	since := time.Now()
	row.near(b)
	bank.Until(t, 10*time.Millisecond, func() (bool, error) {
		rec, err := b.Get(t.Context(), "near")
		return rec.State == row.want, err
	})
	end()
	took := time.Since(since)

	b.Remove("transfers", far...)
	_, err := near.Void(t.Context(), "far")
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(100, 0))
	return took
}

// A worker has hundreds of transfers to a cluster that has fallen silent, more than a
// sweep begins at once.
// They delay the recovery of other transfers by the time limit of one command, and not
// until each of them is given up.
// They also leave room for callers, however few executions may run at once.
func TestWorkerPassesOverHundredsThatHang(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		far   int
		group transfer.GroupCommit
	}{
		"many": {600, transfer.GroupCommit{}},
		"few":  {200, transfer.GroupCommit{MaxPending: 16}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0).WithIndexes()
			b.Insert("other", bson.M{"_id": "z", "balance": int64(0)})
			net := &bank.Silence{}
			other := transfer.WithLedger("other", b.Through(options.Client().SetDialer(net)).Collection("other"))
			c := b.NewCoordinator(b.DB, other, transfer.WithStallThreshold(time.Second), transfer.WithGroupCommit(row.group))
			_, err := c.Transfer(t.Context(), bank.ToZ("warm"))
			require.NoError(t, err)
			_, err = c.Hold(t.Context(), bank.ToZ("far"), time.Hour)
			require.NoError(t, err)
			b.StallAt("near", bank.Settles, bank.Lost, 60)
			net.Set(true)
			ago := bank.ThresholdsAgo(1)
			planted := b.Plant("far", row.far, bson.M{"state": "Committed", "committedAt": ago, "lastModified": ago})
			since := time.Now()
			end := bank.InBackground(t, c)
			ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
			defer cancel()
			_, err = b.Wait(ctx, "near")
			require.NoError(t, err)
			_, err = c.Transfer(ctx, bank.Move("meanwhile", "a", "b", 1))
			require.NoError(t, err)
			require.Less(t, time.Since(since), 25*time.Second, "it has waited until the others were given up, after 30 s")
			bank.Kill(c)
			end()

			b.Remove("transfers", planted...)
			_, err = b.NewCoordinator(b.DB, transfer.WithLedger("other", b.DB.Collection("other"))).Void(t.Context(), "far")
			require.NoError(t, err)
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}

// lateDialer can't reach its server in the first few tries.
type lateDialer struct{ left atomic.Int32 }

func (d *lateDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if d.left.Add(-1) >= 0 {
		return nil, errors.New("no way there yet")
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// A call that decides a hold waits, as all calls do, for a cluster that is away and that
// this process has not met before.
func TestDecidingAHoldWaitsForACluster(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		decide func(c *transfer.Coordinator) (transfer.Record, error)
		want   transfer.State
	}{
		"post":   {func(c *transfer.Coordinator) (transfer.Record, error) { return c.Post(t.Context(), "h") }, transfer.StateSuccess},
		"void":   {func(c *transfer.Coordinator) (transfer.Record, error) { return c.Void(t.Context(), "h") }, transfer.StateFail},
		"cancel": {func(c *transfer.Coordinator) (transfer.Record, error) { return c.Cancel(t.Context(), "h", "") }, transfer.StateFail},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0).WithIndexes()
			holdNear(b, "h")
			dialer := &lateDialer{}
			dialer.left.Store(3)
			late := b.Through(options.Client().SetDialer(dialer).SetServerSelectionTimeout(100 * time.Millisecond))
			c := b.NewCoordinator(b.DB, transfer.WithLedger("other", late.Collection("more")))
			rec, err := row.decide(c)
			require.NoError(t, err)
			require.Equal(t, row.want, rec.State)
			require.Negative(t, dialer.left.Load())
			require.Empty(t, b.MustAudit().Findings)
		})
	}
}
