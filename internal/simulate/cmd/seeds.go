package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongotransfer/transfer/internal/simulate"
)

// parseSeeds reads "17" or "1000-2000".
// The second number is the one after the last seed.
func parseSeeds(text string) (first, behind uint64, err error) {
	from, to, isRange := strings.Cut(text, "-")
	first, err = strconv.ParseUint(from, 10, 64)
	behind = first + 1
	if err == nil && isRange {
		behind, err = strconv.ParseUint(to, 10, 64)
	}
	if err != nil || behind <= first {
		return 0, 0, fmt.Errorf("-seeds %q: a number, or two with a dash between them, the larger one last", text)
	}
	return first, behind, nil
}

// tally sums up what some runs have done.
type tally struct {
	runs, transfers int
	met             simulate.Coverage
	failure         *simulate.Failure
}

func (t *tally) add(other *tally) {
	t.runs += other.runs
	t.transfers += other.transfers
	t.met.Add(&other.met)
	if other.failure != nil && (t.failure == nil || other.failure.Seed < t.failure.Seed) {
		t.failure = other.failure
	}
}

// plays plays seeds on several cores, until one fails, and reports whether none did.
func (r report) plays(first, behind uint64, limit time.Duration, cores int) bool {
	if behind == first+1 && limit == 0 {
		r.print("%s\n", simulate.Tell(first))
	}
	if limit > 0 {
		behind = math.MaxUint64
	}
	var (
		next    atomic.Uint64
		stop    atomic.Bool
		lock    sync.Mutex
		workers sync.WaitGroup
		all     tally
	)
	next.Store(first)
	start := r.now()
	for range cores {
		workers.Go(func() {
			var own tally
			for own.failure == nil && !stop.Load() {
				seed := next.Add(1) - 1
				if seed >= behind || limit > 0 && r.now().Sub(start) > limit {
					break
				}
				own.play(seed)
			}
			lock.Lock()
			defer lock.Unlock()
			all.add(&own)
			stop.Store(stop.Load() || own.failure != nil)
		})
	}
	workers.Wait()
	r.tell(&all, first, r.now().Sub(start), cores)
	return all.failure == nil
}

func (t *tally) play(seed uint64) {
	transfers, failure := simulate.Play(seed, &t.met)
	t.runs++
	t.transfers += transfers
	t.failure = failure
}
