package protocol

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// scene is where a search starts: one transfer of 60 from the first account to the second one.
type scene struct {
	name    string
	faults  int
	repeat  bool
	starts  []Start
	prepare func(*world)
}

func (c scene) run(t testing.TB, bend *mutant) *run {
	r := &run{w: newWorld([worldAccounts]int64{100, 0}, 60), faults: c.faults}
	r.w.bend = bend
	if c.prepare != nil {
		c.prepare(&r.w)
	}
	if c.starts[0].Claiming == FromInitiated {
		r.w.transfers[0] = record{found: true, state: Initiated}
	}
	r.w.past = []version{r.w.version}
	for i := range r.w.accounts {
		r.w.accounts[i].fence = "start" // "" is what a stale read shows
	}
	for _, start := range c.starts {
		require.NoError(t, r.join(0, start))
	}
	return r
}

func (c scene) String() string {
	return fmt.Sprintf("%s, %d executors, %d faults", c.name, len(c.starts), c.faults)
}

// scenes are where the searches start. One fault more multiplies the states by about ten, one executor more by about
// thirty.
func scenes() []scene {
	insert := Start{Claiming: Insert}
	worker := Start{Claiming: FromInitiated}
	resume := Start{Claiming: TakeOver}
	rollBack := Start{Claiming: TakeOver, RollBack: Stalled}
	cancel := Start{Claiming: TakeToCancel, RollBack: Cancelled}
	withdraw := Start{Claiming: CancelInitiated, RollBack: Cancelled}
	poor := func(w *world) { w.accounts[0].balance, w.given[0] = 50, 50 }
	shut := func(w *world) { w.accounts[1].closed = true }
	missing := func(w *world) { w.accounts[1].gone = true }
	scenes := []scene{}
	for _, c := range []struct {
		name   string
		starts []Start
	}{
		{"resumed", []Start{insert, resume}},
		{"rolled back", []Start{insert, rollBack}},
		{"cancelled", []Start{insert, cancel}},
		{"a worker's, cancelled", []Start{worker, cancel}},
		{"a worker's, withdrawn", []Start{worker, withdraw}},
		{"a worker's, resumed", []Start{worker, resume}},
		{"two workers'", []Start{worker, worker}},
		{"asked for twice", []Start{insert, insert}},
	} {
		scenes = append(scenes,
			scene{name: c.name, starts: c.starts, faults: 2, repeat: true},
			scene{name: c.name + ", too little money", starts: c.starts, faults: 2, prepare: poor},
			scene{name: c.name + ", closed account", starts: c.starts, faults: 2, prepare: shut},
			scene{name: c.name + ", missing account", starts: c.starts, faults: 2, prepare: missing})
	}
	return append(scenes,
		scene{name: "resumed", starts: []Start{insert, resume}, faults: 3},
		scene{name: "rolled back", starts: []Start{insert, rollBack}, faults: 3},
		scene{name: "resumed and rolled back", starts: []Start{insert, resume, rollBack}, faults: 1},
		scene{name: "a worker's, withdrawn and cancelled", starts: []Start{worker, withdraw, cancel}, faults: 1},
		scene{name: "a worker's, withdrawn and resumed", starts: []Start{worker, withdraw, resume}, faults: 1})
}

// TestNoInterleavingBreaksTheInvariants promises that, whatever order the messages of a few executors arrive in, and
// whichever of them are lost, late, repeated or answered wrongly, the invariants hold at each step, and a recovery ends it
// well.
func TestNoInterleavingBreaksTheInvariants(t *testing.T) {
	states, ends := 0, map[State]int{}
	for _, c := range scenes() {
		if testing.Short() {
			c.faults--
		}
		s := newSearch()
		s.repeat = c.repeat
		start := time.Now()
		r := c.run(t, nil)
		if err := s.from(r); err != nil {
			require.Fail(t, err.Error(), "%s\n%s", c, s.explain(r))
		}
		states += len(s.seen)
		for state, count := range s.ends {
			ends[state] += count
		}
		t.Logf("%-60s %9d states, %6d worlds recovered, %s", c, len(s.seen), len(s.recovered), time.Since(start))
	}
	require.Positive(t, ends[Success])
	require.Positive(t, ends[Fail])
	t.Logf("%d states in all; how they end: %v", states, ends)
}
