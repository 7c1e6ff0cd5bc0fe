package overload

import (
	"context"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"
)

// glance is how often memory and goroutines are looked at.
const glance = 50 * time.Millisecond

// usage is what a process has used at its highest.
type usage struct {
	heap       int64 // bytes of objects, those included that are no longer needed and not yet removed
	goroutines int64
	stop       func()
}

// watchUsage looks at memory and goroutines until it is stopped; then its figures can be
// read.
func watchUsage(ctx context.Context) *usage {
	ctx, cancel := context.WithCancel(ctx)
	u := &usage{}
	var looking sync.WaitGroup
	looking.Go(func() {
		for pause(ctx, glance) {
			u.heap, u.goroutines = max(u.heap, heapInUse()), max(u.goroutines, int64(runtime.NumGoroutine()))
		}
	})
	u.stop = func() { cancel(); looking.Wait() }
	return u
}

func heapInUse() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// pause reports false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// eventually asks again and again until the answer is yes, for so long. It returns how
// long that took, and what the last answer was.
func eventually(ctx context.Context, limit time.Duration, ask func() (bool, error)) (took time.Duration, yes bool, err error) {
	begun := time.Now()
	for {
		yes, err = ask()
		took = time.Since(begun)
		if yes || err != nil || took > limit || !pause(ctx, glance) {
			return took, yes, err
		}
	}
}
