package mongostore

import (
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/retention"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Under a retention the server removes final transfers, by an index on purgeAt.
// The finish sets that time, and no other write does.

// datePurge sets when the transfers that the calls finish are purged. Where the server's
// time is not known, it has to be asked for first. The other calls don't wait for that:
// datePurge performs them and returns the finishes.
func (s *Store) datePurge(ctx context.Context, calls []*Call, at stamp, after time.Duration) ([]*Call, stamp) {
	if !at.fresh {
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
		calls, at.now, at.fresh = finishes, now, true
	}
	at.purgeAt = at.now.Add(after).Truncate(time.Millisecond) // as it will be read back
	return calls, at
}

// requireInTime requires of a finish that names a purge that it arrives soon, by the
// server's clock. 1. A stamps the finish and is frozen. 2. It wakes hours later and sends
// the finish: the transfer would be purged the moment it is final.
func (a stamp) requireInTime(m *wire.Message) {
	if a.purgeAt.IsZero() {
		return
	}
	m.Begin("$expr")
	m.BeginArray("$lt")
	m.Text("0", "$$NOW")
	m.Date("1", a.now.Add(retention.FinishLimit))
	m.End()
	m.End()
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

// finishByServerTime finishes one transfer. The server dates the purge by its own clock,
// or by the one that has stamped the document, if that one is ahead.
func (s *Store) finishByServerTime(ctx context.Context, call *Call, after time.Duration) {
	stamped := bson.D{{Key: "$convert", Value: bson.D{
		{Key: "input", Value: "$lastModified"}, {Key: "to", Value: "date"},
		{Key: "onError", Value: "$$NOW"}, {Key: "onNull", Value: "$$NOW"},
	}}}
	now := bson.D{{Key: "$max", Value: bson.A{"$$NOW", stamped}}}
	set := bson.D{
		{Key: "state", Value: call.Op.To},
		{Key: "lastModified", Value: "$$NOW"},
		{Key: "purgeAt", Value: bson.D{{Key: "$add", Value: bson.A{now, after.Milliseconds()}}}},
	}
	filter := bson.D{
		{Key: "_id", Value: call.Attempt.Transfer.ID}, {Key: "state", Value: stateBefore(call.Op.To)},
	}
	update := bson.A{
		bson.D{{Key: "$set", Value: set}},
		bson.D{{Key: "$unset", Value: bson.A{"open", "stuck", "stuckAt"}}},
	}
	finished, result, err := wire.FindAndModify(ctx, s.catalog.Transfers, filter, update)
	call.answer(result, err)
	if result != protocol.Applied {
		return
	}
	call.changed(stamp{})
	if t, err := document.DecodeTransfer(finished); err == nil {
		call.Attempt.Transfer = t
	}
}
