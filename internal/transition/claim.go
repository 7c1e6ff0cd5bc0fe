package transition

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// Inserted returns a transfer as the claim of an execution inserts it.
// A hold lasts as long as holdFor says.
func Inserted(t document.Transfer, owner string, now time.Time, holdFor time.Duration) document.Transfer {
	t.State, t.Open, t.Epoch, t.Owner = protocol.Preparing, true, 1, owner
	t.CreatedAt, t.LastModified = now, now
	if t.Hold {
		// Truncated, as it will be read back.
		t.ExpiresAt = now.Add(holdFor).Truncate(time.Millisecond)
	}
	return t
}

// Claim claims a stored transfer for an execution.
type Claim struct {
	// Transfer is the transfer as the execution has read it.
	Transfer document.Transfer
	// Kind is the kind of the claim.
	Kind protocol.ClaimKind
	// Owner is the execution's nonce.
	Owner string
	// Threshold is how long a transfer must stand still before it is taken over.
	Threshold time.Duration
	// Failure is why a transfer is cancelled that no worker has begun.
	Failure document.Failure
	// Post is what is posted of a hold; nil: all of it.
	Post *money.Amount
}

// Statement returns the update.
//
// It requires the digest that the execution was made from.
//
//  1. A reads a transfer.
//  2. The transfer is purged, and its ID is used again for another one.
//  3. A's claim must not get the new one.
func (c Claim) Statement() (filter, update bson.D) {
	filter = bson.D{
		{Key: "_id", Value: c.Transfer.ID},
		{Key: "digest", Value: bson.D{{Key: "$eq", Value: c.Transfer.Digest}}},
	}
	if c.Transfer.Reverses != "" {
		filter = append(filter, c.plan())
	}
	set := bson.D{{Key: "owner", Value: c.Owner}}
	raise := bson.D{{Key: "epoch", Value: int64(1)}}
	modified := document.Modified()
	switch c.Kind {
	case protocol.FromInitiated:
		filter = append(filter, bson.E{Key: "state", Value: protocol.Initiated})
		set = append(set, bson.E{Key: "state", Value: protocol.Preparing}, bson.E{Key: "epoch", Value: int64(1)})
		raise = nil
	case protocol.CancelInitiated:
		filter = append(filter, bson.E{Key: "state", Value: protocol.Initiated})
		set = append(set, bson.E{Key: "state", Value: protocol.Rollback}, bson.E{Key: "epoch", Value: int64(1)},
			bson.E{Key: "failure", Value: c.Failure})
		raise = nil
	case protocol.TakeOver:
		filter = append(filter, document.Stalled(c.Threshold)...)
		raise = append(raise, bson.E{Key: "attempts", Value: int64(1)})
	case protocol.TakeUnheld:
		filter = append(append(filter, document.Unheld()...), document.StandingStill(c.Threshold)...)
		raise = append(raise, bson.E{Key: "attempts", Value: int64(1)})
	case protocol.TakeToCancel:
		filter = append(filter, bson.E{Key: "state", Value: protocol.Preparing})
	case protocol.Expire:
		filter = append(filter, document.Expired()...)
	case protocol.Post: // the takeover and the decision in one
		filter = append(filter, document.Postable()...)
		set = append(set, bson.E{Key: "state", Value: protocol.Committed})
		if c.Post != nil {
			set = append(set, bson.E{Key: "posted", Value: *c.Post})
		}
		modified.Value = bson.D{{Key: "lastModified", Value: true}, {Key: "committedAt", Value: true}}
	case protocol.Replan:
		filter = append(filter, bson.E{Key: "state", Value: protocol.Preparing},
			bson.E{Key: "epoch", Value: c.Transfer.Epoch}, bson.E{Key: "owner", Value: c.Transfer.Owner})
		set = append(set, bson.E{Key: "legs", Value: c.Transfer.Legs}, bson.E{Key: "whole", Value: c.Transfer.Whole})
		raise = append(raise, bson.E{Key: "plan", Value: int64(1)})
	case protocol.Insert: // not of a stored transfer
	}
	update = bson.D{{Key: "$set", Value: set}}
	if raise != nil {
		update = append(update, bson.E{Key: "$inc", Value: raise})
	}
	return filter, append(update, modified)
}

// plan requires that a reversal moves what the execution was made for.
//
//  1. A reads a reversal of all, which moves 60.
//  2. Less is left, and its execution plans it anew: it moves 20.
//  3. A takes it over, and must not move 60.
func (c Claim) plan() bson.E {
	if c.Transfer.Plan == 0 {
		return bson.E{Key: "plan", Value: nil}
	}
	return bson.E{Key: "plan", Value: c.Transfer.Plan}
}
