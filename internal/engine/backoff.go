package engine

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	firstPause   = 5 * time.Millisecond
	longestPause = time.Second
	// freeRounds is how many rounds an execution may take at full speed.
	// An undisturbed execution takes five.
	// One that needs more than freeRounds contends with others.
	freeRounds = 16
)

// backoff spaces out the rounds of an execution that makes no progress.
type backoff struct {
	rounds  int
	repeats int
}

// next returns how long to wait before the next round, at most limit if limit is
// positive.
// There is no wait after a round that brought progress without contention, however many
// rounds there were: a fence that was just read loses value with each moment.
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

// Pause waits before the n-th repeat, counted from 1.
// It reports false if ctx ended first.
func Pause(ctx context.Context, n int) bool { return sleep(ctx, nil, pauseBefore(n)) }

// Pause waits as the function does.
// It reports false if ctx ended first, or Close was called.
func (e *Engine) Pause(ctx context.Context, n int) bool {
	return sleep(ctx, e.closing, pauseBefore(n))
}

// pauseBefore returns the pause before the n-th repeat: 5 ms, doubled each time up to one
// second, plus or minus half of that.
// The random part keeps those who wait for the same thing from returning together.
func pauseBefore(n int) time.Duration {
	wait := longestPause
	if n < 9 {
		wait = min(longestPause, firstPause<<(n-1))
	}
	return wait/2 + rand.N(wait)
}

// sleep waits for a while. It reports false if ctx ended or the channel was closed first.
func sleep(ctx context.Context, closing <-chan struct{}, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-closing:
	}
	return false
}
