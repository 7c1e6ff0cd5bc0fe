package protocol

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// mutant is a broken protocol: the right state machine whose operations and answers are altered on the way, as a version
// that has forgotten one rule would have it.
type mutant struct {
	name     string
	kind     Kind                                       // which operations are performed otherwise
	perform  func(*world, message) Answer               // what is done instead
	send     func(*world, message) message              // what is sent instead
	hear     func(*world, message, fate, Answer) Answer // what is answered instead
	tamper   func(*Execution)                           // what becomes of the execution after each answer
	anyRound bool                                       // answers that come late are believed
	retries  bool                                       // the driver sends prepares and fence-onlys again by itself
	oneOwner bool                                       // all executors share a nonce
	directed func(*testing.T, *mutant) error            // the interleaving, where chance would take too long
}

// mutants has at least one entry per rule.
func mutants() []*mutant {
	return slices.Concat(fenceMutants(), writeMutants(), answerMutants(), machineMutants())
}

// fenceMutants break what keeps late prepares out.
func fenceMutants() []*mutant {
	currentFence := func(w *world, m message) message {
		if m.op.Kind == Prepare {
			m.op.Fence = w.accounts[m.op.Participant].fence
		}
		return m
	}
	return []*mutant{
		{name: "settle keeps the fence", send: keepFence(Settle)},
		{name: "undo keeps the fence", send: keepFence(Undo)},
		{name: "fence-only does nothing", kind: FenceOnly, perform: func(w *world, m message) Answer {
			d := w.accounts[m.op.Participant]
			return matched(!d.gone && !d.markers[m.transfer])
		}},
		{name: "fence-only is done where the marker is", kind: FenceOnly, perform: func(w *world, m message) Answer {
			w.accounts[m.op.Participant].fence = m.token
			return matched(true)
		}},
		{name: "a fence-only repeats its token", directed: tokenComesBack, send: func(_ *world, m message) message {
			if m.op.Kind == FenceOnly {
				m.token = Fence(fmt.Sprintf("of executor %d", m.owner))
			}
			return m
		}},
		{name: "the fence is read when the prepare is sent", send: currentFence},
		{name: "prepare ignores the fence", kind: Prepare, perform: func(w *world, m message) Answer {
			return w.perform(currentFence(w, m))
		}},
		{name: "verify always matches", kind: Verify, directed: fenceAfterTakeover,
			perform: func(*world, message) Answer { return matched(true) }},
		{name: "the driver repeats prepares", retries: true, directed: driverRepeats},
	}
}

func keepFence(kind Kind) func(*world, message) message {
	return func(_ *world, m message) message {
		m.op.ReplaceFence = m.op.ReplaceFence && m.op.Kind != kind
		return m
	}
}

// writeMutants leave a condition out of a write.
func writeMutants() []*mutant {
	return []*mutant{
		{name: "prepare ignores the marker", kind: Prepare, perform: prepareDespite(func(f *Facts) { f.Marker = false })},
		{name: "prepare ignores the floor", kind: Prepare, perform: prepareDespite(func(f *Facts) { f.Funds = true })},
		{name: "prepare ignores a closed account", kind: Prepare, perform: prepareDespite(func(f *Facts) { f.Open = true })},
		{name: "settle needs no marker", kind: Settle, perform: clearAnyway},
		{name: "undo needs no marker", kind: Undo, perform: clearAnyway},
		{name: "decide ignores the epoch", kind: Decide, perform: func(w *world, m message) Answer {
			m.op.Epoch = w.transfers[m.transfer].epoch
			return w.perform(m)
		}},
		{name: "decide ignores the state", kind: Decide, perform: func(w *world, m message) Answer {
			r := &w.transfers[m.transfer]
			if r.epoch != m.op.Epoch {
				return matched(false)
			}
			r.state, r.refusal = m.op.To, m.op.Refusal
			return matched(true)
		}},
		{name: "a takeover keeps the epoch", kind: Claim, perform: func(w *world, m message) Answer {
			epoch := w.transfers[m.transfer].epoch
			answer := w.perform(m)
			if m.op.Claiming.takesOver() {
				w.transfers[m.transfer].epoch, answer.Transfer.Epoch = epoch, epoch
			}
			return answer
		}},
		{name: "all executors share a nonce", oneOwner: true},
	}
}

// prepareDespite is a prepare that leaves something out of its filter.
func prepareDespite(forget func(*Facts)) func(*world, message) Answer {
	return func(w *world, m message) Answer {
		d, facts := &w.accounts[m.op.Participant], w.facts(&w.version, m)
		facts.Free = true
		forget(&facts)
		if facts.Marker || facts.refusal() != 0 || facts.Fence != m.op.Fence {
			return matched(false)
		}
		w.mark(d, m)
		return matched(true)
	}
}

// clearAnyway is a settle or an undo that doesn't need the marker.
func clearAnyway(w *world, m message) Answer {
	w.unmark(&w.accounts[m.op.Participant], m)
	return matched(true)
}

// TestMutantsAreCaught promises that the searches have teeth: whoever breaks a rule of the protocol breaks an invariant, and is
// seen.
func TestMutantsAreCaught(t *testing.T) {
	caught := map[int]int{}
	for _, bend := range mutants() {
		start := time.Now()
		how, err := hunt(t, bend)
		var found *violation
		if !errors.As(err, &found) {
			t.Errorf("%s: it survives", bend.name)
			continue
		}
		caught[found.invariant]++
		t.Logf("%-50s %-60s %s, %s", bend.name, found, how, time.Since(start).Round(time.Millisecond))
	}
	t.Logf("mutants caught by invariant: %v", caught)
}

// hunt looks for a violation: along the directed interleaving if there is one, else in small searches, then at random.
func hunt(t *testing.T, bend *mutant) (how string, err error) {
	t.Helper()
	if bend.directed != nil {
		require.NoError(t, bend.directed(t, nil), "%s: the right protocol stands the interleaving", bend.name)
		return "directed", bend.directed(t, bend)
	}
	const seeds = 20_000
	for seed := range uint64(seeds) {
		if err := gambles(seed, bend, nil, nil); err != nil {
			return "at random", err
		}
	}
	for _, c := range scenes() {
		s := newSearch()
		if err := s.from(c.run(t, bend)); err != nil {
			return "in a search", err
		}
	}
	return "", nil
}
