package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/mongotest"
)

// The faults of processes.
const (
	faultKillWorker  = "worker killed"
	faultStopWorker  = "worker stopped"
	faultKillPrimary = "primary killed"
	faultStopPrimary = "primary stopped"
	faultStepDown    = "primary stepped down"
	failover         = "failover"
)

func memberFaults() []string { return []string{faultKillPrimary, faultStopPrimary, faultStepDown} }

// The failures that servers are configured to produce.
const (
	faultClosed     = "connection closed"
	faultConcern    = "concern failed"
	faultNotPrimary = "not primary"
)

const (
	// healLimit is how long a member may take to return, or to be replaced as the
	// primary.
	healLimit = 30 * time.Second
	// failPointTime is how long commands of one kind may fail.
	failPointTime        = 700 * time.Millisecond
	codeNotPrimary       = 10107
	codeWriteConcernFail = 64
)

// trouble hurts processes and servers.
// Each of its methods works until the context ends, and then heals what it has hurt.
type trouble struct {
	set      *mongotest.Set
	slots    []*slot
	journal  *journal
	tally    *tally
	findings *findings
	seed     uint64
}

func (t *trouble) dice(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(t.seed, stream)) }

// between waits for a time between two bounds, and reports whether the context is still
// alive.
func between(ctx context.Context, rng *rand.Rand, least, most time.Duration) bool {
	return pause(ctx, least+time.Duration(rng.Int64N(int64(most-least))))
}

// workers kills and stops workers.
func (t *trouble) workers(ctx context.Context) {
	rng := t.dice(10)
	for between(ctx, rng, 500*time.Millisecond, 3*time.Second) {
		s := t.slots[rng.IntN(len(t.slots))]
		if err := t.hurtWorker(ctx, rng, s); err != nil {
			t.findings.add("worker", "worker %d could not be hurt: %v", s.job.Slot, err)
			return
		}
	}
}

func (t *trouble) hurtWorker(ctx context.Context, rng *rand.Rand, s *slot) error {
	kill, stop := rng.IntN(2) == 0, rng.IntN(3) > 0
	if stop {
		if err := s.process.signal(signalStop); err != nil {
			return errors.Join(err, s.process.kill())
		}
		t.tally.add(faultStopWorker, "", 1)
		between(ctx, rng, time.Second, 4*time.Second)
	}
	if kill || !stop {
		t.tally.add(faultKillWorker, "", 1)
		return s.replace(t.journal)
	}
	return s.process.signal(signalResume)
}

// members kills, stops and steps down the primary, one way after the other.
func (t *trouble) members(ctx context.Context) {
	rng := t.dice(11)
	var deck []string
	for between(ctx, rng, 3*time.Second, 9*time.Second) {
		if len(deck) == 0 {
			deck = memberFaults()
			rng.Shuffle(len(deck), func(i, k int) { deck[i], deck[k] = deck[k], deck[i] })
		}
		if err := t.hurtPrimary(ctx, rng, deck[0]); err != nil {
			t.findings.add("set", "the set is not well: %s: %v", deck[0], err)
			return
		}
		deck = deck[1:]
	}
}

// hurtPrimary does one thing to the primary, waits until another member has taken over,
// and heals the old one.
func (t *trouble) hurtPrimary(ctx context.Context, rng *rand.Rand, fault string) error {
	healing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*healLimit)
	defer cancel()
	before, err := t.set.Primary(healing)
	if err != nil {
		return err
	}
	heal := func() error { return nil }
	switch fault {
	case faultKillPrimary:
		err = t.set.Kill(healing, before)
		heal = func() error { return t.set.Restart(healing, before) }
	case faultStopPrimary:
		err = t.set.Pause(before)
		heal = func() error { return t.set.Resume(before) }
	case faultStepDown:
		if t.set.StepDown(healing) != nil {
			// It is no longer the primary: a busy machine has elections of its own.
			return nil
		}
	}
	if err != nil {
		return err
	}
	t.tally.add(fault, "", 1)
	if t.replaced(healing, before) {
		t.tally.add(failover, "", 1)
	}
	between(ctx, rng, 100*time.Millisecond, 2*time.Second)
	return heal()
}

// replaced waits until another member is the primary.
// A member that steps down may be elected again.
func (t *trouble) replaced(ctx context.Context, before int) bool {
	ctx, cancel := context.WithTimeout(ctx, healLimit/3)
	defer cancel()
	for {
		now, err := t.set.Primary(ctx)
		if err != nil {
			return false
		}
		if now != before {
			return true
		}
		if !pause(ctx, 100*time.Millisecond) {
			return false
		}
	}
}

// failure is one way in which commands of one kind are made to fail.
type failure struct{ fault, command string }

// failures returns all ways to make commands fail.
func failures() []failure {
	var all []failure
	for _, command := range commands() {
		all = append(all, failure{faultClosed, command}, failure{faultNotPrimary, command})
	}
	for _, command := range []string{"insert", "update", "findAndModify"} {
		all = append(all, failure{faultConcern, command})
	}
	return all
}

// commands returns the commands that the library sends while it works.
func commands() []string {
	return []string{"insert", "update", "findAndModify", "find", "aggregate", "getMore", "hello"}
}

// data returns the failure as the failpoint wants it.
func (f failure) data() bson.D {
	data := bson.D{{Key: "failCommands", Value: bson.A{f.command}}, {Key: "appName", Value: workerName}}
	switch f.fault {
	case faultClosed:
		return append(data, bson.E{Key: "closeConnection", Value: true})
	case faultConcern:
		return append(data, bson.E{Key: "writeConcernError", Value: bson.D{
			{Key: "code", Value: codeWriteConcernFail}, {Key: "errmsg", Value: "as the test wants it"},
		}})
	}
	return append(data, bson.E{Key: "errorCode", Value: codeNotPrimary})
}

// commands makes commands fail on the primary, in the way that has struck least often so
// far.
func (t *trouble) commands(ctx context.Context) {
	rng := t.dice(12)
	all := failures()
	struck := map[failure]int{}
	for between(ctx, rng, 50*time.Millisecond, 300*time.Millisecond) {
		rng.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
		least := slices.MinFunc(all, func(a, b failure) int { return cmp.Compare(struck[a], struck[b]) })
		n, err := t.fail(ctx, least, 1+rng.IntN(10))
		if err == nil { // A primary that has just died takes its failpoints with it.
			t.tally.add(least.fault, least.command, n)
			struck[least] += n
		}
	}
}

// fail makes some commands fail, and returns how many did.
func (t *trouble) fail(ctx context.Context, f failure, times int) (int, error) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), healLimit/3)
	defer cancel()
	primary, err := t.set.Primary(limited)
	if err != nil {
		return 0, err
	}
	before, err := t.set.FailPoint(limited, primary, bson.D{{Key: "times", Value: times}}, f.data())
	if err != nil {
		return 0, err
	}
	pause(ctx, failPointTime)
	after, err := t.set.FailPoint(limited, primary, "off", nil)
	if err != nil {
		return 0, fmt.Errorf("turn a failpoint off: %w", err)
	}
	if after < before {
		return 0, errors.New("the server was started anew")
	}
	return int(after - before), nil
}
