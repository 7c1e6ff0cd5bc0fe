package engine

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	firstPause = 5 * time.Millisecond
	longest    = time.Second
	// freeRounds is how many rounds an execution may take at full speed. A quiet one
	// takes five; one that goes on after that contends with others.
	freeRounds = 16
)

// backoff spaces out the rounds of an execution that makes no progress.
type backoff struct {
	rounds  int
	repeats int
}

// next returns how long to wait before the next round, but not beyond limit where that is
// positive. After a round that has brought something new and in which nothing was lost to
// others there is no wait, however many rounds it takes: a fence that was just looked at
// is worth less each moment.
func (b *backoff) next(progress, contended bool, limit time.Duration) time.Duration {
	b.rounds++
	if progress && b.rounds <= freeRounds {
		b.repeats = 0
	}
	if progress && (b.rounds <= freeRounds || !contended) {
		return 0
	}
	b.repeats++
	wait := pauseBefore(b.repeats)
	if limit > 0 {
		wait = min(wait, limit)
	}
	return wait
}

// Pause waits before the n-th repeat, from 1 on. It reports false if ctx ended.
func Pause(ctx context.Context, n int) bool { return sleep(ctx, pauseBefore(n)) }

// pauseBefore returns 5 ms at first, doubled each time up to a second, give or take a
// half, so that those who wait for the same thing don't come back together.
func pauseBefore(n int) time.Duration {
	wait := longest
	if n < 9 {
		wait = min(longest, firstPause<<(n-1))
	}
	return wait/2 + rand.N(wait)
}

func sleep(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
