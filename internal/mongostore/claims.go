package mongostore

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// performOnTransfer performs an operation on the transfer's own document.
func (s *Store) performOnTransfer(ctx context.Context, w *Work, op protocol.Operation) protocol.Answer {
	switch op.Kind {
	case protocol.Claim:
		return s.claim(ctx, w, op)
	case protocol.ReadTransfer:
		return s.readTransfer(ctx, w, s.majority)
	case protocol.LookTransfer:
		return s.readTransfer(ctx, w, s.linearizable)
	case protocol.Verify:
		result, err := s.touch(ctx, w, op.Epoch, bson.E{Key: "state", Value: protocol.Preparing})
		return w.answer(result, err)
	case protocol.Decide:
		return s.decide(ctx, w, op)
	case protocol.Finish:
		return s.finish(ctx, w, op.To)
	case protocol.ReadFence, protocol.Prepare, protocol.Look, protocol.Settle, protocol.Undo, protocol.FenceOnly:
	}
	return protocol.Answer{Result: protocol.NotSent}
}

// answer keeps the cause of an answer for the one who waits for the outcome.
func (w *Work) answer(result protocol.Result, err error) protocol.Answer {
	if err != nil {
		w.Cause = err
	}
	return protocol.Answer{Result: result}
}

// modified sets lastModified, and other fields, to the server's time.
func modified(fields ...string) bson.E {
	stamps := bson.D{{Key: "lastModified", Value: true}}
	for _, field := range fields {
		stamps = append(stamps, bson.E{Key: field, Value: true})
	}
	return bson.E{Key: "$currentDate", Value: stamps}
}

func (s *Store) claim(ctx context.Context, w *Work, op protocol.Operation) protocol.Answer {
	if op.Claiming == protocol.Insert {
		return s.insertClaimed(ctx, w)
	}
	filter := bson.D{
		{Key: "_id", Value: w.Transfer.ID},
		// The work was made from this document, and not from one that had the same ID in another life.
		{Key: "digest", Value: bson.D{{Key: "$eq", Value: w.Transfer.Digest}}},
	}
	mine := bson.D{{Key: "owner", Value: w.Owner}}
	raise := bson.E{Key: "$inc", Value: bson.D{{Key: "epoch", Value: int64(1)}, {Key: "attempts", Value: int64(1)}}}
	var update bson.D
	switch op.Claiming {
	case protocol.FromInitiated:
		filter = append(filter, bson.E{Key: "state", Value: protocol.Initiated})
		mine = append(mine, bson.E{Key: "state", Value: protocol.Preparing}, bson.E{Key: "epoch", Value: int64(1)})
		update = bson.D{{Key: "$set", Value: mine}, modified()}
	case protocol.TakeOver:
		filter = append(filter, stalled(w.Threshold)...)
		update = bson.D{{Key: "$set", Value: mine}, raise, modified()}
	case protocol.TakeToCancel:
		filter = append(filter, bson.E{Key: "state", Value: protocol.Preparing})
		update = bson.D{{Key: "$set", Value: mine}, raise, modified()}
	case protocol.CancelInitiated:
		filter = append(filter, bson.E{Key: "state", Value: protocol.Initiated})
		mine = append(mine, bson.E{Key: "state", Value: protocol.Rollback}, bson.E{Key: "epoch", Value: int64(1)},
			bson.E{Key: "failure", Value: w.failure(op.Refusal)})
		update = bson.D{{Key: "$set", Value: mine}, modified()}
	case protocol.Insert:
	}
	return s.change(ctx, w, filter, update)
}

// insertClaimed stores a new transfer. An insert can't stamp the server's time: it carries the process's clock, corrected.
func (s *Store) insertClaimed(ctx context.Context, w *Work) protocol.Answer {
	t := w.Transfer
	t.State, t.Open, t.Epoch, t.Owner = protocol.Preparing, true, 1, w.Owner
	now, err := s.serverTime(ctx)
	if err != nil {
		return w.answer(protocol.NotSent, err)
	}
	t.CreatedAt, t.LastModified = now, now
	result, err := insert(ctx, s.transfers, t)
	answer := w.answer(result, err)
	if result == protocol.Applied {
		w.Transfer = t
		answer.Transfer = w.image(t)
	}
	return answer
}

// InsertInitiated stores a transfer for a worker. NotMatched: the ID is taken.
func (s *Store) InsertInitiated(ctx context.Context, t *Transfer) (protocol.Result, error) {
	ctx, cancel := withLimit(detached(ctx), CommandLimit)
	defer cancel()
	now, err := s.serverTime(ctx)
	if err != nil {
		return protocol.NotSent, err
	}
	t.State, t.Open = protocol.Initiated, true
	t.CreatedAt, t.LastModified = now, now
	return insert(ctx, s.transfers, t)
}

// stalled matches unfinished transfers that were not modified for as long as the threshold says, by the server's clock; a threshold
// of zero matches all of them.
func stalled(threshold time.Duration) bson.D {
	unfinished := stateIn(protocol.Preparing, protocol.Committed, protocol.Rollback)
	if threshold <= 0 {
		return bson.D{unfinished}
	}
	limit := bson.D{{Key: "$subtract", Value: bson.A{"$$NOW", threshold.Milliseconds()}}}
	return bson.D{
		unfinished,
		{Key: "$expr", Value: bson.D{{Key: "$lte", Value: bson.A{"$lastModified", limit}}}},
	}
}

func stateIn(states ...protocol.State) bson.E {
	return bson.E{Key: "state", Value: bson.D{{Key: "$in", Value: states}}}
}

// change performs a conditional change of the transfer and keeps its after-image.
func (s *Store) change(ctx context.Context, w *Work, filter, update bson.D) protocol.Answer {
	after, result, err := findAndModify(ctx, s.transfers, filter, update)
	answer := w.answer(result, err)
	if result != protocol.Applied {
		return answer
	}
	t, err := decodeTransfer(after)
	if err != nil {
		return w.answer(protocol.Unknown, err)
	}
	w.Transfer = t
	answer.Transfer = w.image(t)
	return answer
}

// readTransfer reads the transfer with the read concern of the given collection.
func (s *Store) readTransfer(ctx context.Context, w *Work, from *mongo.Collection) protocol.Answer {
	document, err := from.FindOne(ctx, bson.D{{Key: "_id", Value: w.Transfer.ID}}).Raw()
	if missing(err) {
		return protocol.Answer{Result: protocol.Applied}
	}
	if err != nil {
		return w.answer(protocol.Unknown, err)
	}
	t, err := decodeTransfer(document)
	if err != nil {
		w.Cause = err
		return protocol.Answer{Result: protocol.Applied, Transfer: protocol.Image{Found: true}}
	}
	if t.Owner == w.Owner {
		w.Transfer = t
	}
	return protocol.Answer{Result: protocol.Applied, Transfer: w.image(t)}
}

// touch writes to the transfer where it is this execution's. It counts its writes, because a write that changes nothing is acknowledged
// without asking anybody: lastModified alone would stay the same within a millisecond, and a cut-off old primary could
// answer "matched" then.
func (s *Store) touch(ctx context.Context, w *Work, epoch int64, conditions ...bson.E) (protocol.Result, error) {
	filter := bson.D{
		{Key: "_id", Value: w.Transfer.ID},
		{Key: "epoch", Value: epoch},
		{Key: "owner", Value: w.Owner},
	}
	count := bson.E{Key: "$inc", Value: bson.D{{Key: "verified", Value: int64(1)}}}
	return updateOne(ctx, s.transfers, append(filter, conditions...), bson.D{count, modified()})
}

// decide stores the decision.
func (s *Store) decide(ctx context.Context, w *Work, op protocol.Operation) protocol.Answer {
	filter := bson.D{
		{Key: "_id", Value: w.Transfer.ID},
		{Key: "state", Value: protocol.Preparing},
		{Key: "epoch", Value: op.Epoch},
	}
	set := bson.D{{Key: "state", Value: op.To}}
	if op.Clean {
		set = append(set, bson.E{Key: "clean", Value: true})
	}
	stamps := modified()
	if op.To == protocol.Committed {
		stamps = modified("committedAt")
	} else {
		set = append(set, bson.E{Key: "failure", Value: w.failure(op.Refusal)})
	}
	return s.change(ctx, w, filter, bson.D{{Key: "$set", Value: set}, stamps})
}

// failure returns a refusal as it is stored.
func (w *Work) failure(refusal protocol.Refusal) Failure {
	f := Failure{Code: refusal.Reason.String()}
	if refusal.Participant != protocol.NoParticipant {
		leg := w.parties[refusal.Participant].leg
		f.Ledger, f.Account = leg.Ledger, leg.Account
	}
	if w.Describe != nil {
		f.Message = w.Describe(refusal)
	}
	return f
}

// finish makes the transfer final. Its ID, not its epoch, is the condition: whoever finds everything settled may finish.
func (s *Store) finish(ctx context.Context, w *Work, to protocol.State) protocol.Answer {
	from := protocol.Committed
	if to == protocol.Fail {
		from = protocol.Rollback
	}
	filter := bson.D{{Key: "_id", Value: w.Transfer.ID}, {Key: "state", Value: from}}
	update := bson.D{
		{Key: "$set", Value: bson.D{{Key: "state", Value: to}}},
		{Key: "$unset", Value: bson.D{{Key: "open", Value: ""}}},
		modified(),
	}
	return s.change(ctx, w, filter, update)
}
