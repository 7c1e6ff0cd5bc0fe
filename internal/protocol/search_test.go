package protocol

import (
	"hash/maphash"
	"strings"
)

// search walks depth first through every interleaving of a run, with every fate that the budget of faults allows. Runs that
// have come to the same are walked on from once.
type search struct {
	key       keyer
	seen      map[uint64]struct{}
	recovered map[uint64]struct{} // worlds whose recovery has been checked
	ends      map[State]int       // in which state of the transfer nobody wanted anything more
	path      []move
	repeat    bool // messages may arrive twice
}

func newSearch() *search {
	return &search{
		key: keyer{seed: maphash.MakeSeed()}, seen: map[uint64]struct{}{}, recovered: map[uint64]struct{}{},
		ends: map[State]int{},
	}
}

// from visits a run and all that can follow it. The path leads to the violation, if there is one.
func (s *search) from(r *run) error {
	hash := s.key.run(r)
	if _, seen := s.seen[hash]; seen {
		return nil
	}
	s.seen[hash] = struct{}{}
	hash = s.key.world(&r.w)
	if _, seen := s.recovered[hash]; !seen {
		s.recovered[hash] = struct{}{}
		if err := r.w.recovers(); err != nil {
			return err
		}
	}
	moves := s.moves(r)
	if len(moves) == 0 {
		s.ends[r.w.transfers[0].state]++
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

// moves returns all that can happen next. An executor that is never chosen again has crashed.
func (s *search) moves(r *run) []move {
	var moves []move
	for i := range r.w.flight {
		moves = append(moves, move{kind: deliver, who: i})
	}
	for i := range r.executors {
		for op := range r.executors[i].batch {
			kind := r.executors[i].batch[op].Kind
			for _, f := range r.w.fates(kind) {
				if f == answered || r.faults > 0 && s.tries(kind, f) {
					moves = append(moves, move{kind: perform, who: i, op: op, fate: f})
				}
			}
		}
	}
	return moves
}

// tries leaves out the fates that differ from others in nothing that matters here: what is lost is delayed for ever, and
// what the server refuses ends the execution, as a crash does, but for claims, where the caller is told.
func (s *search) tries(kind Kind, f fate) bool {
	switch f {
	case answered, answerLost, delayed, staleNotMatched, shortCount, staleRead:
		return true
	case repeated:
		return s.repeat || kind == Prepare || kind == FenceOnly
	case refusedByServer:
		return kind == Claim
	case lost, unheard, notSent, answeredLate:
	}
	return false
}

// explain repeats the path from the start and tells it.
func (s *search) explain(r *run) string {
	trace := []string{}
	r = r.fork()
	r.trace = &trace
	for _, m := range s.path {
		if err := r.take(m); err != nil {
			trace = append(trace, err.Error())
		}
	}
	return "\n" + strings.Join(trace, "\n")
}
