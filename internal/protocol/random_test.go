package protocol

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// gamble plays one random run: two transfers of 60 between the same two accounts, with money for one of them, up to three
// executors each, which crash, stall and meet every fate, while accounts are closed and opened and money comes in.
type gamble struct {
	*run
	random *rand.Rand
	odds   float64 // of a fault at each operation
	guests []guest // executors that are still to join
}

type guest struct {
	transfer int
	start    Start
}

func newGamble(seed uint64, bend *mutant, met *coverage, trace *[]string) (*gamble, error) {
	g := &gamble{random: rand.New(rand.NewPCG(seed, 1))}
	amounts := []int64{60, 60}
	if g.random.IntN(4) == 0 {
		amounts[1] = -60 // the other way round
	}
	g.run = &run{w: newWorld([worldAccounts]int64{100, 10}, amounts...), faults: g.random.IntN(9), met: met, trace: trace}
	g.odds = []float64{0.03, 0.1, 0.3}[g.random.IntN(3)]
	g.w.history, g.w.bend = true, bend
	if g.random.IntN(4) == 0 {
		g.w.limit = 1
	}
	for t := range worldTransfers {
		first := Start{Claiming: Insert, Patient: g.random.IntN(2) == 0}
		if g.random.IntN(3) == 0 {
			first.Claiming = FromInitiated
			g.w.transfers[t] = record{found: true, state: Initiated}
		}
		for range g.random.IntN(worldExecutors) {
			g.guests = append(g.guests, guest{t, g.start(first)})
		}
		if err := g.join(t, first); err != nil {
			return g, err
		}
	}
	g.w.past = []version{g.w.version}
	for i := range g.w.accounts {
		g.w.accounts[i].fence = "start" // "" is what a stale read shows
	}
	return g, nil
}

// worldExecutors is the most executors that a transfer has in a random run.
const worldExecutors = 3

// start draws how a later executor comes by its transfer.
func (g *gamble) start(first Start) Start {
	switch g.random.IntN(7) {
	case 0:
		return first // the same, asked for again
	case 1:
		return Start{Claiming: TakeToCancel, RollBack: Cancelled}
	case 2:
		return Start{Claiming: CancelInitiated, RollBack: Cancelled}
	case 3, 4:
		return Start{Claiming: TakeOver, RollBack: Stalled}
	}
	return Start{Claiming: TakeOver}
}

// play moves until nothing is left to do, and now and then checks that a recovery would end it well.
func (g *gamble) play() error {
	const moves = 120
	for range moves {
		if err := g.move(); err != nil {
			return err
		}
		if g.random.IntN(20) == 0 {
			if err := g.w.recovers(); err != nil {
				return err
			}
		}
	}
	if err := g.calm(); err != nil {
		return err
	}
	return g.w.recovers()
}

func (g *gamble) move() error {
	switch n := g.random.IntN(100); {
	case n < 5 && len(g.guests) > 0:
		next := g.guests[0]
		g.guests = g.guests[1:]
		g.note("executor %d joins for transfer %d: %+v", len(g.executors)+1, next.transfer, next.start)
		return g.join(next.transfer, next.start)
	case n < 12 && len(g.w.flight) > 0:
		return g.take(move{kind: deliver, who: g.random.IntN(len(g.w.flight))})
	case n < 14 && len(g.late) > 0:
		return g.take(move{kind: answerLate, who: g.random.IntN(len(g.late))})
	case n < 16:
		kinds := []moveKind{closeAccount, reopen, reopen, deposit}
		return g.take(move{kind: kinds[g.random.IntN(len(kinds))], who: g.random.IntN(worldAccounts)})
	case n < 17:
		return g.take(move{kind: hurry, who: g.random.IntN(len(g.executors))})
	}
	who := g.random.IntN(len(g.executors))
	if len(g.executors[who].batch) == 0 {
		return nil
	}
	m := move{kind: perform, who: who, op: g.random.IntN(len(g.executors[who].batch)), fate: answered}
	if g.faults > 0 && g.random.Float64() < g.odds {
		fates := g.w.fates(g.executors[who].batch[m.op].Kind)
		m.fate, m.past = fates[g.random.IntN(len(fates))], g.random.IntN(len(g.w.past))
	}
	return g.take(m)
}

// calm lets some executors go on without faults: each ends within a bounded number of steps. The others have crashed.
func (g *gamble) calm() error {
	const patience = 100
	for who := range g.executors {
		if g.random.IntN(3) == 0 {
			continue
		}
		g.executors[who].own()
		if err := g.take(move{kind: hurry, who: who}); err != nil {
			return err
		}
		for step := 0; len(g.executors[who].batch) > 0; step++ {
			if step == patience {
				return violates(6, "executor %d goes round in circles", who+1)
			}
			if err := g.take(move{kind: perform, who: who, fate: answered}); err != nil {
				return err
			}
		}
	}
	return nil
}

// gambles plays the run of one seed.
func gambles(seed uint64, bend *mutant, met *coverage, trace *[]string) error {
	g, err := newGamble(seed, bend, met, trace)
	if err != nil {
		return err
	}
	return g.play()
}

// tellSeed plays a seed again and tells what happens in it.
func tellSeed(seed uint64, bend *mutant) string {
	trace := []string{}
	if err := gambles(seed, bend, nil, &trace); err != nil {
		trace = append(trace, err.Error())
	}
	return strings.Join(trace, "\n")
}

// TestRandomRunsKeepTheInvariants promises that two transfers that compete for the same money keep the invariants, whatever
// their executors meet, and that each kind of operation has met each fate: a new write can't be forgotten here.
func TestRandomRunsKeepTheInvariants(t *testing.T) {
	seeds := uint64(60_000)
	if testing.Short() {
		seeds = 12_000
	}
	var met coverage
	for seed := range seeds {
		if err := gambles(seed, nil, &met, nil); err != nil {
			require.Fail(t, err.Error(), "seed %d\n%s", seed, tellSeed(seed, nil))
		}
	}
	w, total := newWorld([worldAccounts]int64{}), 0
	for kind := ReadFence; kind <= Finish; kind++ {
		fates := w.fates(kind)
		require.NotEmpty(t, fates, "%s has no fates", kindName(kind))
		for _, f := range fates {
			require.Positive(t, met[kind][f], "%s has never been %s", kindName(kind), f)
			total += met[kind][f]
		}
	}
	t.Logf("%d runs, %d operations", seeds, total)
}
