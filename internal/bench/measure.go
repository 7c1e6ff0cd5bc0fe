package main

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"
)

// player plays one process's part of a round.
type player interface {
	play(ctx context.Context, r round) (samples, error)
	pid() int
}

// usage is what was used until a moment.
type usage struct {
	server, program time.Duration // processor times
	timed           bool          // these are known
	written         int64         // documents that the server wrote for any client
	counted         bool          // these are known
}

// measure runs a round, in this process or in the stand's workers, and returns its
// figures.
func (s *stand) measure(ctx context.Context, r round) (figures, error) {
	players := s.players()
	runtime.GC() // No contender collects what another one has left.
	before := s.usage(ctx)
	shares := make([]samples, len(players))
	playing, broken := errgroup.WithContext(ctx)
	for i, p := range players {
		share := r
		share.First = i * r.Callers / len(players)
		share.Callers = (i+1)*r.Callers/len(players) - share.First
		playing.Go(func() (err error) {
			shares[i], err = p.play(broken, share)
			return err
		})
	}
	if err := playing.Wait(); err != nil {
		return figures{}, err
	}
	after := s.usage(ctx)
	var all samples
	for _, share := range shares {
		all.append(share)
	}
	f := all.figures()
	if before.timed && after.timed {
		f.Server = perTransfer(micros(after.server-before.server), all.Done)
		f.Program = perTransfer(micros(after.program-before.program), all.Done)
	}
	if before.counted && after.counted {
		f.Writes = perTransfer(float64(after.written-before.written), all.Done)
	}
	return f, s.check(ctx)
}

func (s *stand) usage(ctx context.Context) usage {
	var u usage
	status, err := serverStatus(ctx, s.deployment.client)
	d := status.Metrics.Document
	u.written, u.counted = d.Inserted+d.Updated+d.Deleted, err == nil
	var programs []int
	for _, p := range s.players() {
		programs = append(programs, p.pid())
	}
	var known bool
	u.server, u.timed = processorTime(s.deployment.pids...)
	u.program, known = processorTime(programs...)
	u.timed = u.timed && known
	return u
}

// check returns an error if the latest round has made or lost money, or has left anything
// behind.
func (s *stand) check(ctx context.Context) error {
	if s.contender.marks {
		if err := s.bank.awaitQuiet(ctx); err != nil {
			return err
		}
	}
	return s.bank.check(ctx)
}
