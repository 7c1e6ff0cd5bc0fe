package linearizable

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// On a replica set whose primaries are replaced, transfers are linearizable, and so are
// reads with read concern linearizable, and transactions that also write.
// The library reads with read concern majority, so its reads may be stale: from a primary
// that does not know yet that it was replaced, and from one that was just elected.
// They never show what was never there.
func TestLinearizableOverFailovers(t *testing.T) {
	t.Parallel()
	set, err := mongotest.StartSet(t.Context(), 3)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, set.Stop()) })
	t.Run("clients that follow the set", func(t *testing.T) { follow(bank.NewReplicated(t, set, "followers")) })
	t.Run("clients of a primary that was replaced", func(t *testing.T) { stayBehind(bank.NewReplicated(t, set, "behind")) })
	t.Run("clients of a primary that is new", func(t *testing.T) { arriveEarly(bank.NewReplicated(t, set, "early")) })
}

// follow checks what clients see that learn soon which member is the primary.
func follow(b bank.Replicated) {
	const perFailover = 20 // successes in between
	var l *load
	replaced := 0
	l = newLoad(b.T, b.Bank, loadOptions{
		clients: 6, through: b.Through, faults: []bank.Fault{bank.Lost, bank.AnswerLost}, linear: true,
		hurt: func(ctx context.Context) error {
			replaced++
			if !l.h.awaitSuccesses(ctx, replaced*perFailover) {
				return ctx.Err()
			}
			return b.Replace(ctx, replaced%2 == 0)
		},
		enough: func(c counts) bool {
			return c.Succeeded >= 2*perFailover+perFailover/2 && c.Reads >= 50 && c.LinearReads >= 25 && c.InDoubt >= 3 && c.Failovers >= 2
		},
	})
	l.run()
	verdicts := l.judge()
	for _, of := range []line{l.h.posted(verdicts), l.h.available(verdicts)} {
		requireLinearizable(b.T, balanceModel(opening), of.only(isLinear), "transfers and linearizable reads")
		requireOld(b, balanceModel(opening), of)
	}
	requireOld(b, stateModel(), l.h.progress(verdicts))
	l.audit()
}

// requireOld requires that reads which are not linearizable show an earlier state at
// least.
// It returns how many there were.
func requireOld(b bank.Replicated, m porcupine.Model, l line) int {
	b.T.Helper()
	kept, stale := l.sift(b.T, m)
	for _, op := range stale {
		op.Call = 0
		require.True(b.T, accepts(b.T, m, append(slices.Clone(kept), op)), "nothing was ever so: %v", op.Input)
	}
	b.T.Logf("%d of %d entries are stale reads", len(stale), len(l))
	return len(stale)
}

// stayBehind checks what clients see that can reach only one member, which was paused,
// was replaced as the primary, and does not know it.
// The number of stale reads depends on the server and on luck. The log shows it.
func stayBehind(b bank.Replicated) {
	h := newHistory()
	w := witness{h, 0, b.Coordinator, b.DB, transfer.AtSuccess}
	for _, id := range []string{"a", "b"} {
		_, err := b.OpenAccount(b.T.Context(), transfer.Account{ID: id, Balance: transfer.Units(opening)})
		require.NoError(b.T, err)
	}
	w.transfer(b.T.Context(), "before", "a", "b", 3)
	require.NoError(b.T, w.read(b.T.Context(), b.T, "a"))
	for n := 0; !readBehind(b, w, fmt.Sprint("after", n)); n++ {
		require.Less(b.T, n, 2, "the reads are not sent")
	}

	verdicts := h.verdicts(b.T, b.Coordinator)
	require.NoError(b.T, w.read(b.T.Context(), b.T, "a"))
	require.NoError(b.T, w.read(b.T.Context(), b.T, "b"))
	for _, of := range []line{h.posted(verdicts), h.available(verdicts)} {
		requireLinearizable(b.T, balanceModel(opening), of.only(isLinear), "transfers and linearizable reads")
		requireOld(b, balanceModel(opening), of)
	}
	requireOld(b, stateModel(), h.progress(verdicts))
	b.RecoverAll()
	b.Balances()
}

// readBehind pauses the primary until it is replaced, makes a transfer, and starts reads
// by clients that know only the old primary.
// The old primary finds their commands when it wakes up. It must answer, with data or a
// refusal, or nothing was tested.
// The result is false if not all reads were sent: the set may elect another primary by
// itself before it is paused, of which the clients learn.
func readBehind(b bank.Replicated, w witness, id string) bool {
	b.T.Helper()
	old, err := b.Set.Primary(b.T.Context())
	require.NoError(b.T, err)
	ctx, cancel := context.WithTimeout(b.T.Context(), 2*time.Minute)
	defer cancel()
	var left []behind
	for n := range 12 {
		left = append(left, newBehind(b, w.history, n+1, b.Set.Hosts()[old]))
		require.NoError(b.T, left[n].act(ctx, b.T, id)) // so that there is a connection
		left[n].wire.forget()
	}
	require.NoError(b.T, b.Set.Pause(old))
	require.NoError(b.T, b.AwaitOther(ctx, old))
	require.NoError(b.T, w.transfer(ctx, id, "a", "b", 5).told)

	reading, end := context.WithCancel(ctx)
	defer end()
	var all sync.WaitGroup
	for _, one := range left {
		all.Go(func() { _ = one.act(reading, b.T, id) })
	}
	sending, over := context.WithTimeout(ctx, 20*time.Second)
	defer over()
	sent := until(sending, func() bool { return count(left, (*lonelyWire).wasAsked) == len(left) })
	require.NoError(b.T, b.Set.Resume(old))
	if !sent {
		b.T.Logf("%d of %d reads are sent", count(left, (*lonelyWire).wasAsked), len(left))
		end()
		all.Wait()
		return false
	}
	soon, enough := context.WithTimeout(ctx, 10*time.Second) // some may be left without an answer
	defer enough()
	until(soon, func() bool { return count(left, (*lonelyWire).wasAnswered) == len(left) })
	answered := count(left, (*lonelyWire).wasAnswered)
	b.T.Logf("the old primary has answered %d of %d reads", answered, len(left))
	require.Positive(b.T, answered)
	last, stop := context.WithTimeout(ctx, time.Second) // refused reads search for another primary, in vain
	defer stop()
	context.AfterFunc(last, end)
	all.Wait()
	return true
}

// behind is a client that can reach only one member.
type behind struct {
	witness
	wire *lonelyWire
}

func newBehind(b bank.Replicated, h *history, number int, host string) behind {
	b.T.Helper()
	w := &lonelyWire{Wire: bank.Wire{At: -1}, host: host}
	// The client takes the member for the primary until it learns otherwise. With the
	// driver's defaults that may take 40 s.
	client := bank.Client(b.T, b.Set.URI(), options.Client().SetDialer(w).SetMaxPoolSize(1))
	db := client.Database(b.DB.Name())
	return behind{witness{h, number, b.NewCoordinator(db), db, transfer.AtSuccess}, w}
}

// act reads an account, in one of three ways, or a transfer. Each client does one of
// these.
func (b behind) act(ctx context.Context, t *testing.T, id string) error {
	switch b.number % 4 {
	case 0:
		return b.read(ctx, t, "a")
	case 1:
		return b.readLinearly(ctx, "a")
	case 2:
		return b.findLinearly(ctx, "a")
	}
	b.look(ctx, id)
	return nil
}

// count returns the number of clients that meet a condition.
func count(clients []behind, so func(*lonelyWire) bool) int {
	n := 0
	for _, one := range clients {
		if so(one.wire) {
			n++
		}
	}
	return n
}

// lonelyWire is a wire to one member.
type lonelyWire struct {
	bank.Wire
	host     string
	answered atomic.Bool // a read, with data or a refusal
}

// forget makes the wire one that has carried no message yet.
func (w *lonelyWire) forget() {
	w.Forget()
	w.answered.Store(false)
}

func (w *lonelyWire) wasAsked() bool {
	return w.Sent() > 0
}

func (w *lonelyWire) wasAnswered() bool {
	return w.answered.Load()
}

// DialContext implements options.ContextDialer.
func (w *lonelyWire) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if address != w.host {
		return nil, bank.CutOff()
	}
	conn, err := w.Wire.DialContext(ctx, network, address)
	return &lonelyConn{Conn: conn, wire: w}, err
}

// lonelyConn is one connection over a lonelyWire. It notes when a read is answered.
type lonelyConn struct {
	net.Conn
	wire  *lonelyWire
	asked atomic.Bool
}

// Write sends one message.
func (c *lonelyConn) Write(message []byte) (int, error) {
	if _, counts := bank.CommandIn(message); counts {
		c.asked.Store(true)
	}
	return c.Conn.Write(message)
}

// Read takes an answer for that of the latest read, since nothing else is sent before it.
func (c *lonelyConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.asked.Load() {
		c.wire.answered.Store(true)
	}
	return n, err
}

// arriveEarly checks what clients see of a primary that was just elected and does not
// know yet which of its data a majority has.
// The old primary had no time to report it. A write in that last moment takes some luck,
// so there are a few tries, and the log shows their results.
func arriveEarly(b bank.Replicated) {
	const tries = 3
	stale := 0
	for n := 0; n < tries && stale == 0; n++ {
		stale = readEarly(b, fmt.Sprint("account", n))
	}
}

// readEarly pays into a new account, has the primary replaced, and reads from the new one
// at once.
// It returns the number of stale reads.
func readEarly(b bank.Replicated, account string) int {
	b.T.Helper()
	h := newHistory()
	_, err := b.OpenAccount(b.T.Context(), transfer.Account{ID: account, Balance: transfer.Units(opening)})
	require.NoError(b.T, err)
	var members []witness
	for i, host := range b.Set.Hosts() {
		db := b.Connect("mongodb://" + host + "/?directConnection=true").Client().Database(b.DB.Name())
		w := witness{newHistory(), i, b.NewCoordinator(db), db, transfer.AtSuccess}
		require.Eventually(b.T, func() bool { return w.read(b.T.Context(), b.T, account) == nil }, time.Minute, 10*time.Millisecond)
		w.history = h
		members = append(members, w)
	}
	old, err := b.Set.Primary(b.T.Context())
	require.NoError(b.T, err)
	defer b.KeepIgnorant(old)()
	paid := span{called: h.now()}
	accounts := members[old].db.Collection("accounts", options.Collection().SetWriteConcern(writeconcern.Majority()))
	increase := bson.D{{Key: "$inc", Value: bson.D{{Key: "balance", Value: int64(5)}}}}
	_, told := accounts.UpdateByID(b.T.Context(), account, increase)
	paid.backAt = h.now()
	require.NoError(b.T, b.AwaitOther(b.T.Context(), old))
	require.Eventually(b.T, func() bool {
		now, err := b.Set.Primary(b.T.Context()) // it may be replaced again
		return err == nil && members[now].read(b.T.Context(), b.T, account) == nil &&
			members[now].findLinearly(b.T.Context(), account) == nil
	}, time.Minute, 10*time.Millisecond, "no new primary was read from")

	l := h.available(nil)
	if told != nil { // it came too late to be acknowledged: the last read, a linearizable one, shows whether it came at all
		b.T.Logf("the payment is in doubt: %v", told)
		paid.backAt = h.now()
	}
	if told == nil || h.balances[len(h.balances)-1].available != opening {
		l.add(paid, entry{deed: moves, of: account, transfer: "a payment", units: 5})
	}
	requireLinearizable(b.T, balanceModel(opening), l.only(isLinear), "linearizable reads")
	return requireOld(b, balanceModel(opening), l)
}
