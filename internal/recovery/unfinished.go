package recovery

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/wire"
)

const (
	// maxNoted is the default of Settings.MaxNoted.
	maxNoted = 10_000
	// notedPage is how many of the noted transfers a sweep asks the server for at once.
	notedPage = 1000
	// longestPoll bounds the pause between two reads of them.
	// It is a quarter of the stall threshold where that is shorter, and never less than
	// shortestPoll.
	longestPoll  = time.Second
	shortestPoll = 20 * time.Millisecond
)

// untilFinished notes what is unfinished, and sweeps until all of that is final or can't
// be finished.
//
// It doesn't wait for what is created after the start: a busy service would never be
// done.
// Where there is too much to be noted at once, the rest is noted when the first part is
// final, even if others have worked on it meanwhile: they may have died.
func (s *sweep) untilFinished(ctx context.Context) error {
	begun, beyond := s.Now(), ""
	most := cmp.Or(s.MaxNoted, maxNoted)
	for while := time.Duration(0); ; while = s.Now().Sub(begun) {
		noted, err := s.note(ctx, beyond, while, most)
		if err == nil {
			err = s.await(ctx, noted)
		}
		if err != nil || s.stops(ctx) || len(noted) < most {
			return err
		}
		beyond = noted[len(noted)-1]
	}
}

// note returns the IDs of what is unfinished, in order, from one ID on.
// It leaves out what was created within a while.
func (s *sweep) note(
	ctx context.Context, beyond string, while time.Duration, most int,
) (noted []string, err error) {
	err = s.Read(ctx, func(ctx context.Context) (done bool, err error) {
		noted, err = s.Queries.UnfinishedIDs(ctx, beyond, while, most)
		return err == nil, err
	})
	return noted, err
}

// await sweeps until none of the noted transfers is left.
// It repeats a search that fails: a primary that is being replaced must not end a wait of
// half a minute.
func (s *sweep) await(ctx context.Context, noted []string) error {
	pause := min(longestPoll, max(shortestPoll, s.Threshold/4))
	var outage engine.Outage
	for {
		err := s.once(ctx)
		if err == nil {
			noted, err = s.stillUnfinished(ctx, noted)
		}
		switch {
		case s.stops(ctx) || err == nil && len(noted) == 0:
			return nil
		case err != nil && s.lasting(err), outage.TooLong(s.Now(), err):
			return err
		}
		s.pause(ctx, pause, nil)
	}
}

// once sweeps once more, and waits for what that has begun.
// It may take over now what it had left to others.
func (s *sweep) once(ctx context.Context) error {
	s.forgetSkipped()
	s.last = false
	err := s.everything(ctx)
	s.all.Wait()
	return err
}

// stillUnfinished returns those of the noted transfers that may still become final.
func (s *sweep) stillUnfinished(ctx context.Context, noted []string) ([]string, error) {
	var unfinished []string
	for page := range slices.Chunk(noted, notedPage) {
		limited, cancel := context.WithTimeout(ctx, wire.CommandLimit)
		found, err := s.Queries.StillUnfinished(limited, page)
		cancel()
		if err != nil {
			return noted, err
		}
		for _, id := range found {
			if !s.isStuck(id) {
				unfinished = append(unfinished, id)
			}
		}
	}
	return unfinished, nil
}
