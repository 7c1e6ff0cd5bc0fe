package mongostore

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

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
		update = bson.D{{Key: "$set", Value: mine}, document.Modified()}
	case protocol.TakeOver:
		filter = append(filter, document.Stalled(w.Threshold)...)
		update = bson.D{{Key: "$set", Value: mine}, again, document.Modified()}
	case protocol.TakeToCancel:
		filter = append(filter, bson.E{Key: "state", Value: protocol.Preparing})
		update = bson.D{{Key: "$set", Value: mine}, raise, document.Modified()}
	case protocol.CancelInitiated:
		filter = append(filter, bson.E{Key: "state", Value: protocol.Initiated})
		mine = append(mine, bson.E{Key: "state", Value: protocol.Rollback}, bson.E{Key: "epoch", Value: int64(1)},
			bson.E{Key: "failure", Value: w.failure(op.Refusal)})
		update = bson.D{{Key: "$set", Value: mine}, document.Modified()}
	case protocol.TakeUnheld:
		filter = append(append(filter, document.Unheld()...), document.StandingStill(w.Threshold)...)
		update = bson.D{{Key: "$set", Value: mine}, again, document.Modified()}
	case protocol.Post:
		filter = append(filter, document.Postable()...)
		update = w.post(mine)
	case protocol.Expire:
		filter = append(filter, document.Expired()...)
		update = bson.D{{Key: "$set", Value: mine}, raise, document.Modified()}
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
	statements := make([]wire.Encoded, len(requests))
	for i, r := range requests {
		st, err := wire.EncodeUpdate(r.Attempt.claimStatement(r.Op))
		if err != nil {
			answerAll(requests, protocol.NotSent, err)
			return
		}
		statements[i] = st
	}
	wire.InSession(ctx, s.Transfers, func(ctx context.Context) {
		done := wire.UpdateAll(ctx, s.Transfers, statements)
		var open []*Call
		for i, r := range requests {
			r.take(done.Verdicts[i], true)
			if r.Answer.Result == protocol.Applied || r.Answer.Result == protocol.NotMatched {
				open = append(open, r)
			}
		}
		if done.Matched {
			s.showClaimed(ctx, open)
		}
	})
}

// showClaimed answers claims that were sent, and of which some have matched. What shows the claimer's nonce is the claimer's, in
// the state and epoch that are shown: nobody else changes those without taking it over.
func (s *Store) showClaimed(ctx context.Context, requests []*Call) {
	from := s.Majority
	if s.Routed(s.Transfers) {
		from = s.Linearizable
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
	after, result, err := wire.FindAndModify(ctx, s.Transfers, filter, update)
	r.answer(result, err)
	if result != protocol.Applied {
		return
	}
	t, err := document.DecodeTransfer(after)
	if err != nil {
		r.answer(protocol.Unknown, err)
		return
	}
	r.Attempt.Transfer = t
	r.Answer.Transfer = r.Attempt.image(t)
}

// insertClaimed stores new transfers. An insert can't stamp the server's time: it carries the process's clock, corrected.
func (s *Store) insertClaimed(ctx context.Context, requests []*Call) {
	now, err := s.ReachedTime(ctx)
	if err != nil {
		answerAll(requests, protocol.NotSent, err)
		return
	}
	claimed := make([]document.Transfer, len(requests))
	documents := make([]bson.Raw, len(requests))
	for i, r := range requests {
		t := r.Attempt.Transfer
		t.State, t.Open, t.Epoch, t.Owner = protocol.Preparing, true, 1, r.Attempt.Owner
		t.CreatedAt, t.LastModified = now, now
		if t.Hold {
			t.ExpiresAt = now.Add(r.Attempt.HoldFor).Truncate(time.Millisecond) // as it will be read back
		}
		claimed[i], documents[i] = t, t.Encode()
	}
	for i, v := range wire.InsertAll(ctx, s.Transfers, documents) {
		r := requests[i]
		r.take(v, len(requests) > 1)
		if v.Result == protocol.Applied {
			r.Attempt.Transfer = claimed[i]
			r.Answer.Transfer = r.Attempt.image(claimed[i])
		}
	}
}

// InsertInitiated stores a transfer for a worker. NotMatched: the ID is taken.
func (s *Store) InsertInitiated(ctx context.Context, t *document.Transfer) (protocol.Result, error) {
	ctx, cancel := s.WithLimit(wire.Detached(ctx), wire.CommandLimit)
	defer cancel()
	now, err := s.ReachedTime(ctx)
	if err != nil {
		return protocol.NotSent, err
	}
	t.State, t.Open = protocol.Initiated, true
	t.CreatedAt, t.LastModified = now, now
	v := wire.InsertAll(ctx, s.Transfers, []bson.Raw{t.Encode()})[0]
	return v.Result, v.Err
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
	for some := range wire.Portions(works, wire.MaxAnswerBytes, func(w *Attempt) int { return w.Transfer.Size() }) {
		ids := make(bson.A, len(some))
		for i, w := range some {
			ids[i] = w.Transfer.ID
		}
		found, err := wire.FindByID(ctx, from, ids, options.Find())
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
func (r *Call) show(doc bson.Raw) {
	r.answer(protocol.Applied, nil)
	if doc == nil {
		return
	}
	t, err := document.DecodeTransfer(doc)
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
func (w *Attempt) failure(refusal protocol.Refusal) document.Failure {
	f := document.Failure{Code: refusal.Reason.String()}
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
