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

// Final transfers are removed by the server, by an index on the time that their finish has set; no other write sets it. What may be gone
// is told by a collection of its own, with a document for each retention that was ever in use: { _id: its milliseconds, since: when it
// was first used }.

// datePurge sets when what the requests finish is purged. Where the server's time has to be asked for first, the other requests don't
// wait for that: they are performed, and the finishes returned.
func (s *Store) datePurge(ctx context.Context, requests []*Call, at stamp, after time.Duration) ([]*Call, stamp) {
	if !at.fresh {
		var finishes, others []*Call
		for _, r := range requests {
			if r.Op.Kind == protocol.Finish {
				finishes = append(finishes, r)
			} else {
				others = append(others, r)
			}
		}
		s.changeAt(ctx, others, at)
		if len(finishes) == 0 {
			return nil, at
		}
		now, err := s.ReachedTime(ctx)
		if err != nil {
			answerAll(finishes, protocol.NotSent, err)
			return nil, at
		}
		requests, at.now, at.fresh = finishes, now, true
	}
	at.purge = at.now.Add(after).Truncate(time.Millisecond) // as it will be read back
	return requests, at
}

// inTime requires of a finish that names the time of the purge that it arrives soon, by the server's clock.
func (a stamp) inTime(m *wire.Message) {
	if a.purge.IsZero() {
		return
	}
	m.Begin("$expr")
	m.BeginArray("$lt")
	m.Text("0", "$$NOW")
	m.Date("1", a.now.Add(retention.FinishLimit))
	m.End()
	m.End()
}

// finishLate performs those finishes of which an earlier one has not matched, which may
// be due to the time that it named, and returns the other requests. That time was
// estimated: the transfer's server may be ahead of it by more than the limit for good,
// where a mongos tells the time, and no finish would ever match. So the server dates the
// purge of these itself, by its clock, or by the one that has stamped the document, if
// that is ahead; one by one, as nobody else knows that time then.
func (s *Store) finishLate(ctx context.Context, requests []*Call, after time.Duration) []*Call {
	if !slices.ContainsFunc(requests, (*Call).late) {
		return requests
	}
	var rest []*Call // and not in their place: the list is the caller's
	for _, r := range requests {
		if r.late() {
			s.finishOne(ctx, r, after)
		} else {
			rest = append(rest, r)
		}
	}
	return rest
}

// late reports whether the request is a finish, and an earlier one has not matched.
func (r *Call) late() bool { return r.Op.Kind == protocol.Finish && r.Attempt.late }

func (s *Store) finishOne(ctx context.Context, r *Call, after time.Duration) {
	stamped := bson.D{{Key: "$convert", Value: bson.D{
		{Key: "input", Value: "$lastModified"}, {Key: "to", Value: "date"},
		{Key: "onError", Value: "$$NOW"}, {Key: "onNull", Value: "$$NOW"},
	}}}
	now := bson.D{{Key: "$max", Value: bson.A{"$$NOW", stamped}}}
	set := bson.D{
		{Key: "state", Value: r.Op.To},
		{Key: "lastModified", Value: "$$NOW"},
		{Key: "purgeAt", Value: bson.D{{Key: "$add", Value: bson.A{now, after.Milliseconds()}}}},
	}
	filter := bson.D{{Key: "_id", Value: r.Attempt.Transfer.ID}, {Key: "state", Value: finishedFrom(r.Op.To)}}
	update := bson.A{
		bson.D{{Key: "$set", Value: set}},
		bson.D{{Key: "$unset", Value: bson.A{"open", "stuck", "stuckAt"}}},
	}
	finished, result, err := wire.FindAndModify(ctx, s.Transfers, filter, update)
	r.answer(result, err)
	if result != protocol.Applied {
		return
	}
	r.changed(stamp{})
	if t, err := document.DecodeTransfer(finished); err == nil {
		r.Attempt.Transfer = t
	}
}
