package mongostore

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// modified sets lastModified to the server's time.
func modified() bson.E {
	return bson.E{Key: "$currentDate", Value: bson.D{{Key: "lastModified", Value: true}}}
}

// claimStatement returns how a claim that is no insert changes the stored transfer.
func (w *Attempt) claimStatement(op protocol.Operation) (filter, update bson.D) {
	filter = bson.D{
		{Key: "_id", Value: w.Transfer.ID},
		// The work was made from this document, and not from one that had the same ID in another life.
		{Key: "digest", Value: bson.D{{Key: "$eq", Value: w.Transfer.Digest}}},
	}
	mine := bson.D{{Key: "owner", Value: w.Owner}}
	raise := bson.E{Key: "$inc", Value: bson.D{{Key: "epoch", Value: int64(1)}}}
	again := bson.E{Key: "$inc", Value: bson.D{{Key: "epoch", Value: int64(1)}, {Key: "attempts", Value: int64(1)}}} // of what has stalled
	switch op.Claim {
	case protocol.FromInitiated:
		filter = append(filter, bson.E{Key: "state", Value: protocol.Initiated})
		mine = append(mine, bson.E{Key: "state", Value: protocol.Preparing}, bson.E{Key: "epoch", Value: int64(1)})
		update = bson.D{{Key: "$set", Value: mine}, modified()}
	case protocol.TakeOver:
		filter = append(filter, stalled(w.Threshold)...)
		update = bson.D{{Key: "$set", Value: mine}, again, modified()}
	case protocol.TakeToCancel:
		filter = append(filter, bson.E{Key: "state", Value: protocol.Preparing})
		update = bson.D{{Key: "$set", Value: mine}, raise, modified()}
	case protocol.CancelInitiated:
		filter = append(filter, bson.E{Key: "state", Value: protocol.Initiated})
		mine = append(mine, bson.E{Key: "state", Value: protocol.Rollback}, bson.E{Key: "epoch", Value: int64(1)},
			bson.E{Key: "failure", Value: w.failure(op.Refusal)})
		update = bson.D{{Key: "$set", Value: mine}, modified()}
	case protocol.TakeUnheld:
		filter = append(append(filter, unheld()...), standingStill(w.Threshold)...)
		update = bson.D{{Key: "$set", Value: mine}, again, modified()}
	case protocol.Post:
		filter = append(filter, postable()...)
		update = w.post(mine)
	case protocol.Expire:
		filter = append(filter, expired()...)
		update = bson.D{{Key: "$set", Value: mine}, raise, modified()}
	case protocol.Insert:
	}
	return filter, update
}

// claim gets hold of stored transfers: of a single one by one command; of many by one command that changes them, and another one that
// reads which of them show the claimer's nonce.
func (s *Store) claim(ctx context.Context, requests []*Call) {
	if len(requests) == 1 {
		s.claimOne(ctx, requests[0])
		return
	}
	statements := make([]encoded, len(requests))
	for i, r := range requests {
		st, err := encodeUpdate(r.Attempt.claimStatement(r.Op))
		if err != nil {
			answerAll(requests, protocol.NotSent, err)
			return
		}
		statements[i] = st
	}
	inSession(ctx, s.transfers, func(ctx context.Context) {
		done := updateAll(ctx, s.transfers, statements)
		var open []*Call
		for i, r := range requests {
			r.take(done.verdicts[i], true)
			if r.Answer.Result == protocol.Applied || r.Answer.Result == protocol.NotMatched {
				open = append(open, r)
			}
		}
		if done.matched {
			s.showClaimed(ctx, open)
		}
	})
}

// showClaimed answers claims that were sent, and of which some have matched. What shows the claimer's nonce is the claimer's, in
// the state and epoch that are shown: nobody else changes those without taking it over.
func (s *Store) showClaimed(ctx context.Context, requests []*Call) {
	from := s.majority
	if s.routed(s.transfers) {
		from = s.linearizable
	}
	documents, err := findTransfers(ctx, requests, from)
	for _, r := range requests {
		document, answered := documents[r.Attempt.Transfer.ID]
		if !answered {
			r.answer(protocol.Unknown, err)
			continue
		}
		r.show(document)
		if !r.Answer.Transfer.Mine {
			r.answer(protocol.NotMatched, r.Cause)
		}
	}
}

// claimOne performs one claim and keeps its after-image.
func (s *Store) claimOne(ctx context.Context, r *Call) {
	filter, update := r.Attempt.claimStatement(r.Op)
	after, result, err := findAndModify(ctx, s.transfers, filter, update)
	r.answer(result, err)
	if result != protocol.Applied {
		return
	}
	t, err := decodeTransfer(after)
	if err != nil {
		r.answer(protocol.Unknown, err)
		return
	}
	r.Attempt.Transfer = t
	r.Answer.Transfer = r.Attempt.image(t)
}

// insertClaimed stores new transfers. An insert can't stamp the server's time: it carries the process's clock, corrected.
func (s *Store) insertClaimed(ctx context.Context, requests []*Call) {
	now, err := s.serverTime(ctx)
	if err != nil {
		answerAll(requests, protocol.NotSent, err)
		return
	}
	claimed := make([]Transfer, len(requests))
	documents := make([]bson.Raw, len(requests))
	for i, r := range requests {
		t := r.Attempt.Transfer
		t.State, t.Open, t.Epoch, t.Owner = protocol.Preparing, true, 1, r.Attempt.Owner
		t.CreatedAt, t.LastModified = now, now
		if t.Hold {
			t.ExpiresAt = now.Add(r.Attempt.HoldFor).Truncate(time.Millisecond) // as it will be read back
		}
		claimed[i], documents[i] = t, t.encode()
	}
	for i, v := range insertAll(ctx, s.transfers, documents) {
		r := requests[i]
		r.take(v, len(requests) > 1)
		if v.result == protocol.Applied {
			r.Attempt.Transfer = claimed[i]
			r.Answer.Transfer = r.Attempt.image(claimed[i])
		}
	}
}

// InsertInitiated stores a transfer for a worker. NotMatched: the ID is taken.
func (s *Store) InsertInitiated(ctx context.Context, t *Transfer) (protocol.Result, error) {
	ctx, cancel := s.WithLimit(detached(ctx), CommandLimit)
	defer cancel()
	now, err := s.serverTime(ctx)
	if err != nil {
		return protocol.NotSent, err
	}
	t.State, t.Open = protocol.Initiated, true
	t.CreatedAt, t.LastModified = now, now
	v := insertAll(ctx, s.transfers, []bson.Raw{t.encode()})[0]
	return v.result, v.err
}

// stalled matches unfinished transfers that stand still, but for holds that may still be decided.
func stalled(threshold time.Duration) bson.D {
	return append(bson.D{
		stateIn(protocol.Preparing, protocol.Committed, protocol.Rollback),
		{Key: "$nor", Value: bson.A{undecided()}},
	}, standingStill(threshold)...)
}

// standingStill matches what was not modified for as long as the threshold says, by the server's
// clock, and for longer the more often it was taken over in vain; and what was modified further ahead
// than the threshold; with a threshold of zero, everything.
//
//  1. The server's clock is an hour fast, and a process dies in the middle of a transfer.
//  2. The clock is set right. The transfer was modified in an hour.
//  3. Whoever waits for a threshold to pass since then leaves it alone for an hour, and the money with it.
//
// A takeover stamps the clock as it is now: what it can't finish is back with the others.
func standingStill(threshold time.Duration) bson.D {
	if threshold <= 0 {
		return nil
	}
	past := bson.D{{Key: "$subtract", Value: bson.A{"$$NOW", stallMillisOf(threshold)}}}
	ahead := bson.D{{Key: "$add", Value: bson.A{"$$NOW", stallMillis(threshold, 0)}}}
	return bson.D{{Key: "$expr", Value: bson.D{{Key: "$or", Value: bson.A{
		bson.D{{Key: "$lte", Value: bson.A{"$lastModified", past}}},
		bson.D{{Key: "$gt", Value: bson.A{"$lastModified", ahead}}},
	}}}}}
}

func stateIn(states ...protocol.State) bson.E {
	return bson.E{Key: "state", Value: bson.D{{Key: "$in", Value: states}}}
}

// readTransfers reads transfers with the read concern of the given collection.
func (s *Store) readTransfers(ctx context.Context, requests []*Call, from *mongo.Collection) {
	documents, err := findTransfers(ctx, requests, from)
	for _, r := range requests {
		document, answered := documents[r.Attempt.Transfer.ID]
		if !answered {
			r.answer(protocol.Unknown, err)
			continue
		}
		r.show(document)
	}
}

// findTransfers reads the requests' transfers. Where it fails, those that were answered
// are in what it returns, also as nil.
func findTransfers(ctx context.Context, requests []*Call, from *mongo.Collection) (map[string]bson.Raw, error) {
	works := make([]*Attempt, 0, len(requests))
	asked := make(map[string]bool, len(requests))
	for _, r := range requests {
		if id := r.Attempt.Transfer.ID; !asked[id] {
			asked[id] = true
			works = append(works, r.Attempt)
		}
	}
	documents := make(map[string]bson.Raw, len(works))
	for some := range portions(works, maxAnswerBytes, func(w *Attempt) int { return w.Transfer.bytes() }) {
		ids := make(bson.A, len(some))
		for i, w := range some {
			ids[i] = w.Transfer.ID
		}
		found, err := findByID(ctx, from, ids, options.Find())
		if err != nil {
			return documents, err
		}
		for _, w := range some {
			documents[w.Transfer.ID] = nil
		}
		for _, document := range found {
			id, _ := document.Lookup("_id").StringValueOK()
			documents[id] = document
		}
	}
	return documents, nil
}

// show answers a request with a document of its transfer, nil if there is none.
func (r *Call) show(document bson.Raw) {
	r.answer(protocol.Applied, nil)
	if document == nil {
		return
	}
	t, err := decodeTransfer(document)
	if err != nil {
		r.Cause, r.Answer.Transfer.Found = err, true
		return
	}
	if t.Owner == r.Attempt.Owner {
		r.Attempt.Transfer = t
	}
	r.Answer.Transfer = r.Attempt.image(t)
}

// failure returns a refusal as it is stored.
func (w *Attempt) failure(refusal protocol.Refusal) Failure {
	f := Failure{Code: refusal.Reason.String()}
	if refusal.Participant != protocol.NoParticipant {
		leg := w.participants[refusal.Participant].leg
		f.Ledger, f.Account = leg.Ledger, leg.Account
	}
	if w.Describe != nil {
		f.Message = w.Describe(refusal)
	}
	others, _ := w.others(refusal)
	f.Detail, f.Others = w.detail(refusal), int64(others)
	return f
}
