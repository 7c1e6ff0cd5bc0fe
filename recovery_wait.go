package transfer

import (
	"context"
	"slices"
	"time"

	"github.com/mongotransfer/transfer/internal/wire"
)

const (
	// notedMost is how many transfers a Recover waits for at once. Their IDs are all that
	// it keeps in memory: some megabytes.
	notedMost = 10_000
	// notedPage is how many of them it asks the server for at once.
	notedPage = 1000
	// longestLook bounds the pause between two looks at them. It is a quarter of the stall
	// threshold where that is shorter, and never less than shortestLook.
	longestLook  = time.Second
	shortestLook = 20 * time.Millisecond
)

// RecoverOption changes what Recover does.
type RecoverOption func(*recovering)

type recovering struct{ untilFinished bool }

// UntilFinished makes Recover wait for what is too young to have stalled, and for what
// others are at: it takes note of every transfer that is unfinished now, and returns when
// each of them is final. What another process finishes meanwhile is left to it; what
// nobody finishes is taken over as soon as it has stalled. So after a crash one call, of
// about a stall threshold, leaves nothing behind that was there at its start.
//
// It waits neither for a transfer in StateInitiated, nor for a hold that has not expired,
// nor for one that can't be finished, which is counted as Stuck or is listed by
// [Query].Stuck. When ctx ends first, the error is that of ctx, and the report tells what
// was done by then; give it a deadline that is longer than the stall threshold.
func UntilFinished() RecoverOption { return func(r *recovering) { r.untilFinished = true } }

// recoveringBy applies the options.
func recoveringBy(opts []RecoverOption) (r recovering, err error) {
	for _, opt := range opts {
		if opt == nil {
			return r, invalid("a nil RecoverOption")
		}
		opt(&r)
	}
	return r, nil
}

// untilFinished takes note of what is unfinished, and sweeps until all of that is final or
// can't be finished.
//
// What is claimed after the start is not waited for: a busy service would never be done. What
// is too much to be noted at once is noted when the first of it is final, if it has not moved
// since the start.
func (s *sweep) untilFinished(ctx context.Context) error {
	c := s.coordinator
	begun, beyond := c.now(), ""
	for idle := time.Duration(0); ; idle = c.now().Sub(begun) {
		noted, err := s.note(ctx, beyond, idle)
		if err == nil {
			err = s.await(ctx, noted)
		}
		if err != nil || s.stops(ctx) || len(noted) < s.most {
			return err
		}
		beyond = noted[len(noted)-1]
	}
}

// note returns what is unfinished beyond an ID, and was not modified for so long.
func (s *sweep) note(ctx context.Context, beyond string, idle time.Duration) (noted []string, err error) {
	c := s.coordinator
	err = c.read(ctx, func(ctx context.Context) (done bool, err error) {
		noted, err = c.queries.UnfinishedIDs(ctx, beyond, idle, s.most)
		return err == nil, err
	})
	return noted, err
}

// await sweeps until none of the noted transfers is left. A search that fails is tried again:
// a primary that is being replaced must not end a wait of half a minute.
func (s *sweep) await(ctx context.Context, noted []string) error {
	c := s.coordinator
	pause := min(longestLook, max(shortestLook, c.settings.stallThreshold/4))
	var away quiet
	for {
		err := s.once(ctx)
		if err == nil {
			noted, err = s.stillUnfinished(ctx, noted)
		}
		switch {
		case s.stops(ctx) || err == nil && len(noted) == 0:
			return nil
		case away.tooLong(c, err):
			return err
		}
		c.rests(ctx, pause, nil)
	}
}

// once sweeps once more, and waits for what that has begun. What the sweep had passed to
// others it may take over now.
func (s *sweep) once(ctx context.Context) error {
	s.mu.Lock()
	s.skipped = map[string]bool{}
	s.mu.Unlock()
	s.final = false
	err := s.everything(ctx)
	s.all.Wait()
	return err
}

// stillUnfinished returns those of the noted transfers that may still become final.
func (s *sweep) stillUnfinished(ctx context.Context, noted []string) ([]string, error) {
	var left []string
	for page := range slices.Chunk(noted, notedPage) {
		limited, cancel := context.WithTimeout(ctx, wire.CommandLimit)
		found, err := s.coordinator.queries.StillUnfinished(limited, page)
		cancel()
		if err != nil {
			return noted, err
		}
		for _, id := range found {
			if !s.isStuck(id) {
				left = append(left, id)
			}
		}
	}
	return left, nil
}

// isStuck reports whether this sweep has counted a transfer as stuck.
func (s *sweep) isStuck(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[id]
}
