package overload

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	transfer "github.com/mongotransfer/transfer"
)

const (
	waitersBeside = 64
	// moreConnections is how many connections all waiters together may need, besides
	// those of the commands that move money.
	moreConnections = 4
)

// playWaiters waits thousands of times for holds that no caller decides.
// That costs those that move money next to nothing, and needs no connections.
func playWaiters(ctx context.Context, s *scene) error {
	levels := []int{50, 200, 1000, 10_000}
	if s.Short {
		levels = []int{2000}
	}
	s.callers = waitersBeside + levels[len(levels)-1]
	b, m, err := s.openAndJoin(ctx)
	if err != nil {
		return err
	}
	ids := make([]string, levels[len(levels)-1])
	if err := forEach(ctx, len(ids), func(ctx context.Context, i int) error {
		req := b.move(0)
		ids[i] = req.ID
		_, err := m.Hold(ctx, req, time.Hour)
		return err
	}); err != nil {
		return err
	}
	c := gather(ctx, waitersBeside, time.Minute, m.moves(func() transfer.Request { return b.move(0) }))
	pause(ctx, s.duration(2*time.Second, 500*time.Millisecond))
	s.note("connections in use without anybody who waits", m.home().counts.inUse.peak.Load())
	for _, n := range levels {
		if err := besideWaiters(ctx, s, c, m, ids[:n]); err != nil {
			return err
		}
	}
	c.disperse()
	s.expected("callers told something odd", &c.tally)
	if err := tellWaiters(ctx, s, m, ids); err != nil {
		return err
	}
	if _, err := b.drained(ctx); err != nil {
		return err
	}
	return b.audit(ctx)
}

// besideWaiters measures a crowd beside callers that wait for the given holds.
func besideWaiters(ctx context.Context, s *scene, c *crowd, m *member, ids []string) error {
	inUse := &m.home().counts.inUse
	var waiting *flood
	var most, told int64
	w, err := s.compare(ctx, c, s.duration(1500*time.Millisecond, time.Second), func(ctx context.Context) error {
		waiting = waitFor(ctx, m, ids)
		// Each reads a few times before it only waits.
		pause(ctx, s.duration(1500*time.Millisecond, 500*time.Millisecond))
		inUse.forget()
		return nil
	}, func(context.Context) error {
		most = max(most, inUse.peak.Load())
		told += waiting.answers()
		waiting.leave()
		waiting.answered()
		return nil
	})
	s.keeps(fmt.Sprintf("transfers beside %d who wait", len(ids)), w.before, w.during, 0.9)
	s.atMost(fmt.Sprintf("connections in use beside %d who wait", len(ids)), most, mostInFlight+moreConnections)
	s.atMost("who wait and were told something meanwhile", told, 0)
	return err
}

// waitFor starts one waiting caller for each of these holds.
func waitFor(ctx context.Context, m *member, ids []string) *flood {
	next := make(chan string, len(ids))
	for _, id := range ids {
		next <- id
	}
	return rush(ctx, len(ids), time.Hour, func(ctx context.Context) error {
		_, err := m.Wait(ctx, <-next)
		if errors.Is(err, transfer.ErrCancelled) {
			// That is what they wait for in the end.
			return nil
		}
		return err
	})
}

// tellWaiters voids all holds, and checks that all waiting callers get the outcome.
func tellWaiters(ctx context.Context, s *scene, m *member, ids []string) error {
	waiting := waitFor(ctx, m, ids)
	defer waiting.leave()
	var again atomic.Int64
	err := forEach(ctx, len(ids), func(ctx context.Context, i int) error {
		_, voided, err := eventually(ctx, giveUp, func() (bool, error) {
			_, err := m.Void(ctx, ids[i])
			if err != nil {
				again.Add(1)
			}
			return err == nil, nil
		})
		if err == nil && !voided {
			err = fmt.Errorf("the hold %q can't be voided", ids[i])
		}
		return err
	})
	s.atMost("voids that had to be asked for again", again.Load(), 0)
	if err != nil {
		return err
	}
	voided := time.Now()
	_, _, err = eventually(ctx, time.Minute, func() (bool, error) { return waiting.done.Load() == int64(len(ids)), nil })
	s.within("until all who wait are told, after the last void", time.Since(voided), drainLimit)
	s.atMost("who were not told", int64(len(ids))-waiting.done.Load(), 0)
	waiting.leave()
	waiting.answered()
	return err
}
