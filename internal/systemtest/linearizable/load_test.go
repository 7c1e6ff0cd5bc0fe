package linearizable

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

const (
	// opening is the opening balance of each account.
	opening = int64(1) << 32
	// largest is the largest amount. Amounts vary so widely that a balance alone shows
	// which transfers are in it.
	largest = int64(1) << 31
	// closed is an account that refuses every credit after the debit was taken.
	closed = "closed"
	// livesOfClient is how many processes a client has, one after the other.
	livesOfClient = 4
	// runLimit is how long a run may take. It is many times longer than needed, for
	// machines that are slow or busy.
	runLimit = 4 * time.Minute
)

// load is a group of clients that use a few accounts.
type load struct {
	loadOptions
	t         *testing.T
	b         *bank.Bank
	h         *history
	accounts  []string
	seeds     []uint64
	lives     [][]life
	sweepers  []*transfer.Coordinator
	deaths    atomic.Int64
	sweeps    atomic.Int64
	failovers atomic.Int64
}

// loadOptions say where a load runs and which faults it meets.
type loadOptions struct {
	clients int
	through func(*options.ClientOptions) *mongo.Database // the bank's database
	faults  []bank.Fault
	linear  bool                            // there are linearizable reads besides those of the library
	hurt    func(ctx context.Context) error // hurts a server, again and again
	enough  func(counts) bool
}

// life is one process of a client. Its wire is cut at the end of all lives but the last.
type life struct {
	c        *transfer.Coordinator
	db       *mongo.Database
	wire     *bank.Wire
	ctx      context.Context // ends with the life
	returnAt transfer.ReturnAt
}

// newLoad opens the accounts and prepares the clients with their faults.
func newLoad(t *testing.T, b *bank.Bank, o loadOptions) *load {
	t.Helper()
	l := &load{loadOptions: o, t: t, b: b, h: newHistory(), accounts: []string{"a", "b", "c", "d"}}
	for _, id := range l.accounts {
		_, err := b.OpenAccount(t.Context(), transfer.Account{ID: id, Balance: transfer.Units(opening)})
		require.NoError(t, err)
	}
	_, err := b.OpenAccount(t.Context(), transfer.Account{ID: closed})
	require.NoError(t, err)
	require.NoError(t, b.CloseAccount(t.Context(), closed))
	for _, policy := range []transfer.StallPolicy{transfer.Resume, transfer.RollBack} {
		l.sweepers = append(l.sweepers, b.NewCoordinator(b.DB, transfer.WithStallThreshold(0), transfer.WithStallPolicy(policy)))
	}
	random := bank.Seeded(t)
	for client := range l.clients {
		var lives []life
		for n := range livesOfClient {
			at := []transfer.ReturnAt{transfer.AtCommit, transfer.AtSettled, transfer.AtSuccess}[(client+n)%3]
			lives = append(lives, l.newLife(random, at, n == livesOfClient-1))
		}
		l.lives = append(l.lives, lives)
		l.seeds = append(l.seeds, random.Uint64())
	}
	return l
}

// newLife returns a process whose wire has random faults.
// It dies after some hundred messages, unless it is the last.
func (l *load) newLife(random *rand.Rand, at transfer.ReturnAt, last bool) life {
	ctx, cancel := context.WithCancel(l.t.Context())
	l.t.Cleanup(cancel)
	w := &bank.Wire{At: -1, What: l.faults[random.IntN(len(l.faults))], Also: map[int]bank.Fault{}, OnDeath: cancel}
	if !last {
		w.At, w.Die = 100+random.IntN(200), true
	}
	for n := 10 + random.IntN(20); n < 2000; n += 5 + random.IntN(50) {
		w.Also[n] = l.faults[random.IntN(len(l.faults))]
	}
	policy := []transfer.StallPolicy{transfer.Resume, transfer.RollBack}[random.IntN(2)]
	db := l.through(w.Client())
	c := l.b.NewCoordinator(db, transfer.WithStallPolicy(policy), transfer.WithReturnAt(at))
	return life{c, db, w, ctx, at}
}

// run lets the clients work until they have done enough, or for runLimit.
// Meanwhile held messages arrive.
func (l *load) run() {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), runLimit)
	defer cancel()
	var clients sync.WaitGroup
	for i := range l.lives {
		clients.Go(func() { l.live(ctx, i) })
	}
	hurting := make(chan error, 1)
	go func() { hurting <- l.hurtUntil(ctx) }()
	post := time.NewTicker(100 * time.Millisecond)
	defer post.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-post.C:
			l.deliver()
			if l.enough(l.counts()) {
				cancel()
			}
		}
	}
	clients.Wait()
	require.NoError(l.t, bank.Within(l.t, hurting))
	l.close()
}

// close ends the processes that live, once they have done what their callers have left.
// Nothing happens to their messages any more, and those that were held arrive.
func (l *load) close() {
	l.t.Helper()
	living := slices.Clone(l.sweepers)
	for _, life := range slices.Concat(l.lives...) {
		life.wire.SetIdle(true)
		if life.ctx.Err() == nil {
			living = append(living, life.c)
		}
	}
	var closing sync.WaitGroup
	for _, c := range living {
		closing.Go(func() { assert.NoError(l.t, c.Close(l.t.Context())) })
	}
	closed := make(chan struct{})
	go func() {
		closing.Wait()
		close(closed)
	}()
	post := time.NewTicker(100 * time.Millisecond)
	defer post.Stop()
	for {
		select {
		case <-closed:
			return
		case <-post.C:
			l.deliver()
		}
	}
}

func (l *load) hurtUntil(ctx context.Context) error {
	for l.hurt != nil && ctx.Err() == nil {
		err := l.hurt(ctx)
		if err == nil {
			l.failovers.Add(1)
		} else if ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// judge finishes everything, reads all accounts once more, and returns the outcome of
// every request.
func (l *load) judge() []verdict {
	l.t.Helper()
	l.b.RecoverAll()
	l.deliver()
	l.b.RecoverAll() // a message that was held may have begun something
	verdicts := l.h.verdicts(l.t, l.b.Coordinator)
	l.readAll()
	done := l.counts()
	l.t.Logf("%+v", done)
	require.True(l.t, l.enough(done), "too little happened within %s: %+v", runLimit, done)
	return verdicts
}

// live runs one client, one life after the other.
func (l *load) live(ctx context.Context, number int) {
	random := rand.New(rand.NewPCG(l.seeds[number], 0))
	n := 0
	for _, life := range l.lives[number] {
		w := witness{l.h, number, life.c, life.db, life.returnAt}
		for ; ctx.Err() == nil && life.ctx.Err() == nil; n++ {
			both, cancel := context.WithCancel(ctx)
			unhook := context.AfterFunc(life.ctx, cancel)
			l.act(both, w, random, fmt.Sprint(number, "-", n))
			unhook()
			cancel()
		}
		if life.ctx.Err() != nil {
			bank.Kill(life.c)
			l.deaths.Add(1)
		}
	}
}

// act does one thing.
func (l *load) act(ctx context.Context, w witness, random *rand.Rand, id string) {
	switch n := random.IntN(100); {
	case n < 35:
		l.transfer(ctx, w, random, id)
	case n < 43 && l.linear:
		_ = w.readLinearly(ctx, l.accounts[random.IntN(len(l.accounts))])
	case n < 50 && l.linear:
		_ = w.findLinearly(ctx, l.accounts[random.IntN(len(l.accounts))])
	case n < 75:
		_ = w.read(ctx, l.t, l.accounts[random.IntN(len(l.accounts))])
	case n < 97:
		l.meddle(ctx, w, random, n)
	default:
		l.sweep(ctx, random)
	}
}

// transfer starts a new transfer. One in ten has little time for it.
func (l *load) transfer(ctx context.Context, w witness, random *rand.Rand, id string) {
	from := random.IntN(len(l.accounts))
	to := l.accounts[(from+1+random.IntN(len(l.accounts)-1))%len(l.accounts)]
	if random.IntN(8) == 0 {
		to = closed
	}
	if random.IntN(10) == 0 {
		short, cancel := context.WithTimeout(ctx, time.Duration(1+random.IntN(10))*time.Millisecond)
		defer cancel()
		ctx = short
	}
	w.transfer(ctx, id, l.accounts[from], to, 1+random.Int64N(largest))
}

// meddle acts on a recent transfer.
func (l *load) meddle(ctx context.Context, w witness, random *rand.Rand, n int) {
	a, known := l.h.lastBegun(random.IntN(12))
	switch {
	case !known:
	case n < 83:
		w.look(ctx, a.id)
	case n < 85:
		w.await(ctx, a.id)
	case n < 93:
		if doubtful, any := l.h.takeDoubtful(); any {
			a = doubtful
		}
		w.transfer(ctx, a.id, a.from, a.to, a.units)
	default:
		w.cancel(ctx, a.id)
	}
}

// sweep takes over every transfer in progress.
func (l *load) sweep(ctx context.Context, random *rand.Rand) {
	c := l.sweepers[random.IntN(len(l.sweepers))]
	report, err := c.Recover(ctx)
	if err == nil && report.Succeeded+report.Failed > 0 {
		l.sweeps.Add(1)
	}
}

// deliver lets held messages arrive.
func (l *load) deliver() {
	l.t.Helper()
	for _, life := range slices.Concat(l.lives...) {
		life.wire.Deliver(l.t)
	}
}

// readAll reads all accounts once more.
func (l *load) readAll() {
	l.t.Helper()
	w := witness{l.h, len(l.lives), l.b.Coordinator, l.b.DB, transfer.AtSuccess}
	for _, account := range l.accounts {
		require.NoError(l.t, w.read(l.t.Context(), l.t, account))
	}
}

// audit requires exact balances, and that no marker remains.
func (l *load) audit() {
	l.t.Helper()
	m := map[string]int64{closed: 0}
	for _, account := range l.accounts {
		m[account] = opening
	}
	l.b.CheckBooks(m)
}
