package overload

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// flood is a number of callers that all come at once, each with one call.
type flood struct {
	tally
	begun time.Time
	leave context.CancelFunc
	all   sync.WaitGroup
}

// rush starts a flood.
// Each caller waits as long as patience says.
func rush(ctx context.Context, callers int, patience time.Duration, call func(context.Context) error) *flood {
	f := &flood{}
	limited, leave := context.WithTimeout(ctx, patience)
	f.leave = leave
	gate := make(chan struct{})
	for range callers {
		f.all.Go(func() {
			<-gate
			begun := time.Now()
			f.take(call(limited), time.Since(begun))
		})
	}
	f.begun = time.Now()
	close(gate)
	return f
}

// answered waits until all callers have their answers.
func (f *flood) answered() {
	f.all.Wait()
	f.leave()
}

// rate returns how many transfers were done in a second, from the beginning to the last
// of them.
func (f *flood) rate() float64 {
	if f.done.Load() == 0 {
		return 0
	}
	return float64(f.done.Load()) / time.Unix(0, f.last.Load()).Sub(f.begun).Seconds()
}

// forEach calls do n times, many at once, and returns the first error.
func forEach(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(n, steadyCallers) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && ctx.Err() == nil; i = next.Add(1) - 1 {
				if err := do(ctx, int(i)); err != nil {
					cancel(err)
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}
