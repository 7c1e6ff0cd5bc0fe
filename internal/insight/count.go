package insight

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Stats counts transfers that are unfinished.
// The root has the meaning of each field.
type Stats struct {
	Scheduled   int64     `bson:"scheduled"`
	Due         int64     `bson:"due"`
	Preparing   int64     `bson:"preparing"`
	Held        int64     `bson:"held"`
	Overdue     int64     `bson:"overdue"`
	Committed   int64     `bson:"committed"`
	Rollback    int64     `bson:"rollback"`
	Stuck       int64     `bson:"stuck"`
	Undelivered int64     `bson:"-"`
	Oldest      time.Time `bson:"oldest"`
}

// Count counts what is unfinished, in one pass over the index of that.
// The server reads as many documents as there are, and none that is final.
func (i *Insight) Count(ctx context.Context) (Stats, error) {
	ctx = wire.Detached(ctx)
	pipeline := bson.A{
		bson.D{{Key: "$match", Value: document.Unfinished()}},
		bson.D{{Key: "$group", Value: counted()}},
	}
	var stats Stats
	found, err := wire.Aggregate(ctx, i.catalog.Majority, pipeline)
	if err != nil {
		return stats, err
	}
	for _, group := range found { // there is none where nothing is unfinished
		if err := bson.Unmarshal(group, &stats); err != nil {
			return stats, err
		}
	}
	stats.Undelivered, err = i.undelivered(ctx)
	return stats, err
}

// undelivered counts the transfers that have an event to be delivered, or one that was
// given up. The server reads as many entries of their index.
func (i *Insight) undelivered(ctx context.Context) (int64, error) {
	if !i.catalog.Events.Any() {
		return 0, nil
	}
	pipeline := bson.A{
		bson.D{{Key: "$match", Value: bson.D{document.HasUndelivered()}}},
		bson.D{{Key: "$count", Value: "n"}},
	}
	found, err := wire.Aggregate(ctx, i.catalog.Majority, pipeline)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	n, _ := found[0].Lookup("n").AsInt64OK()
	return n, nil
}

// counted returns the counts of one pass over what is unfinished.
func counted() bson.D {
	var (
		initiated  = inState(protocol.Initiated)
		preparing  = inState(protocol.Preparing)
		committed  = inState(protocol.Committed)
		rolledBack = inState(protocol.Rollback)
		scheduled  = all(isDate("$notBefore"), bson.D{{Key: "$gt", Value: bson.A{"$notBefore", "$$NOW"}}})
		undecided  = all(preparing, isTrue("$hold"))
		held       = all(undecided, isTrue("$held"))
		expired    = all(undecided, isDate("$expiresAt"), bson.D{{Key: "$lte", Value: bson.A{"$expiresAt", "$$NOW"}}})
		isStuck    = bson.D{{Key: "$gt", Value: bson.A{"$stuck", nil}}}
	)
	return bson.D{
		{Key: "_id", Value: nil},
		{Key: "scheduled", Value: countIf(all(initiated, scheduled))},
		{Key: "due", Value: countIf(all(initiated, not(scheduled)))},
		{Key: "preparing", Value: countIf(all(preparing, not(held)))},
		{Key: "held", Value: countIf(held)},
		{Key: "overdue", Value: countIf(all(held, expired))},
		{Key: "committed", Value: countIf(committed)},
		{Key: "rollback", Value: countIf(rolledBack)},
		{Key: "stuck", Value: countIf(isStuck)},
		{Key: "oldest", Value: bson.D{{Key: "$min", Value: dueSince(scheduled, undecided, expired, committed, rolledBack)}}},
	}
}

// dueSince is the time since when a transfer should have come to its end; null of one
// that waits for its time, or for somebody's decision.
//
//   - A hold that has run out: since then.
//     Before that it waits, also if its process died before all of it was held: its
//     caller may ask again, and recovery leaves it alone.
//   - A committed one: since the commit.
//     A hold may have been held for a month before that.
//   - A hold that is given back: since it was written last, or first found to be stuck.
//   - Any other: since it was created, or its time had come.
func dueSince(scheduled, undecided, expired, committed, rolledBack bson.D) bson.D {
	begun := bson.D{{Key: "$max", Value: bson.A{"$createdAt", dateOrNull("$notBefore")}}}
	written := bson.D{{Key: "$ifNull", Value: bson.A{"$stuckAt", "$lastModified"}}}
	since := choose(begun,
		expired, "$expiresAt",
		undecided, nil,
		scheduled, nil,
		committed, "$committedAt",
		all(rolledBack, isTrue("$hold")), written,
	)
	return bson.D{{Key: "$let", Value: bson.D{
		{Key: "vars", Value: bson.D{{Key: "since", Value: since}}}, {Key: "in", Value: dateOrNull("$$since")},
	}}}
}

// choose returns the value behind the first condition that holds, otherwise another one.
func choose(otherwise any, pairs ...any) bson.D {
	var branches bson.A
	for n := 0; n+1 < len(pairs); n += 2 {
		branches = append(branches, bson.D{{Key: "case", Value: pairs[n]}, {Key: "then", Value: pairs[n+1]}})
	}
	return bson.D{{Key: "$switch", Value: bson.D{{Key: "branches", Value: branches}, {Key: "default", Value: otherwise}}}}
}

func inState(state protocol.State) bson.D {
	return bson.D{{Key: "$eq", Value: bson.A{"$state", state}}}
}

func isTrue(field string) bson.D { return bson.D{{Key: "$eq", Value: bson.A{field, true}}} }

func isDate(value string) bson.D {
	return bson.D{{Key: "$eq", Value: bson.A{bson.D{{Key: "$type", Value: value}}, "date"}}}
}

func dateOrNull(value string) bson.D {
	return bson.D{{Key: "$cond", Value: bson.A{isDate(value), value, nil}}}
}

func all(conditions ...bson.D) bson.D { return bson.D{{Key: "$and", Value: conditions}} }

func not(condition bson.D) bson.D { return bson.D{{Key: "$not", Value: bson.A{condition}}} }

func countIf(condition bson.D) bson.D {
	return bson.D{{Key: "$sum", Value: bson.D{{Key: "$cond", Value: bson.A{condition, 1, 0}}}}}
}
