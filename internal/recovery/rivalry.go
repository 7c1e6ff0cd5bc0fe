package recovery

import (
	"math/rand/v2"
	"sync"
)

const (
	// rivalryMemory is about how many of the latest claims show how often others were
	// first.
	rivalryMemory = 64
	// leastTried is how many of the transfers that it finds a worker always tries.
	// Where there are few, to leave one would cost more than to lose it.
	leastTried = 16
	// mostLeft bounds the part of the transfers that is left to others.
	mostLeft = 0.9
)

// rivalry is how often other workers are first.
//
//  1. Four workers find the same thousand transfers, oldest first, and claim all of them.
//  2. Each transfer is done once, and three of four claims were in vain.
//
// So a worker leaves as great a part of what it finds to others, at random, as they have
// been first lately.
// It finds what nobody has begun again in its next scan.
// Its zero value is that of a worker who is alone.
type rivalry struct {
	mu   sync.Mutex
	lost float64 // the part of the latest claims for which others were first
}

// ended records whether another worker was first.
func (r *rivalry) ended(overtaken bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lost := 0.0
	if overtaken {
		lost = 1
	}
	r.lost += (lost - r.lost) / rivalryMemory
}

// leaves reports whether to leave a transfer to others, the n-th one that was found.
func (r *rivalry) leaves(n int) bool {
	if n <= leastTried {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return rand.Float64() < min(r.lost, mostLeft)
}
