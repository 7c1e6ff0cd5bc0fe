package transferhttp

import (
	"math"
	"time"
)

const (
	// A bucket reaches a quarter of an octave beyond the one before, from 100 µs to some
	// 100 s.
	bucketsPerOctave = 4
	leastDuration    = 100 * time.Microsecond
	buckets          = 20*bucketsPerOctave + 1
)

// histogram counts durations by size.
// The values that it reports are up to a fifth too high.
type histogram struct {
	counts [buckets]uint32
	n      uint64
	most   time.Duration
}

// add counts a duration.
func (h *histogram) add(d time.Duration) {
	h.n++
	h.most = max(h.most, d)
	if d <= leastDuration {
		h.counts[0]++
		return
	}
	i := int(math.Ceil(bucketsPerOctave * math.Log2(float64(d)/float64(leastDuration))))
	h.counts[min(i, buckets-1)]++
}

// addAll counts what another one has counted.
func (h *histogram) addAll(other *histogram) {
	h.n += other.n
	h.most = max(h.most, other.most)
	for i, n := range other.counts {
		h.counts[i] += n
	}
}

// quantile returns a duration that a share of all does not exceed, and 0 where there are
// none.
func (h *histogram) quantile(share float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	wanted, seen := uint64(math.Ceil(share*float64(h.n))), uint64(0)
	for i, n := range h.counts {
		if seen += uint64(n); seen >= wanted {
			if i == buckets-1 { // it has no end
				return h.most
			}
			return min(h.most, time.Duration(float64(leastDuration)*math.Exp2(float64(i)/bucketsPerOctave)))
		}
	}
	return 0
}
