package document

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// Modified sets lastModified to the server's time.
func Modified() bson.E {
	return bson.E{Key: "$currentDate", Value: bson.D{{Key: "lastModified", Value: true}}}
}

// Stalled matches unfinished transfers that stand still, but not holds that may still be
// decided.
func Stalled(threshold time.Duration) bson.D {
	return append(bson.D{
		StateIn(protocol.Preparing, protocol.Committed, protocol.Rollback),
		{Key: "$nor", Value: bson.A{undecided()}},
	}, StandingStill(threshold)...)
}

// StandingStill matches what was not modified for as long as the threshold says, by the
// server's clock, and for longer the more often it was taken over in vain.
// It also matches what was modified further ahead than the threshold; with a threshold of
// zero, everything.
//
//  1. The server's clock is an hour fast, and a process dies in the middle of a transfer.
//  2. The clock is set right. The transfer was modified in an hour.
//  3. A process that waits until a threshold has passed since then leaves the transfer,
//     and the money, alone for an hour.
//
// A takeover stamps the clock as it is now: what it can't finish is back with the others.
func StandingStill(threshold time.Duration) bson.D {
	if threshold <= 0 {
		return nil
	}
	return bson.D{awayFromNow("$lastModified", stallMillisOf(threshold), StallMillis(threshold, 0))}
}

// StateIn selects transfers in one of the states.
func StateIn(states ...protocol.State) bson.E {
	return bson.E{Key: "state", Value: bson.D{{Key: "$in", Value: states}}}
}

// Tick is the resolution of stored times.
const Tick = time.Millisecond

// undecided matches holds that are neither posted nor voided.
func undecided() bson.D {
	return bson.D{{Key: "state", Value: protocol.Preparing}, {Key: "hold", Value: true}}
}

// Unheld matches holds that are not completely prepared yet.
func Unheld() bson.D { return append(undecided(), bson.E{Key: "held", Value: nil}) }

// Postable matches holds that are held and have not expired, by the server's clock.
func Postable() bson.D {
	before := bson.D{{Key: "$lt", Value: bson.A{"$$NOW", "$expiresAt"}}}
	return append(undecided(), bson.E{Key: "held", Value: true}, bson.E{Key: "$expr", Value: before})
}

// Extendable matches holds that are held, have not expired, and would not expire earlier
// than they do if they expired after the given time, by the server's clock.
func Extendable(expiresIn time.Duration) bson.D {
	before := bson.D{{Key: "$lt", Value: bson.A{"$$NOW", "$expiresAt"}}}
	noShorter := bson.D{{Key: "$lte", Value: bson.A{"$expiresAt", ExpiryIn(expiresIn)}}}
	return append(undecided(), bson.E{Key: "held", Value: true},
		bson.E{Key: "$expr", Value: bson.D{{Key: "$and", Value: bson.A{before, noShorter}}}})
}

// Longer matches holds that are held, and would expire earlier than they do if they
// expired after the given time, by the server's clock.
func Longer(expiresIn time.Duration) bson.D {
	shorter := bson.D{{Key: "$gt", Value: bson.A{"$expiresAt", ExpiryIn(expiresIn)}}}
	return append(undecided(), bson.E{Key: "held", Value: true}, bson.E{Key: "$expr", Value: shorter})
}

// ExpiryIn is the instant at which a hold that lasts so long from now on expires, as the
// server computes it.
func ExpiryIn(expiresIn time.Duration) bson.D {
	return bson.D{{Key: "$add", Value: bson.A{"$$NOW", expiresIn.Milliseconds()}}}
}

// Expired matches holds that have expired, by the server's clock.
// They may not be posted any more, and nothing has to be waited for.
func Expired() bson.D {
	over := bson.D{{Key: "$gte", Value: bson.A{"$$NOW", "$expiresAt"}}}
	return append(undecided(), bson.E{Key: "$expr", Value: over})
}

// HasPlace leaves out what has an empty _id: no page can begin behind it. No index is
// searched for that.
func HasPlace() bson.E {
	return bson.E{Key: "$and", Value: bson.A{bson.D{{Key: "$expr", Value: bson.D{{Key: "$ne", Value: bson.A{"$_id", ""}}}}}}}
}

// WithLeg selects transfers with such a leg.
func WithLeg(leg bson.D) bson.E {
	return bson.E{Key: "legs", Value: bson.D{{Key: "$elemMatch", Value: leg}}}
}

// OfAccount selects an account's transfers, by an index.
func OfAccount(ledger, account string) bson.E {
	return WithLeg(bson.D{{Key: "account", Value: account}, {Key: "ledger", Value: ledger}})
}

// NoHold selects what is no hold, by the index of unfinished work.
func NoHold() bson.E {
	return bson.E{Key: "hold", Value: bson.D{{Key: "$in", Value: bson.A{nil, false}}}}
}

// AnyHold selects everything, and names the first key of that index so that it is used.
func AnyHold() bson.E {
	return bson.E{Key: "hold", Value: bson.D{{Key: "$in", Value: bson.A{nil, false, true}}}}
}
