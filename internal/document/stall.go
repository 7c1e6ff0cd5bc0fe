package document

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

const (
	// maxDoublings bounds the back-off of takeovers at 64 thresholds: 32 minutes by
	// default. With each doubling a transfer that can't be finished costs half as much;
	// after six of them hundreds cost next to nothing, and one whose cause is repaired is
	// still finished within the hour, by itself.
	maxDoublings = 6
	// freeTakeovers takeovers of a transfer that nothing stands in the way of don't
	// count: the processes that recovered it were killed as well, or frozen, which says
	// nothing about the transfer. Beyond that it may be the transfer that kills them.
	freeTakeovers = 3
)

// Doublings returns how often a threshold is doubled for a transfer, by the number of its
// takeovers and by whether it is known to be stuck.
func Doublings(takeovers int64, stuck bool) int64 {
	takeovers = max(takeovers, 0)
	if !stuck {
		takeovers = max(takeovers-freeTakeovers, 0)
	}
	return min(takeovers, maxDoublings)
}

// StallMillis returns for how long, in milliseconds, a transfer shows no sign of life
// before it is taken over.
func StallMillis(threshold time.Duration, doublings int64) int64 {
	return threshold.Milliseconds() << doublings
}

// stallMillisOf is [StallMillis] of a stored transfer, as the server computes it. It only
// compares what is stored. To calculate with attempts that somebody has made a text would
// fail the whole search, and with it the recovery of all others.
func stallMillisOf(threshold time.Duration) bson.D {
	atLeast := func(takeovers int64) bson.D { return bson.D{{Key: "$gte", Value: bson.A{"$attempts", takeovers}}} }
	isStuck := bson.D{{Key: "$gt", Value: bson.A{"$stuck", nil}}}
	var stuck, others bson.A
	for n := int64(maxDoublings); n > 0; n-- {
		millis := bson.E{Key: "then", Value: StallMillis(threshold, n)}
		stuck = append(stuck, bson.D{{Key: "case", Value: bson.D{{Key: "$and", Value: bson.A{isStuck, atLeast(n)}}}}, millis})
		others = append(others, bson.D{{Key: "case", Value: atLeast(n + freeTakeovers)}, millis})
	}
	return bson.D{{Key: "$switch", Value: bson.D{
		{Key: "branches", Value: append(stuck, others...)}, {Key: "default", Value: StallMillis(threshold, 0)},
	}}}
}
