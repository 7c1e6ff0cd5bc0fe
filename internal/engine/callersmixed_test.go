package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// served is a server whose calls all take as long as it is asked, until it hangs.
type served struct {
	engine  *Engine
	callers Callers
	hung    atomic.Int64 // until then
	wg      sync.WaitGroup
}

// call admits a caller and serves it. No patience is time without end.
func (s *served) call(patience, takes time.Duration) error {
	ctx := context.Background()
	if patience > 0 {
		limited, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		ctx = limited
	}
	leave, err := s.engine.Admit(ctx, &s.callers)
	if err != nil {
		return err
	}
	defer leave(true)
	hangs := time.Until(time.Unix(0, s.hung.Load()))
	if !sleep(ctx, s.engine.closing, takes+max(0, hangs)) {
		return ctx.Err()
	}
	return nil
}

// quick has a thousand callers a second, each with two seconds for a call, and returns
// how many were not served.
func (s *served) quick(d, takes time.Duration) (refused int64) {
	var failed atomic.Int64
	for end := time.Now().Add(d); time.Now().Before(end); sleep(context.Background(), s.engine.closing, time.Millisecond) {
		s.wg.Go(func() {
			if s.call(2*time.Second, takes) != nil {
				failed.Add(1)
			}
		})
	}
	return failed.Load()
}

func newServed(t *testing.T) *served {
	s := &served{engine: idle(t)}
	s.engine.now = time.Now
	return s
}

// Those who wait for something else, such as an account that is locked, don't keep out
// those who are served at once: neither before nor after the server hangs. A few of those
// may be refused.
func TestSlowCallersDontKeepOthersOut(t *testing.T) {
	for name, row := range map[string]struct{ patience, takes time.Duration }{
		"patient, quick ones of 2 ms":   {0, 2 * time.Millisecond},
		"patient, quick ones of 200 ms": {0, 200 * time.Millisecond},
		"impatient, quick ones of 2 ms": {3 * time.Second, 2 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServed(t)
				var over atomic.Bool
				for range 500 {
					s.wg.Go(func() {
						for !over.Load() {
							_ = s.call(row.patience, 4*time.Second)
						}
					})
				}
				require.Less(t, s.quick(20*time.Second, row.takes), int64(100))
				s.hung.Store(time.Now().Add(10 * time.Second).UnixNano())
				require.Greater(t, s.quick(10*time.Second, row.takes), int64(9000))
				s.quick(2*time.Second, row.takes)
				require.Less(t, s.quick(20*time.Second, row.takes), int64(100))
				over.Store(true)
				s.wg.Wait()
			})
		})
	}
}

// After an outage, in which a few callers waited long, a burst is served at once.
func TestBurstAfterAnOutage(t *testing.T) {
	for _, patience := range []time.Duration{30 * time.Second, 5 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s := newServed(t)
			for range 40 {
				s.wg.Go(func() { _ = s.call(0, 30*time.Second) })
			}
			s.wg.Wait()
			begun := time.Now()
			for range 1000 {
				s.wg.Go(func() {
					err := s.call(patience, time.Millisecond)
					if err != nil || time.Since(begun) > time.Second {
						t.Errorf("after %s: %v", time.Since(begun), err)
					}
				})
			}
			s.wg.Wait()
		})
	}
}
