package transition

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
)

const (
	// firstRetry is how long an event waits after its first failure. It doubles with each
	// further one, up to longestRetry.
	firstRetry   = time.Second
	longestRetry = 5 * time.Minute
)

// RetryAfter returns how long an event waits after as many attempts.
func RetryAfter(attempts int64) time.Duration {
	for wait := firstRetry; ; wait *= 2 {
		if attempts--; attempts <= 0 || wait >= longestRetry {
			return min(wait, longestRetry)
		}
	}
}

// Delivery is a change of the outboxes of some transfers: see [Take], [Delivered],
// [Undone] and [Failed]. All of them judge the time by the server's clock.
type Delivery struct {
	// IDs are those of the transfers.
	IDs []string
	// where are more conditions, and update is the pipeline.
	where  bson.D
	update bson.A
}

// Write writes the statement.
func (d Delivery) Write(m *wire.Message) {
	m.Begin("q")
	requireIDs(m, d.IDs)
	for _, e := range d.where {
		m.Value(e.Key, wire.RawValue(e.Value))
	}
	m.End()
	m.Value("u", wire.RawValue(d.update))
	if len(d.IDs) > 1 {
		m.Flag("multi", true)
	}
}

// Documents returns how many documents the statement is for.
func (d Delivery) Documents() int { return len(d.IDs) }

// Size bounds the bytes of the statement.
func (d Delivery) Size() int {
	size := 3 << 10
	for _, id := range d.IDs {
		size += len(id) + 16
	}
	return size
}

// Update returns the statement as a filter and an update of the first transfer.
func (d Delivery) Update() (filter bson.D, update bson.A) {
	return append(bson.D{{Key: "_id", Value: d.IDs[0]}}, d.where...), d.update
}

// Take takes the events of some transfers in hand that are due. One that was tried as
// often as most allows is given up instead: who had it in hand has not come back. It
// keeps the lease, by which whoever has given it up finds it.
func Take(ids []string, by bson.ObjectID, most int) Delivery {
	due := bson.D{{Key: "$and", Value: bson.A{
		bson.D{{Key: "$eq", Value: bson.A{bson.D{{Key: "$type", Value: "$$e.due"}}, "date"}}},
		bson.D{{Key: "$or", Value: bson.A{bson.D{{Key: "$lte", Value: bson.A{"$$e.due", "$$NOW"}}}, isFar()}}},
	}}}
	taken := merged(bson.D{
		{Key: "due", Value: later(EventLease.Milliseconds())},
		{Key: "by", Value: by},
		{Key: "attempts", Value: bson.D{{Key: "$add", Value: bson.A{attempts(), 1}}}},
	})
	tried := bson.D{{Key: "$gte", Value: bson.A{attempts(), most}}}
	lost := merged(bson.D{{Key: "due", Value: givenUp()}, {Key: "by", Value: by}})
	entry := either(due, either(tried, lost, taken), "$$e")
	return Delivery{
		IDs:    ids,
		where:  append(document.AwaitsDelivery(), isArray()),
		update: settled(each(entry)),
	}
}

// Delivered removes the events of a kind from the outboxes of some transfers, where they
// are in hand by one of the leases.
//
// It requires the lease.
//
//  1. A is frozen, and has delivered an event.
//  2. B delivers it again, the transfer is purged, and its ID is used for another one.
//  3. A's mark arrives: the event of the new one would never be delivered.
func Delivered(ids []string, kind document.EventKind, leases []bson.ObjectID) Delivery {
	stays := bson.D{{Key: "$not", Value: bson.A{claimedBy(kind, leases)}}}
	left := bson.D{{Key: "$filter", Value: bson.D{
		{Key: "input", Value: "$outbox"}, {Key: "as", Value: "e"}, {Key: "cond", Value: stays},
	}}}
	return Delivery{IDs: ids, where: byLease(leases), update: settled(left)}
}

// Failed has events tried again later, or gives them up where they were tried as often as
// most allows. It requires the lease, as [Delivered] does.
func Failed(ids []string, kind document.EventKind, leases []bson.ObjectID, most int) Delivery {
	doubled := bson.D{{Key: "$pow", Value: bson.A{2, bson.D{{Key: "$subtract", Value: bson.A{attempts(), 1}}}}}}
	wait := bson.D{{Key: "$min", Value: bson.A{
		longestRetry.Milliseconds(),
		bson.D{{Key: "$multiply", Value: bson.A{firstRetry.Milliseconds(), doubled}}},
	}}}
	tried := bson.D{{Key: "$gte", Value: bson.A{attempts(), most}}}
	again := bson.D{{Key: "$add", Value: bson.A{"$$NOW", wait}}}
	failed := rest(attempts(), either(tried, givenUp(), again))
	entry := either(claimedBy(kind, leases), failed, "$$e")
	return Delivery{IDs: ids, where: byLease(leases), update: settled(each(entry))}
}

// Undone puts events back that were taken in hand and not begun with: those of a kind, or
// of all kinds, if kind is "", but for what was given up. It requires the lease, as
// [Delivered] does.
func Undone(ids []string, kind document.EventKind, leases []bson.ObjectID) Delivery {
	before := bson.D{{Key: "$max", Value: bson.A{0, bson.D{{Key: "$subtract", Value: bson.A{attempts(), 1}}}}}}
	taken := claimedBy(kind, leases)
	if kind == "" {
		taken = bson.D{{Key: "$and", Value: bson.A{
			bson.D{{Key: "$in", Value: bson.A{"$$e.by", leases}}},
			bson.D{{Key: "$not", Value: bson.A{wasGivenUp()}}},
		}}}
	}
	entry := either(taken, rest(before, "$$NOW"), "$$e")
	return Delivery{IDs: ids, where: byLease(leases), update: settled(each(entry))}
}

// Redeliver has all events of a transfer tried from the beginning that nobody has in
// hand, and those that are due too late for that. What is to be purged waits for that
// again.
func Redeliver(id string) Delivery {
	waits := bson.D{{Key: "$or", Value: bson.A{
		bson.D{{Key: "$eq", Value: bson.A{bson.D{{Key: "$type", Value: "$$e.by"}}, "missing"}}},
		isFar(), // what was given up, too
	}}}
	entry := either(waits, rest(0, "$$NOW"), "$$e")
	postponed := bson.D{
		{Key: "outbox", Value: each(entry)},
		{Key: "keepUntil", Value: bson.D{{Key: "$ifNull", Value: bson.A{"$purgeAt", "$keepUntil"}}}},
		{Key: "purgeAt", Value: "$$REMOVE"},
	}
	return Delivery{
		IDs:    []string{id},
		where:  bson.D{document.HasUndelivered(), isArray()},
		update: bson.A{bson.D{{Key: "$set", Value: postponed}}},
	}
}

// byLease requires an outbox with an event that is in hand by one of the leases.
func byLease(leases []bson.ObjectID) bson.D {
	return bson.D{{Key: "outbox.by", Value: bson.D{{Key: "$in", Value: leases}}}, isArray()}
}

// isArray requires an outbox that the pipelines can go through. Something else that
// somebody has put there would make the update fail, and with it that of all the other
// transfers.
func isArray() bson.E { return bson.E{Key: "outbox", Value: bson.D{{Key: "$type", Value: "array"}}} }

// claimedBy is the condition that an entry is of a kind, and claimed by one of the
// leases.
func claimedBy(kind document.EventKind, leases []bson.ObjectID) bson.D {
	return bson.D{{Key: "$and", Value: bson.A{
		bson.D{{Key: "$eq", Value: bson.A{"$$e.kind", string(kind)}}},
		bson.D{{Key: "$in", Value: bson.A{"$$e.by", leases}}},
	}}}
}

// attempts is how often the entry was tried.
func attempts() bson.D {
	return bson.D{{Key: "$cond", Value: bson.A{
		bson.D{{Key: "$isNumber", Value: "$$e.attempts"}}, "$$e.attempts", 0,
	}}}
}

// givenUp is the time of an event that is not tried any more. It is behind all times.
func givenUp() bson.D { return bson.D{{Key: "$literal", Value: bson.MaxKey{}}} }

// wasGivenUp is the condition that the entry has the time of givenUp.
func wasGivenUp() bson.D {
	return bson.D{{Key: "$eq", Value: bson.A{bson.D{{Key: "$type", Value: "$$e.due"}}, "maxKey"}}}
}

// isFar is the condition that the entry is due later than by any lease or retry.
func isFar() bson.D {
	return bson.D{{Key: "$gt", Value: bson.A{"$$e.due", later(document.FarDue.Milliseconds())}}}
}

// later is the server's time, and some milliseconds.
func later(milliseconds int64) bson.D {
	return bson.D{{Key: "$add", Value: bson.A{"$$NOW", milliseconds}}}
}

// merged is the entry with some fields replaced.
func merged(fields bson.D) bson.D {
	return bson.D{{Key: "$mergeObjects", Value: bson.A{"$$e", fields}}}
}

// rest is the entry as nobody's, with another count of attempts and another time.
func rest(attempts, due any) bson.D {
	return bson.D{
		{Key: "kind", Value: "$$e.kind"}, {Key: "at", Value: "$$e.at"},
		{Key: "due", Value: due}, {Key: "attempts", Value: attempts},
	}
}

func either(condition, then, otherwise any) bson.D {
	return bson.D{{Key: "$cond", Value: bson.A{condition, then, otherwise}}}
}

// each is the outbox with each entry replaced.
func each(entry any) bson.D {
	return bson.D{{Key: "$map", Value: bson.D{
		{Key: "input", Value: "$outbox"}, {Key: "as", Value: "e"}, {Key: "in", Value: entry},
	}}}
}

// settled is the pipeline that sets the outbox. Once no event waits any more, it also has
// the time of the purge where the server finds it: an event that was given up does not
// keep a transfer.
func settled(outbox any) bson.A {
	over := bson.D{{Key: "$allElementsTrue", Value: bson.A{bson.D{{Key: "$map", Value: bson.D{
		{Key: "input", Value: bson.D{{Key: "$ifNull", Value: bson.A{"$outbox", bson.A{}}}}}, {Key: "as", Value: "e"},
		{Key: "in", Value: wasGivenUp()},
	}}}}}}
	empty := bson.D{{Key: "$eq", Value: bson.A{"$outbox", bson.A{}}}}
	return bson.A{
		bson.D{{Key: "$set", Value: bson.D{{Key: "outbox", Value: outbox}}}},
		bson.D{{Key: "$set", Value: bson.D{
			{Key: "purgeAt", Value: either(over, bson.D{{Key: "$ifNull", Value: bson.A{"$purgeAt", "$keepUntil"}}}, "$purgeAt")},
			{Key: "keepUntil", Value: either(over, "$$REMOVE", "$keepUntil")},
			{Key: "outbox", Value: either(empty, "$$REMOVE", "$outbox")},
		}}},
	}
}
