package mongostore

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// maxDoublings bounds the back-off of takeovers at 64 thresholds: 32 minutes by default. With each doubling a transfer that can't be
// finished costs half as much; after six of them hundreds cost next to nothing, and one whose cause is repaired is still finished within
// the hour, by itself.
const maxDoublings = 6

// stallMillis returns for how long, in milliseconds, a transfer shows no sign of life before it is taken over: the threshold, doubled by
// each takeover that there was. What can't be finished, or kills the process that works on it, is tried ever more rarely.
func stallMillis(threshold time.Duration, takeovers int64) int64 {
	return threshold.Milliseconds() << min(max(takeovers, 0), maxDoublings)
}

// stallMillisOf is stallMillis of a stored transfer, as the server computes it. It only compares what is stored: to reckon with an attempts
// that somebody has made a text would fail the whole search, and with it the recovery of all others.
func stallMillisOf(threshold time.Duration) bson.D {
	var cases bson.A
	for n := int64(maxDoublings); n > 0; n-- {
		atLeast := bson.D{{Key: "$gte", Value: bson.A{"$attempts", n}}}
		cases = append(cases, bson.D{{Key: "case", Value: atLeast}, {Key: "then", Value: stallMillis(threshold, n)}})
	}
	return bson.D{{Key: "$switch", Value: bson.D{
		{Key: "branches", Value: cases}, {Key: "default", Value: stallMillis(threshold, 0)},
	}}}
}
