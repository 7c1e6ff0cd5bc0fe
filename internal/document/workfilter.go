package document

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// ClaimedUnfinished selects transfers that a process has claimed and none has finished,
// and that stand still for a threshold: see [StandingStill]. It leaves out holds that may
// still be decided, since there may be many.
func ClaimedUnfinished(threshold time.Duration) bson.E {
	open := bson.E{Key: "open", Value: true}
	plain := bson.D{open, NoHold(), {Key: "epoch", Value: bson.D{{Key: "$ne", Value: 0}}}}
	hold := bson.D{open, {Key: "hold", Value: true}, StateIn(protocol.Committed, protocol.Rollback)}
	return bson.E{Key: "$or", Value: bson.A{
		append(plain, Stalled(threshold)...), append(hold, StandingStill(threshold)...),
	}}
}

// LeftQuiet selects transfers that a process has claimed and none has finished, that
// nothing is known to stand in the way of, and that were not modified for a while. Where
// the process has died, another one may take them over before they have stalled.
//
// It leaves out what was taken over so often that the transfer itself may be what kills
// its processes: that waits ever longer, see [Doublings]. It also leaves out what was
// created within that while, without reading it: under load that is nearly everything.
func LeftQuiet(quiet time.Duration) bson.D {
	since := bson.D{{Key: "$subtract", Value: bson.A{"$$NOW", quiet.Milliseconds()}}}
	return bson.D{
		ClaimedUnfinished(quiet),
		{Key: "stuck", Value: nil},
		{Key: "attempts", Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$gt", Value: int64(freeTakeovers)}}}}},
		{Key: "$expr", Value: bson.D{{Key: "$lte", Value: bson.A{"$createdAt", since}}}},
	}
}

// OwnedBy selects the transfers whose owner begins with one of some texts.
func OwnedBy(prefixes []string) bson.D {
	either := bson.A{}
	for _, prefix := range prefixes {
		either = append(either, bson.D{{Key: "owner", Value: bson.D{
			{Key: "$gte", Value: prefix}, {Key: "$lt", Value: prefix + "\uffff"},
		}}})
	}
	return bson.D{{Key: "$and", Value: bson.A{bson.D{{Key: "$or", Value: either}}}}}
}

// IdleFor selects what was not modified for a while, by the server's clock. It also
// selects what was modified further ahead than that, for the reason that [StandingStill]
// names.
func IdleFor(idle time.Duration) bson.E {
	return awayFromNow("$lastModified", idle.Milliseconds(), idle.Milliseconds())
}

// CreatedBefore selects what was created before a while began, by the server's clock, or
// further ahead than that.
func CreatedBefore(while time.Duration) bson.E {
	return awayFromNow("$createdAt", while.Milliseconds(), while.Milliseconds())
}

// awayFromNow selects documents with a time so many milliseconds in the past, at least,
// or further ahead than that, by the server's clock.
func awayFromNow(field string, past, ahead any) bson.E {
	return bson.E{Key: "$expr", Value: bson.D{{Key: "$or", Value: bson.A{
		bson.D{{Key: "$lte", Value: bson.A{field, bson.D{{Key: "$subtract", Value: bson.A{"$$NOW", past}}}}}},
		bson.D{{Key: "$gt", Value: bson.A{field, bson.D{{Key: "$add", Value: bson.A{"$$NOW", ahead}}}}}},
	}}}}
}

// StillUnfinished selects those of the given transfers that are not final, and not known
// to be stuck.
func StillUnfinished(ids []string) bson.D {
	return bson.D{
		{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}},
		{Key: "open", Value: true}, {Key: "stuck", Value: nil},
	}
}

// ExpiredHolds selects holds that have expired and are not decided, by their index.
func ExpiredHolds() bson.D { return append(bson.D{{Key: "open", Value: true}}, Expired()...) }

// InitiatedAndDue selects transfers that wait for a worker, and had to wait for a time
// that has come by the server's clock. If recent is positive, that time lies at most so
// far back.
func InitiatedAndDue(recent time.Duration) bson.D {
	isDue := bson.D{{Key: "$lte", Value: bson.A{"$notBefore", "$$NOW"}}}
	return initiated(bson.D{{Key: "$type", Value: "date"}}, append(bson.A{isDue}, notOlder("$notBefore", recent)...))
}

// InitiatedAtOnce selects transfers that wait for a worker, and had to wait for no time.
// If recent is positive, they were created at most so far back.
func InitiatedAtOnce(recent time.Duration) bson.D {
	return initiated(nil, notOlder("$createdAt", recent))
}

// initiated selects transfers that wait for a worker, by the index of unfinished work.
func initiated(notBefore any, conditions bson.A) bson.D {
	filter := bson.D{
		{Key: "open", Value: true}, NoHold(), {Key: "epoch", Value: 0}, {Key: "state", Value: protocol.Initiated},
		{Key: "notBefore", Value: notBefore},
	}
	if len(conditions) > 0 {
		filter = append(filter, bson.E{Key: "$expr", Value: bson.D{{Key: "$and", Value: conditions}}})
	}
	return filter
}

// notOlder returns the condition that a time lies at most so far back, none for zero.
func notOlder(field string, recent time.Duration) bson.A {
	if recent <= 0 {
		return nil
	}
	from := bson.D{{Key: "$subtract", Value: bson.A{"$$NOW", recent.Milliseconds()}}}
	return bson.A{bson.D{{Key: "$gte", Value: bson.A{field, from}}}}
}
