package deployment

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
)

// oldestOwing returns when the oldest of the transfers was committed that are not
// finished, the zero time if there are none.
func (s *Deployment) oldestOwing(ctx context.Context) (time.Time, error) {
	unfinished := bson.D{{Key: "open", Value: true}, document.AnyHold(), {Key: "committedAt", Value: bson.D{{Key: "$type", Value: "date"}}}}
	oldest := options.FindOne().SetSort(bson.D{{Key: "committedAt", Value: 1}}).SetProjection(bson.D{{Key: "committedAt", Value: 1}})
	document, err := s.Majority.FindOne(ctx, unfinished, oldest).Raw()
	if wire.NotFound(err) {
		return time.Time{}, nil
	}
	at, _ := document.Lookup("committedAt").TimeOK()
	return at, wire.ServerErrorOf(err, wire.RightFind, wire.NamespaceOf(s.Majority))
}

// NeverPurgedBefore returns an instant before which no committed transfer was ever purged, or
// will be; the zero time where that is not known. It lies a margin before the first use
// of any retention: a commit takes its time first and shows later, when somebody has
// looked already for what is not finished.
func (s *Deployment) NeverPurgedBefore(ctx context.Context) (time.Time, error) {
	used, err := s.usedRetentions(wire.Detached(ctx))
	if err != nil {
		return time.Time{}, err
	}
	var until time.Time
	for _, u := range used {
		for _, at := range []time.Time{u.Since, u.Owing} {
			if !at.IsZero() && (until.IsZero() || at.Before(until)) {
				until = at
			}
		}
	}
	if until.IsZero() {
		return until, nil
	}
	return until.Add(-HistoryMargin), nil
}
