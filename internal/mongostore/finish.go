package mongostore

import (
	"context"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/transition"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Under a retention the server removes final transfers, by an index on purgeAt.
// The finish sets that time, or the delivery of the event that the finish leaves.

// dated returns the time for changes that are stamped with it, and those that are: the
// finishes that name a purge, and what leaves an event. Where the server's time is not
// known, it has to be asked for first. The other calls don't wait: dated performs them.
func (s *Store) dated(ctx context.Context, calls []*Call, at transition.Stamp, after time.Duration) ([]*Call, transition.Stamp) {
	if !at.Fresh {
		var stamped, others []*Call
		for _, call := range calls {
			if call.Op.Kind == protocol.Finish && after > 0 || s.catalog.Events.Of(call.Op) != "" {
				stamped = append(stamped, call)
			} else {
				others = append(others, call)
			}
		}
		s.changeAt(ctx, others, at)
		if len(stamped) == 0 {
			return nil, at
		}
		now, err := s.catalog.ReachedTime(ctx)
		if err != nil {
			answerAll(stamped, protocol.NotSent, err)
			return nil, at
		}
		calls, at.Now, at.Fresh = stamped, now, true
	}
	if after > 0 {
		at.PurgeAt = at.Now.Add(after).Truncate(time.Millisecond) // as it will be read back
	}
	return calls, at
}

// finishAgain performs the finishes that have failed to match before, and returns the
// other calls.
//
// It may not have matched because of the time that it named. That time was estimated, and
// the transfer's server may stay ahead of it by more than the limit, where a mongos
// reports the time: then no finish would ever match. So the server itself dates these
// purges, each in a statement of its own, as no process knows that time.
func (s *Store) finishAgain(ctx context.Context, calls []*Call, after time.Duration) []*Call {
	var rest []*Call // not in place: the list is the caller's
	for _, call := range calls {
		if s.finishesAlone(call) {
			s.finishByServerTime(ctx, call, after)
		} else {
			rest = append(rest, call)
		}
	}
	return rest
}

// finishesAlone reports whether the call is a finish, and an earlier one has not matched,
// or the end is no event, and the event of the hold may still wait.
func (s *Store) finishesAlone(c *Call) bool {
	waits := s.catalog.Events.MayWait(&c.Attempt.Transfer, c.Op)
	return c.Op.Kind == protocol.Finish && (c.Attempt.finishMissed || waits)
}

// finishByServerTime finishes one transfer, and the server dates the purge.
func (s *Store) finishByServerTime(ctx context.Context, call *Call, after time.Duration) {
	filter, update := transition.FinishByServerTime(call.Attempt.Transfer.ID, call.Op.To, after, s.catalog.Events)
	finished, result, err := wire.FindAndModify(ctx, s.catalog.Transfers, filter, update)
	call.answer(result, err)
	if result != protocol.Applied {
		return
	}
	call.changed(transition.Stamp{})
	if t, err := document.DecodeTransfer(finished); err == nil {
		call.Attempt.Transfer = t
	}
}
