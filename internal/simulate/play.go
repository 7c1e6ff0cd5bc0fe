package simulate

import (
	"fmt"
	"slices"
	"strings"
)

// Failure is a run that broke an invariant of the protocol.
type Failure struct {
	// Seed is the seed of the run.
	Seed uint64
	// Invariant is the invariant's number in the protocol's list.
	Invariant int
	// What says what is wrong.
	What string
	// Story is the shortest run that was found to break the same invariant, line by line.
	Story string
}

// String names the seed and the invariant.
func (f *Failure) String() string {
	return fmt.Sprintf("seed %d breaks invariant %d: %s", f.Seed, f.Invariant, f.What)
}

// Play plays the run that a seed stands for.
// It returns the number of transfers in the run, and how the run broke an invariant, if
// it did.
// It counts into met, unless that is nil.
func Play(seed uint64, met *Coverage) (transfers int, failure *Failure) {
	g := stage(seed)
	g.met = met
	err := g.play()
	for _, legs := range g.w.Plans {
		if legs != nil {
			transfers++
		}
	}
	if err == nil {
		return transfers, nil
	}
	fails := func(moves []move) bool { return broken(replay(seed, moves, nil)) == broken(err) }
	moves := shorten(separate(shorten(g.made, fails), fails), fails)
	told := &story{}
	err = replay(seed, moves, told)
	return transfers, &Failure{Seed: seed, Invariant: broken(err), What: what(err), Story: strings.Join(told.lines, "\n")}
}

// Tell plays the run that a seed stands for, and returns all that happens in it as a
// story.
func Tell(seed uint64) string {
	g, told := stage(seed), &story{}
	g.tellTo(told)
	if err := g.play(); err != nil {
		g.note("%v", err)
	}
	return strings.Join(told.lines, "\n")
}

// replay makes moves from the beginning of a seed's run.
func replay(seed uint64, moves []move, told *story) error {
	g := stage(seed)
	g.faults = len(moves)
	g.tellTo(told)
	for _, m := range moves {
		if err := g.take(m); err != nil {
			return err
		}
	}
	return nil
}

// shorten removes moves without which the run still fails: halves at first, then smaller
// and smaller parts, then single moves.
func shorten(moves []move, fails func([]move) bool) []move {
	for size := len(moves) / 2; size > 0; {
		shorter := false
		for from := len(moves) - size; from >= 0; from = min(from, len(moves)) - size {
			candidate := slices.Delete(slices.Clone(moves), from, from+size)
			if fails(candidate) {
				moves, shorter = candidate, true
			}
		}
		if size > 1 || !shorter {
			size /= 2
		}
	}
	return moves
}

// separate removes from merged updates the members without which the run still fails.
func separate(moves []move, fails func([]move) bool) []move {
	for i := range moves {
		for j := len(moves[i].with) - 1; j >= 0; j-- {
			candidate := slices.Clone(moves)
			m := &candidate[i]
			m.with = slices.Delete(slices.Clone(m.with), j, j+1)
			alone := m.kind == perform && len(m.with) == 0
			if (!alone || canMeet(m.op, m.fate)) && fails(candidate) {
				moves = candidate
			}
		}
	}
	return moves
}
