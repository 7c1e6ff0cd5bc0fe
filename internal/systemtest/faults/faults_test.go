package faults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// deposit is paid into every account before late messages arrive, so that none of them is
// refused for lack of money.
const deposit = 1000

// Any one message may fail: a write is carried out and its answer is lost, or it is held
// back and arrives after everything else is over and money has come in. Until then it is
// as good as lost. A read changes nothing, so it is only lost.
// The process dies there or goes on, and recovery follows either policy.
// The audit has no findings about what a death leaves.
// Each transfer happens exactly once or not at all, the caller got the true outcome, and
// nothing is left behind.
// The table is complete: it strikes every kind of operation.
func TestEveryMessageMayFail(t *testing.T) {
	t.Parallel()
	struck, faults := &operationsSeen{}, []strike{
		{of: bank.Writes, what: bank.Held}, {of: bank.Reads, what: bank.Lost}, {of: bank.Writes, what: bank.AnswerLost},
	}
	if testing.Short() {
		faults = faults[:2]
	}
	t.Run("all", func(t *testing.T) {
		for _, s := range scenarios() {
			for _, policy := range s.policies() {
				var all []strike
				for _, f := range faults {
					f.policy, f.struck, f.die = policy, struck, true
					all = append(all, f)
					if f.die = false; policy == s.policies()[0] { // one that lives on needs no recovery
						all = append(all, f)
					}
				}
				s.strikeAll(t, policy, all)
			}
		}
	})
	struck.requireAll(t)
}

// The same holds for any write that the driver sends twice, because the server has
// performed it and then called itself overloaded.
// Recovery is not needed.
func TestEveryWriteMayBeSentTwice(t *testing.T) {
	t.Parallel()
	struck := &operationsSeen{}
	t.Run("all", func(t *testing.T) {
		for _, s := range scenarios() {
			policy := s.policies()[0]
			s.strikeAll(t, policy, []strike{{of: bank.Writes, what: bank.Resent, policy: policy, struck: struck}})
		}
	})
	struck.requireAll(t, protocol.ReadFence, protocol.ReadTransfer, protocol.LookTransfer) // these only read
}

// strikeAll runs the scenario without a fault, and then with each fault at one command
// after the other. Writes and reads are counted apart: how often a waiting caller reads
// depends on how busy the machine is, and must not let a write go unstruck.
func (s scenario) strikeAll(t *testing.T, policy transfer.StallPolicy, faults []strike) {
	t.Helper()
	t.Run(fmt.Sprintf("%s/policy=%d", s.name, policy), func(t *testing.T) {
		t.Parallel()
		b := bank.NewBare(t)
		recoverer := b.NewRecoverer(append(s.options(b.DB), transfer.WithStallPolicy(policy))...)
		commands, _ := s.strike(b, recoverer, strike{point: -1, policy: policy})
		strikes := 0
		for _, f := range faults {
			for f.point = range count(commands, f.of) {
				b.Clear(recoverer)
				if _, struck := s.strike(b, recoverer, f); struck {
					strikes++
				}
			}
		}
		t.Logf("%d strikes", strikes)
	})
}

// count counts the commands of a kind.
func count(commands []string, of func(command string) bool) (n int) {
	for _, command := range commands {
		if of(command) {
			n++
		}
	}
	return n
}

// policies are those that are tried.
func (s scenario) policies() []transfer.StallPolicy {
	if s.policy != 0 {
		return []transfer.StallPolicy{s.policy}
	}
	return []transfer.StallPolicy{transfer.Resume, transfer.RollBack}
}

// strike is one fault at one command of a kind; or none, where the point is -1.
type strike struct {
	point  int
	of     func(command string) bool
	what   bank.Fault
	die    bool
	policy transfer.StallPolicy
	struck *operationsSeen
}

// begin opens the accounts and prepares the scenario before the wire is laid.
func (s scenario) begin(b *bank.Bank) {
	b.T.Helper()
	b.OpenAccounts(s.balances)
	if s.prepare != nil {
		s.prepare(b)
	}
}

// strike runs the scenario on an empty bank, with a fault at one of its commands.
// It returns the commands, and whether there was a fault.
func (s scenario) strike(b *bank.Bank, recoverer *transfer.Coordinator, f strike) (commands []string, struck bool) {
	t := b.T
	t.Helper()
	s.begin(b)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	current := &operationsSeen{}
	w := &bank.Wire{
		At: f.point, Of: f.of, What: f.what, AlsoAt: s.also,
		Die: f.die, OnDeath: cancel, OnStrike: func() { f.struck.add(current) },
	}
	db := b.Through(w.Client())
	defer bank.End(db.Client()) // a test has hundreds of them
	opts := append(s.options(db), transfer.WithReturnAt(s.at), transfer.WithStallPolicy(f.policy), transfer.WithLogger(slog.New(current)))
	c := b.NewCoordinator(db, opts...)
	if s.warm != nil {
		w.SetIdle(true)
		s.warm(t, b, c)
		w.SetIdle(false)
	}
	rec, told := s.run(ctx, c)
	_ = c.Close(ctx) // which sends what the caller has not waited for; at a death it ends at once
	bank.Kill(c)
	commands = w.SentSoFar()
	story := fmt.Sprintf("%s at command %d of %v, dies=%v, told %v", f.what, f.point, commands, f.die, told)
	if !f.die || !w.HasStruck() {
		bank.RequireAnswer(t, s.calm, told, story)
	}
	if f.die {
		require.Empty(t, b.MustAudit().Findings, story)
	}
	b.ExpireAll()
	b.RecoverBy(recoverer)
	if !w.HasStruck() {
		require.Len(t, w.Faults(), len(s.also), story)
		s.audit(b, 0)
		return commands, false
	}
	require.True(t, f.what != bank.Held || w.Waits(), "nothing is held back: %s", story)
	more := afterlife(b, slices.Concat(b.Wires, []*bank.Wire{w}), recoverer, story)
	b.CancelWaiting()
	s.audit(b, more)
	if s.prepare == nil || rec.ID != "" {
		requireTruth(b, rec, told, story)
	}
	return commands, true
}

// audit audits the bank. The sum more was paid into each of its accounts.
func (s scenario) audit(b *bank.Bank, more int64) {
	b.T.Helper()
	m := bank.Balances(s.balances...)
	for id := range m {
		m[id] += more
	}
	b.CheckBooks(m)
	if s.check != nil {
		s.check(b)
	}
}

// afterlife lets what was held back arrive, and recovers what that has begun. It returns
// what it has paid into each account, which is nothing if nothing was held back.
func afterlife(b *bank.Bank, wires []*bank.Wire, recoverer *transfer.Coordinator, story string) int64 {
	b.T.Helper()
	if !slices.ContainsFunc(wires, (*bank.Wire).Waits) {
		return 0
	}
	arriveLate(b, wires, story)
	b.ExpireAll()
	b.RecoverBy(recoverer) // a late claim may have begun something
	return deposit
}

// arriveLate requires that what arrives when everything is over moves no money, though
// money has come in.
func arriveLate(b *bank.Bank, wires []*bank.Wire, story string) {
	b.T.Helper()
	payIn(b)
	before := b.Balances()
	for _, dead := range wires {
		dead.Deliver(b.T)
	}
	require.Equal(b.T, before, b.Balances(), "a late message moved money: %s", story)
}

// payIn pays money into every account.
func payIn(b *bank.Bank) {
	b.T.Helper()
	update := bson.D{{Key: "$inc", Value: bson.D{{Key: "balance", Value: deposit}}}}
	_, err := b.DB.Collection("accounts").UpdateMany(b.T.Context(), bson.D{}, update)
	require.NoError(b.T, err)
}

// requireTruth requires that the caller's outcome agrees with the final state.
func requireTruth(b *bank.Bank, rec transfer.Record, told error, story string) {
	b.T.Helper()
	if errors.Is(told, transfer.ErrInDoubt) {
		return
	}
	stored, err := b.Get(b.T.Context(), "t")
	if rec.ID == "" {
		// The context's own error alone means that nothing was stored.
		require.ErrorIs(b.T, err, transfer.ErrTransferNotFound, story)
		return
	}
	require.NoError(b.T, err, story)
	switch rec.State {
	case transfer.StatePreparing: // it was held, until it expired
		require.Equal(b.T, "expired", stored.Failure.Code, story)
	case transfer.StateCommitted, transfer.StateSuccess:
		require.Equal(b.T, transfer.StateSuccess, stored.State, story)
	default:
		require.NotErrorIs(b.T, told, transfer.ErrUnsettled, story)
		require.Equal(b.T, transfer.StateFail, stored.State, story)
	}
}

// operationsSeen collects operations from the log of a coordinator.
// It knows the operations of the current round, and after it is added up those of every
// struck round.
type operationsSeen struct {
	mu   sync.Mutex
	seen map[string]bool
	last map[string]bool
}

// Enabled implements slog.Handler.
func (o *operationsSeen) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs implements slog.Handler.
func (o *operationsSeen) WithAttrs([]slog.Attr) slog.Handler { return o }

// WithGroup implements slog.Handler.
func (o *operationsSeen) WithGroup(string) slog.Handler { return o }

// Handle implements slog.Handler.
func (o *operationsSeen) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "perform" {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = map[string]bool{}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "operation" || a.Key == "claiming" {
			o.last[a.Value.String()] = true
		}
		return true
	})
	return nil
}

func (o *operationsSeen) add(current *operationsSeen) {
	current.mu.Lock()
	defer current.mu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seen == nil {
		o.seen = map[string]bool{}
	}
	for operation := range current.last {
		o.seen[operation] = true
	}
}

// requireAll requires that every kind of operation but some, and every way to claim, has
// been struck.
func (o *operationsSeen) requireAll(t *testing.T, but ...protocol.Kind) {
	t.Helper()
	for kind := protocol.ReadFence; kind.String() != ""; kind++ {
		if !slices.Contains(but, kind) {
			require.True(t, o.seen[kind.String()], "no scenario has a fault at %s", kind)
		}
	}
	for way := protocol.Insert; way.String() != ""; way++ {
		require.True(t, o.seen[way.String()], "no scenario has a fault at a claim by %s", way)
	}
}
