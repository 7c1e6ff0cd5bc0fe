package overload

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mongotransfer/transfer/internal/mongotest"
)

// scene is one scenario as it is played.
type scene struct {
	Config
	report *Report
	// callers is the largest number of callers at once, for the bounds of memory and
	// goroutines.
	callers int
	ends    []func() error
}

// later adds something to do when the scenario is over.
// The last one added is done first.
func (s *scene) later(end func() error) { s.ends = append(s.ends, end) }

func (s *scene) end() error {
	var failed []error
	for _, end := range slices.Backward(s.ends) {
		failed = append(failed, end())
	}
	return errors.Join(failed...)
}

// server starts a server of the scenario's own and returns its connection string.
func (s *scene) server(ctx context.Context) (string, error) {
	server, err := mongotest.StartOwn(ctx)
	if err != nil {
		return "", err
	}
	s.later(server.Stop)
	return server.URI(), nil
}

// windows holds two rates of the same callers, each the mean of windows that took turns.
type windows struct{ before, during float64 }

// compare measures the rate of a crowd before something and during it, in turns.
func (s *scene) compare(ctx context.Context, c *crowd, window time.Duration, begin, end func(context.Context) error) (windows, error) {
	turns := s.number(2, 1)
	var w windows
	for range turns {
		pause(ctx, window/4)
		w.before += c.rate(ctx, window) / float64(turns)
		if err := begin(ctx); err != nil {
			return w, err
		}
		pause(ctx, window/4)
		w.during += c.rate(ctx, window) / float64(turns)
		if err := end(ctx); err != nil {
			return w, err
		}
	}
	return w, ctx.Err()
}
