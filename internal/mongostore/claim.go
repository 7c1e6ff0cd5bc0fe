package mongostore

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/transition"
	"github.com/mongotransfer/transfer/internal/wire"
)

// insertClaimed stores new transfers as Preparing, at epoch 1.
// An insert can't have the server stamp its time: it carries the process's clock,
// corrected.
func (s *Store) insertClaimed(ctx context.Context, calls []*Call) {
	now, err := s.catalog.ReachedTime(ctx)
	if err != nil {
		answerAll(calls, protocol.NotSent, err)
		return
	}
	documents := make([]bson.Raw, len(calls))
	for i, call := range calls {
		t := call.Attempt.claimed(now)
		documents[i] = t.Encode()
	}
	for i, v := range wire.InsertAll(ctx, s.catalog.Transfers, documents) {
		call := calls[i]
		call.take(v, len(calls) > 1)
		if v.Result == protocol.Applied {
			call.Attempt.Transfer = call.Attempt.claimed(now)
			call.Answer.Transfer = call.Attempt.image(call.Attempt.Transfer)
		}
	}
}

// claimed returns the attempt's transfer as a claim inserts it.
func (a *Attempt) claimed(now time.Time) document.Transfer {
	return transition.Inserted(a.Transfer, a.Owner, now, a.HoldFor)
}

// InsertInitiated stores a transfer for a worker to begin.
// NotMatched means that the ID is taken.
func (s *Store) InsertInitiated(ctx context.Context, t *document.Transfer) (protocol.Result, error) {
	ctx, cancel := s.WithLimit(wire.Detached(ctx), wire.CommandLimit)
	defer cancel()
	now, err := s.catalog.ReachedTime(ctx)
	if err != nil {
		return protocol.NotSent, err
	}
	t.State, t.Open = protocol.Initiated, true
	t.CreatedAt, t.LastModified = now, now
	v := wire.InsertAll(ctx, s.catalog.Transfers, []bson.Raw{t.Encode()})[0]
	return v.Result, v.Err
}

// claim claims stored transfers.
// A single one takes one command. Many take one command that changes them, and one that
// reads which of them show the claimer's nonce.
func (s *Store) claim(ctx context.Context, calls []*Call) {
	if len(calls) == 1 {
		s.claimOne(ctx, calls[0])
		return
	}
	statements := make([]wire.Encoded, len(calls))
	for i, call := range calls {
		statement, err := wire.EncodeUpdate(call.Attempt.claim(call.Op).Statement())
		if err != nil {
			answerAll(calls, protocol.NotSent, err)
			return
		}
		statements[i] = statement
	}
	wire.InSession(ctx, s.catalog.Transfers, func(ctx context.Context) {
		done := wire.UpdateAll(ctx, s.catalog.Transfers, statements)
		var open []*Call
		for i, call := range calls {
			call.take(done.Verdicts[i], true)
			if call.Answer.Result == protocol.Applied || call.Answer.Result == protocol.NotMatched {
				open = append(open, call)
			}
		}
		if done.Matched {
			s.showClaimed(ctx, open)
		}
	})
}

// claimOne performs one claim and keeps its after-image.
func (s *Store) claimOne(ctx context.Context, call *Call) {
	filter, update := call.Attempt.claim(call.Op).Statement()
	t, result, err := s.modifyTransfer(ctx, filter, update)
	call.answer(result, err)
	if result == protocol.Applied {
		call.Attempt.Transfer = t
		call.Answer.Transfer = call.Attempt.image(t)
	}
}

// Extend lets a hold expire so long from now, and returns it as it is then.
// The owner is a nonce that nothing else has.
// NotMatched means that the hold is not held, has expired, or would expire earlier than
// it does.
func (s *Store) Extend(
	ctx context.Context, t document.Transfer, owner string, expiresIn time.Duration,
) (document.Transfer, protocol.Result, error) {
	ctx, cancel := s.WithLimit(wire.Detached(ctx), wire.CommandLimit)
	defer cancel()
	filter, update := transition.Extension{Transfer: t, Owner: owner, ExpiresIn: expiresIn}.Statement()
	return s.modifyTransfer(ctx, filter, update)
}

// modifyTransfer changes one transfer, and returns it as it is then.
func (s *Store) modifyTransfer(ctx context.Context, filter bson.D, update any) (document.Transfer, protocol.Result, error) {
	after, result, err := wire.FindAndModify(ctx, s.catalog.Transfers, filter, update)
	if result != protocol.Applied {
		return document.Transfer{}, result, err
	}
	t, err := document.DecodeTransfer(after)
	if err != nil {
		return document.Transfer{}, protocol.Unknown, err
	}
	return t, protocol.Applied, nil
}

// showClaimed answers the claims of a command if only some of them have matched.
// A transfer that shows the claimer's nonce is the claimer's, in the state and epoch that
// it shows: no other executor changes those without taking it over.
func (s *Store) showClaimed(ctx context.Context, calls []*Call) {
	from := s.catalog.Majority
	if s.catalog.Routed(s.catalog.Transfers) {
		from = s.catalog.Linearizable
	}
	s.readTransfers(ctx, calls, from)
	for _, call := range calls {
		if call.Answer.Result == protocol.Applied && !call.Answer.Transfer.Mine {
			call.answer(protocol.NotMatched, call.Cause)
		}
	}
}

// claim is the claim of the attempt's transfer.
func (a *Attempt) claim(op protocol.Operation) transition.Claim {
	c := transition.Claim{Transfer: a.Transfer, Kind: op.Claim, Owner: a.Owner, Threshold: a.Threshold, Post: a.Post}
	if op.Claim == protocol.CancelInitiated {
		c.Failure = a.failure(op.Refusal)
	}
	return c
}
