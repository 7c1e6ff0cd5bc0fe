package mongostore

import (
	"context"
	"slices"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/transition"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Under a retention the server removes final transfers, by an index on purgeAt.
// The finish sets that time, and no other write does.

// datePurge sets when the transfers that the calls finish are purged. Where the server's
// time is not known, it has to be asked for first. The other calls don't wait for that:
// datePurge performs them and returns the finishes.
func (s *Store) datePurge(ctx context.Context, calls []*Call, at transition.Stamp, after time.Duration) ([]*Call, transition.Stamp) {
	if !at.Fresh {
		var finishes, others []*Call
		for _, call := range calls {
			if call.Op.Kind == protocol.Finish {
				finishes = append(finishes, call)
			} else {
				others = append(others, call)
			}
		}
		s.changeAt(ctx, others, at)
		if len(finishes) == 0 {
			return nil, at
		}
		now, err := s.catalog.ReachedTime(ctx)
		if err != nil {
			answerAll(finishes, protocol.NotSent, err)
			return nil, at
		}
		calls, at.Now, at.Fresh = finishes, now, true
	}
	at.PurgeAt = at.Now.Add(after).Truncate(time.Millisecond) // as it will be read back
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
	if !slices.ContainsFunc(calls, (*Call).finishesAgain) {
		return calls
	}
	var rest []*Call // not in place: the list is the caller's
	for _, call := range calls {
		if call.finishesAgain() {
			s.finishByServerTime(ctx, call, after)
		} else {
			rest = append(rest, call)
		}
	}
	return rest
}

// finishesAgain reports whether the call is a finish, and an earlier one has not matched.
func (c *Call) finishesAgain() bool { return c.Op.Kind == protocol.Finish && c.Attempt.finishMissed }

// finishByServerTime finishes one transfer, and the server dates the purge.
func (s *Store) finishByServerTime(ctx context.Context, call *Call, after time.Duration) {
	filter, update := transition.FinishByServerTime(call.Attempt.Transfer.ID, call.Op.To, after)
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
