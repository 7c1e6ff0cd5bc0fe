package transfer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	protocolwire "github.com/mongotransfer/transfer/internal/wire"
)

// mute returns a registration of a ledger on a server that never says a word.
func (b *bank) mute() transfer.Option {
	b.t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(b.t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = listener.Close() }) // until then it lets callers wait
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + listener.Addr().String() + "/?directConnection=true"))
	require.NoError(b.t, err)
	b.t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = client.Disconnect(now)
	})
	return transfer.WithLedger("other", client.Database(b.db.Name()).Collection("more"))
}

// toZ moves a unit from account a to account z of the ledger other.
func toZ(id string) transfer.Request {
	return transfer.Request{ID: id, Legs: []transfer.Leg{
		{Account: "a", Amount: transfer.Units(-1)}, {Ledger: "other", Account: "z", Amount: transfer.Units(1)},
	}}
}

// holdNear holds a transfer to z, whose ledger is on the same server here, and returns the coordinator that has it so.
func (b *bank) holdNear(id string) *transfer.Coordinator {
	b.t.Helper()
	b.insert("more", bson.M{"_id": "z", "balance": int64(0)})
	near := b.coordinator(b.db, transfer.WithLedger("other", b.db.Collection("more")))
	_, err := near.Hold(b.t.Context(), toZ(id), time.Hour)
	require.NoError(b.t, err)
	return near
}

// searches are what a worker looks for in the transfers.
type searches struct{ stalled, expired chan struct{} }

func newSearches() *searches {
	return &searches{stalled: make(chan struct{}, 1), expired: make(chan struct{}, 1)}
}

// client returns the options of a client whose searches are told of when they begin.
func (s *searches) client() *options.ClientOptions {
	return options.Client().SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if name, _ := e.Command.Lookup("find").StringValueOK(); name != "transfers" {
			return
		}
		begun := s.stalled
		if hold, _ := e.Command.Lookup("filter", "hold").BooleanOK(); hold {
			begun = s.expired
		} else if _, err := e.Command.LookupErr("filter", "$or"); err != nil {
			return
		}
		select {
		case begun <- struct{}{}:
		default:
		}
	}})
}

// plant stores so many copies of a transfer, changed.
func (b *bank) plant(id string, n int, changes bson.M) (ids []string) {
	b.t.Helper()
	for i := range n {
		var document bson.M
		require.NoError(b.t, b.db.Collection("transfers").FindOne(b.t.Context(), bson.M{"_id": id}).Decode(&document))
		document["_id"] = fmt.Sprint(id, "-", i)
		for field, value := range changes {
			document[field] = value
		}
		b.insert("transfers", document)
		ids = append(ids, fmt.Sprint(id, "-", i))
	}
	return ids
}

// Transfers to a cluster that doesn't answer keep a worker, which has never reached it, neither from recovering others nor from voiding
// their holds: it turns to these while it still waits for an answer. Nor do they keep it from ending.
func TestWorkerPassesOverAClusterThatIsAway(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		threshold time.Duration
		begun     func(s *searches) <-chan struct{}
		away      bson.M // what the transfers to it look like
		near      func(b *bank)
		want      transfer.State
	}{
		"stalled": {
			100 * time.Millisecond, func(s *searches) <-chan struct{} { return s.stalled },
			bson.M{"state": "Committed", "committedAt": before(1), "lastModified": before(1)},
			func(b *bank) { b.stallAt("near", 4, lost, 60) }, transfer.StateSuccess,
		},
		"expired": {
			time.Hour, func(s *searches) <-chan struct{} { return s.expired },
			bson.M{"expiresAt": before(1)},
			func(b *bank) { b.hold("near", 60, 100*time.Millisecond) }, transfer.StateFail,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t, 100, 0)
			near := b.holdNear("far")

			s := newSearches()
			worker := b.coordinator(b.through(s.client()), b.mute(), transfer.WithStallThreshold(row.threshold))
			end := inBackground(t, worker)
			<-s.stalled // by which the expired ones have been looked for, too: the next of these sweeps comes after the threshold
			far := b.plant("far", 20, row.away)
			begun := row.begun(s)
			select {
			case <-begun: // before they were there
			default:
			}
			<-begun
			since := time.Now()
			row.near(b)
			require.Eventually(t, func() bool {
				rec, err := b.Get(t.Context(), "near")
				require.NoError(t, err)
				return rec.State == row.want
			}, 20*time.Second, 10*time.Millisecond)
			require.Less(t, time.Since(since), protocolwire.CommandLimit, "it has waited until the others were given up")
			end()
			require.Less(t, time.Since(since), protocolwire.CommandLimit)

			b.remove("transfers", far...)
			_, err := near.Void(t.Context(), "far")
			require.NoError(t, err)
			b.audit(initial(100, 0))
		})
	}
}

// Hundreds of transfers to a cluster that has fallen silent, more than a sweep begins with at once, keep a worker from recovering what has
// stalled elsewhere no longer than a command may take, and not until each of them was given up. They leave room for callers, too, however
// few executions may be under way.
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
			b := newBank(t, 100, 0)
			b.insert("other", bson.M{"_id": "z", "balance": int64(0)})
			net := &silence{}
			other := transfer.WithLedger("other", b.through(options.Client().SetDialer(net)).Collection("other"))
			c := b.coordinator(b.db, other, transfer.WithStallThreshold(time.Second), transfer.WithGroupCommit(row.group))
			_, err := c.Transfer(t.Context(), toZ("warm"))
			require.NoError(t, err)
			_, err = c.Hold(t.Context(), toZ("far"), time.Hour)
			require.NoError(t, err)
			b.stallAt("near", 4, lost, 60)
			net.set(true)
			planted := b.plant("far", row.far, bson.M{"state": "Committed", "committedAt": before(1), "lastModified": before(1)})
			since := time.Now()
			end := inBackground(t, c)
			ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
			defer cancel()
			_, err = b.Wait(ctx, "near")
			require.NoError(t, err)
			_, err = c.Transfer(ctx, move("meanwhile", "a", "b", 1))
			require.NoError(t, err)
			require.Less(t, time.Since(since), 25*time.Second, "it has waited until the others were given up, after 30 s")
			kill(c)
			end()

			b.remove("transfers", planted...)
			_, err = b.coordinator(b.db, transfer.WithLedger("other", b.db.Collection("other"))).Void(t.Context(), "far")
			require.NoError(t, err)
			b.audit(initial(100, 0))
		})
	}
}

// Recover comes back to what it has passed over: of a cluster that answers again meanwhile nothing is left. What still hangs is stuck.
func TestRecoverComesBackToWhatHung(t *testing.T) {
	t.Parallel()
	const far, inHand = 40, 8 // half of MaxPending
	for name, stays := range map[string]bool{"it answers": false, "it still hangs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t, 100, 0)
			b.insert("other", bson.M{"_id": "z", "balance": int64(0)})
			net, s, log := &silence{}, newSearches(), &logged{}
			c := b.coordinator(b.through(s.client()), transfer.WithStallThreshold(time.Second), transfer.WithLogger(slog.New(log)),
				transfer.WithGroupCommit(transfer.GroupCommit{MaxPending: 2 * inHand}),
				transfer.WithLedger("other", b.through(options.Client().SetDialer(net)).Collection("other")))
			setAhead := c.ClockAhead()
			_, err := c.Transfer(t.Context(), toZ("warm"))
			require.NoError(t, err)
			_, err = c.Hold(t.Context(), toZ("far"), time.Hour)
			require.NoError(t, err)
			planted := b.plant("far", far, bson.M{"state": "Committed", "committedAt": before(1), "lastModified": before(1)})
			net.set(true)
			done := make(chan transfer.RecoveryReport, 1)
			go func() {
				report, err := c.Recover(t.Context())
				assert.NoError(t, err)
				done <- report
			}()
			<-s.stalled
			<-s.stalled // once more: not all could be begun with
			if stays {
				var ahead time.Duration
				const warning = "a stalled transfer could not be finished"
				require.Eventually(t, func() bool {
					ahead += time.Minute
					setAhead(ahead)
					return log.count(warning) > 0
				}, time.Minute, time.Second)
			}
			net.set(false)
			report := <-done
			require.Equal(t, transfer.RecoveryReport{Found: far, Succeeded: report.Succeeded, Stuck: far - report.Succeeded}, report)
			require.Equal(t, stays, report.Stuck > 0, "%+v", report)

			b.remove("transfers", planted...)
			_, err = c.Void(t.Context(), "far")
			require.NoError(t, err)
			require.Equal(t, initial(99, 0), b.balances())
		})
	}
}

// lateDialer has no way to its server for the first few tries.
type lateDialer struct{ left atomic.Int32 }

func (d *lateDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if d.left.Add(-1) >= 0 {
		return nil, errors.New("no way there yet")
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// Who decides a hold waits for a cluster that this process has not met before and that is away, as all others do.
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
			b := newBank(t, 100, 0)
			b.holdNear("h")
			dialer := &lateDialer{}
			dialer.left.Store(3)
			late := b.through(options.Client().SetDialer(dialer).SetServerSelectionTimeout(100 * time.Millisecond))
			c := b.coordinator(b.db, transfer.WithLedger("other", late.Collection("more")))
			rec, err := row.decide(c)
			require.NoError(t, err)
			require.Equal(t, row.want, rec.State)
			require.Negative(t, dialer.left.Load())
			require.Empty(t, b.mustAudit().Findings)
		})
	}
}
