package overload

import (
	"context"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"
)

// sampleInterval is the time between two samples of memory and goroutines.
const sampleInterval = 50 * time.Millisecond

// usage is the most that the process has used.
type usage struct {
	// heap counts the bytes of objects, including garbage that is not yet removed.
	heap       int64
	goroutines int64
	stop       func()
}

// watchUsage samples memory and goroutines until stop is called.
// Then its figures can be read.
func watchUsage(ctx context.Context) *usage {
	ctx, cancel := context.WithCancel(ctx)
	u := &usage{}
	var looking sync.WaitGroup
	looking.Go(func() {
		for pause(ctx, sampleInterval) {
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

// pause waits, and returns false if ctx ends first.
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

// eventually calls ask again and again until it returns true or the limit is over.
// It returns how long that took, and the last result.
func eventually(ctx context.Context, limit time.Duration, ask func() (bool, error)) (took time.Duration, yes bool, err error) {
	begun := time.Now()
	for {
		yes, err = ask()
		took = time.Since(begun)
		if yes || err != nil || took > limit || !pause(ctx, sampleInterval) {
			return took, yes, err
		}
	}
}
