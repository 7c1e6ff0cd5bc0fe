package transfer_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

// On a replica set whose primaries are replaced, transfers are linearizable, and so are reads with read concern linearizable. The reads
// of the library, with read concern majority, need not be: a primary that was replaced and does not know it, and one that was just elected,
// answer with what once was; never with what never was.
func TestLinearizableOverFailovers(t *testing.T) {
	t.Parallel()
	set, err := mongotest.StartSet(t.Context(), 3)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, set.Stop()) })
	t.Run("clients that follow the set", func(t *testing.T) { newSetBank(t, set, "followers").follow() })
	t.Run("clients of a primary that was replaced", func(t *testing.T) { newSetBank(t, set, "behind").stayBehind() })
	t.Run("clients of a primary that is new", func(t *testing.T) { newSetBank(t, set, "early").arriveEarly() })
}

// follow checks what clients see who learn soon which member is the primary.
func (b setBank) follow() {
	const perFailover = 20 // successes in between
	var l *load
	replaced := 0
	l = newLoad(b.t, b.bank, loadOptions{
		clients: 6, through: b.through, faults: []fault{lost, answerLost}, linear: true,
		hurt: func(ctx context.Context) error {
			replaced++
			if !l.h.awaitSuccesses(ctx, replaced*perFailover) {
				return ctx.Err()
			}
			return b.replace(ctx, replaced%2 == 0)
		},
		enough: func(c counts) bool {
			return c.Succeeded >= 2*perFailover+perFailover/2 && c.Reads >= 50 && c.LinearReads >= 25 && c.InDoubt >= 3 && c.Failovers >= 2
		},
	})
	l.run()
	verdicts := l.judge()
	for _, of := range []line{l.h.posted(verdicts), l.h.available(verdicts)} {
		requireLinearizable(b.t, balanceModel(opening), of.only(isLinear), "transfers and linearizable reads")
		b.requireOld(balanceModel(opening), of)
	}
	b.requireOld(stateModel(), l.h.progress(verdicts))
	l.audit()
}

// requireOld requires that reads which are not linearizable are at least of what was there before, and tells how many there were.
func (b setBank) requireOld(m porcupine.Model, l line) int {
	b.t.Helper()
	kept, stale := l.sift(b.t, m)
	for _, op := range stale {
		op.Call = 0
		require.True(b.t, accepts(b.t, m, append(slices.Clone(kept), op)), "nothing was ever so: %v", op.Input)
	}
	b.t.Logf("%d of %d entries are stale reads", len(stale), len(l))
	return len(stale)
}

// stayBehind checks what clients see who can reach but one member, when that has been replaced as the primary and does not know it: it was
// paused meanwhile.
func (b setBank) stayBehind() {
	h := newHistory()
	w := witness{h, 0, b.Coordinator, b.db}
	for _, id := range []string{"a", "b"} {
		_, err := b.OpenAccount(b.t.Context(), transfer.Account{ID: id, Balance: transfer.Units(opening)})
		require.NoError(b.t, err)
	}
	found := 0
	for round := 0; found == 0; round++ {
		require.Less(b.t, round, 3, "no read was stale: does the pause still replace the primary?")
		w.transfer(b.t.Context(), fmt.Sprint("before", round), "a", "b", 3)
		require.NoError(b.t, w.read(b.t.Context(), b.t, "a"))
		b.readBehind(w, fmt.Sprint("after", round))

		verdicts := h.verdicts(b.t, b.Coordinator)
		require.NoError(b.t, w.read(b.t.Context(), b.t, "a"))
		require.NoError(b.t, w.read(b.t.Context(), b.t, "b"))
		ofPosted, ofStates := h.posted(verdicts), h.progress(verdicts)
		requireLinearizable(b.t, balanceModel(opening), ofPosted.only(isLinear), "transfers and linearizable reads")
		found = min(b.requireOld(balanceModel(opening), ofPosted), b.requireOld(stateModel(), ofStates))
	}
	b.recoverAll()
	b.balances()
}

// readBehind pauses the primary until it is replaced, makes a transfer, and lets clients read who know the old primary alone. What
// they send lies before it when it wakes up.
func (b setBank) readBehind(w witness, id string) {
	b.t.Helper()
	old, err := b.set.Primary(b.t.Context())
	require.NoError(b.t, err)
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	var left []behind
	for n := range 9 {
		left = append(left, b.newBehind(w.history, n+1, b.set.Hosts()[old]))
		require.NoError(b.t, left[n].act(ctx, b.t, id)) // so that there is a connection
	}
	require.NoError(b.t, b.set.Pause(old))
	require.NoError(b.t, b.awaitOther(ctx, old))
	require.NoError(b.t, w.transfer(ctx, id, "a", "b", 5).told)

	short, end := context.WithTimeout(ctx, 3*time.Second)
	defer end()
	var all sync.WaitGroup
	for _, one := range left {
		all.Go(func() { _ = one.act(short, b.t, id) })
	}
	require.Eventually(b.t, func() bool {
		return !slices.ContainsFunc(left, func(one behind) bool { return one.sent() < 2 })
	}, 5*time.Second, time.Millisecond, "the reads are not sent")
	require.NoError(b.t, b.set.Resume(old))
	all.Wait()
}

// behind is a client that can reach one member only.
type behind struct {
	witness
	wire *lonelyWire
}

func (b setBank) newBehind(h *history, number int, host string) behind {
	b.t.Helper()
	w := &lonelyWire{wire: wire{at: -1}, host: host}
	// It takes the member for the primary until it hears otherwise: so it would with the driver's defaults, for up to 40 s.
	o := options.Client().ApplyURI(b.set.URI()).SetDialer(w).SetMaxPoolSize(1)
	client, err := mongo.Connect(o)
	require.NoError(b.t, err)
	b.t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = client.Disconnect(now)
	})
	db := client.Database(b.db.Name())
	return behind{witness{h, number, b.coordinator(db), db}, w}
}

// act reads an account, in one of two ways, or a transfer, each client its own.
func (b behind) act(ctx context.Context, t *testing.T, id string) error {
	switch b.number % 3 {
	case 0:
		return b.read(ctx, t, "a")
	case 1:
		return b.readLinearly(ctx, "a")
	}
	b.look(ctx, id)
	return nil
}

// sent counts the reads that were sent.
func (b behind) sent() int {
	b.wire.mu.Lock()
	defer b.wire.mu.Unlock()
	return b.wire.seen
}

// lonelyWire is a wire to one member.
type lonelyWire struct {
	wire
	host string
}

// DialContext implements options.ContextDialer.
func (w *lonelyWire) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if address != w.host {
		return nil, cutOff()
	}
	return w.wire.DialContext(ctx, network, address)
}

// arriveEarly checks what clients see of a primary that was just elected, and does not know yet what of its data a majority has: the
// old one had no time to tell it. It takes some luck to write something in the last moment.
func (b setBank) arriveEarly() {
	found := 0
	for round := 0; found == 0; round++ {
		require.Less(b.t, round, 5, "no read was stale: does a new primary know all that a majority has?")
		found = b.readEarly(fmt.Sprint("account", round))
	}
}

// readEarly pays something into a new account, has the primary replaced, and reads from the new one at once. It returns the number of stale
// reads.
func (b setBank) readEarly(account string) int {
	b.t.Helper()
	h := newHistory()
	_, err := b.OpenAccount(b.t.Context(), transfer.Account{ID: account, Balance: transfer.Units(opening)})
	require.NoError(b.t, err)
	var members []witness
	for i, host := range b.set.Hosts() {
		db := b.connect("mongodb://" + host + "/?directConnection=true").Client().Database(b.db.Name())
		w := witness{newHistory(), i, b.coordinator(db), db}
		require.Eventually(b.t, func() bool { return w.read(b.t.Context(), b.t, account) == nil }, 20*time.Second, 10*time.Millisecond)
		w.history = h
		members = append(members, w)
	}
	old, err := b.set.Primary(b.t.Context())
	require.NoError(b.t, err)
	defer b.keepIgnorant(old)()
	paid := span{called: h.now()}
	accounts := members[old].db.Collection("accounts", options.Collection().SetWriteConcern(writeconcern.Majority()))
	increase := bson.D{{Key: "$inc", Value: bson.D{{Key: "balance", Value: int64(5)}}}}
	if _, err = accounts.UpdateByID(b.t.Context(), account, increase); err != nil {
		return 0 // it came too late to be acknowledged
	}
	paid.backAt = h.now()
	require.NoError(b.t, b.awaitOther(b.t.Context(), old))
	now, err := b.set.Primary(b.t.Context())
	require.NoError(b.t, err)
	require.NoError(b.t, members[now].read(b.t.Context(), b.t, account))
	require.NoError(b.t, members[now].readLinearly(b.t.Context(), account))

	l := h.posted(nil)
	l.add(paid, entry{deed: moves, of: account, transfer: "a payment", units: 5})
	requireLinearizable(b.t, balanceModel(opening), l.only(isLinear), "linearizable reads")
	return b.requireOld(balanceModel(opening), l)
}
