package simulate

import (
	"errors"
	"strings"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// Explored is what a search has come through.
type Explored struct {
	// States is the number of runs that differ in something that matters.
	States int
	// Recovered is the number of worlds from which a recovery was tried out.
	Recovered int
	// Ends counts the runs in which nobody wanted anything more, by the state of the
	// first transfer.
	Ends map[protocol.State]int
	// CutOff says that the search was stopped before it had seen everything.
	CutOff bool
}

// errStopped is the reason why a search was cut off.
var errStopped = errors.New("stopped")

// search walks depth first through every interleaving of a run, with every fate that the
// budget of faults allows.
// Runs that have come to the same state are continued only once.
type search struct {
	Explored
	key       keyer
	seen      map[uint64]struct{}
	recovered map[uint64]struct{} // worlds whose recovery has been checked
	path      []move
	repeat    bool // messages may arrive twice
	coalesce  bool // operations of the two transfers may travel as one update
	closing   bool // an account may be closed
	freezing  bool // an account may be frozen
	longer    bool // holds may be extended
	stop      func() bool
}

// Explore walks through all that can happen in a scene, until stop reports that it is
// enough.
// It also returns how an invariant was broken, if one was.
func Explore(scene Scene, stop func() bool) (Explored, *Failure) {
	s := &search{
		Explored:  Explored{Ends: map[protocol.State]int{}},
		key:       newKeyer(),
		seen:      map[uint64]struct{}{},
		recovered: map[uint64]struct{}{},
		repeat:    scene.repeat,
		coalesce:  scene.coalesce,
		closing:   scene.closing,
		freezing:  scene.freezing,
		longer:    scene.longer,
		stop:      stop,
	}
	r := scene.run()
	err := r.joinAll()
	if err == nil {
		err = s.from(r)
	}
	s.States, s.Recovered = len(s.seen), len(s.recovered)
	switch {
	case errors.Is(err, errStopped):
		s.CutOff = true
	case err != nil:
		return s.Explored, &Failure{Invariant: broken(err), What: what(err), Story: s.explain(scene)}
	}
	return s.Explored, nil
}

// from visits a run and all that can follow it.
// When it fails, the path leads to the violation.
func (s *search) from(r *run) error {
	hash, world := s.key.keys(r)
	if _, seen := s.seen[hash]; seen {
		return nil
	}
	if len(s.seen)%1024 == 1023 && s.stop() {
		return errStopped
	}
	s.seen[hash] = struct{}{}
	if _, seen := s.recovered[world]; !seen {
		s.recovered[world] = struct{}{}
		for i, policy := range policies() {
			if err := r.recovers(policy); err != nil {
				s.path = append(s.path, move{kind: recovery, who: i})
				return err
			}
		}
	}
	moves := s.moves(r)
	if len(moves) == 0 {
		s.Ends[r.w.Transfers[0].State]++
	}
	for _, m := range moves {
		s.path = append(s.path, m)
		next := r.fork()
		if err := next.take(m); err != nil {
			return err
		}
		if err := s.from(next); err != nil {
			return err
		}
		s.path = s.path[:len(s.path)-1]
	}
	return nil
}

// moves returns all that can happen next.
// An executor that is never chosen again has crashed.
// The appearance of a missing account counts as a fault.
func (s *search) moves(r *run) []move {
	var moves []move
	for i := range r.w.flight {
		moves = append(moves, r.delivery(i))
	}
	moves = append(moves, happenings(r)...)
	moves = append(moves, s.disturbances(r)...)
	for who := range r.executors {
		for _, op := range r.executors[who].batch {
			for _, f := range fates(op.Kind) {
				if f == answered || r.faults > 0 && s.tries(op.Kind, f) {
					moves = append(moves, move{kind: perform, who: who, op: op.Kind, at: op.Participant, fate: f})
				}
			}
		}
	}
	if s.coalesce {
		moves = append(moves, s.merged(r)...)
	}
	return moves
}

// lastExtended is the epoch from which on a search extends no hold any more, so that it
// ends.
const lastExtended = 4

// disturbances returns what can happen to bob's account, and to holds.
func (s *search) disturbances(r *run) []move {
	var moves []move
	bob := &r.w.Accounts[1]
	if s.closing && !bob.Missing && !bob.Closed && !bob.marked() {
		moves = append(moves, move{kind: closeAccount, who: 1})
	}
	if s.freezing && !bob.Missing && !bob.Frozen {
		moves = append(moves, move{kind: freeze, who: 1})
	}
	for t := range r.w.Holds {
		if s.longer && r.w.heldNow(t) && r.w.Transfers[t].Epoch < lastExtended {
			moves = append(moves, move{kind: extend, who: t})
		}
	}
	return moves
}

// happenings returns what can happen beside the executors and their messages.
func happenings(r *run) []move {
	var moves []move
	for t, hold := range r.w.Holds {
		if hold && !r.w.Expired[t] {
			moves = append(moves, move{kind: elapse, who: t})
		}
	}
	for i := range r.w.Accounts {
		if effect, is := r.w.effectOn(i); is && effect.MayBeGone && !r.w.Accounts[i].Missing {
			moves = append(moves, move{kind: purge, who: i})
		}
	}
	for i := range sceneAccounts {
		if r.w.Accounts[i].Missing && !r.w.Accounts[i].Purged && r.faults > 0 {
			moves = append(moves, move{kind: create, who: i})
		}
	}
	return moves
}

// merged returns the moves in which two operations travel as one update.
func (s *search) merged(r *run) []move {
	var wanted []asked
	for who := range r.executors {
		for _, op := range r.executors[who].batch {
			wanted = append(wanted, asked{who: who, op: op.Kind, at: op.Participant})
		}
	}
	var moves []move
	for i, second := range wanted {
		for _, first := range wanted[:i] {
			pair := []Message{r.message(first), r.message(second)}
			if !r.w.Merges(pair[0], pair[1]) {
				continue
			}
			for _, f := range mixtureOf(pair).fates() {
				if f == answered || r.faults > 0 && s.tries(first.op, f) {
					moves = append(moves, move{
						kind: perform, who: first.who, op: first.op, at: first.at, fate: f, with: []asked{second},
					})
				}
			}
		}
	}
	return moves
}

// tries reports whether a search tries a fate of a kind of operation.
// It leaves some fates to random runs.
// A lost message is like one that is delayed forever.
// A refusal by the server ends the execution, as a crash does, except for claims, where
// the caller hears of it.
// Answers that never come or come too late, messages that can't be sent, remembered
// fences and failovers would multiply the states.
func (s *search) tries(kind protocol.Kind, f Fate) bool {
	switch f {
	case answered, answerLost, delayed, staleNotMatched, shortCount, staleRead, split:
		return true
	case repeated:
		return s.repeat || kind == protocol.Prepare || kind == protocol.FenceOnly
	case refusedByServer:
		return kind == protocol.Claim
	case readBack:
		return kind == protocol.Verify // else it concludes what a look concludes
	case lost, unheard, notSent, answeredLate, cached, unreplicated:
	}
	return false
}

// explain makes the moves of the path again and returns their story.
func (s *search) explain(scene Scene) string {
	r := scene.run()
	told := &story{}
	r.tellTo(told)
	err := r.joinAll()
	for _, m := range s.path {
		err = errors.Join(err, r.take(m))
	}
	r.note("%v", err)
	return strings.Join(told.lines, "\n")
}
