package retention

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
)

const (
	// historyMargin is by how much the history is reported shorter than the retention. It
	// covers a late finish, servers whose clocks differ, and a statement that is being
	// read.
	historyMargin = 5 * time.Minute
	// readingAge is for how long what was read of retentions is used. A retention that
	// came into use since has purged nothing yet.
	readingAge = time.Minute
)

// usedRetention is a document of the collection of retentions.
type usedRetention struct {
	Milliseconds int64     `bson:"_id"`
	Since        time.Time `bson:"since"`           // of its first use
	Owing        time.Time `bson:"owing,omitempty"` // see declaration
}

// EverPurged reports whether final transfers may have been removed.
func (r *Retention) EverPurged(ctx context.Context) (bool, error) {
	ctx, cancel := wire.WithTimeout(wire.Detached(ctx), wire.CommandLimit)
	defer cancel()
	used, err := r.usedRetentions(ctx)
	return len(used) > 0, err
}

// HistoryFrom returns since when the history is whole: no transfer that was committed
// later has been purged, or will be while the answer is used. It is zero if none was ever
// purged.
func (r *Retention) HistoryFrom(ctx context.Context) (time.Time, error) {
	ctx = wire.Detached(ctx)
	used, err := r.usedRetentions(ctx)
	if err != nil || len(used) == 0 {
		return time.Time{}, err
	}
	now, err := r.catalog.ReachedTime(ctx)
	if err != nil {
		return time.Time{}, err
	}
	var from time.Time
	for _, u := range used {
		whole := now.Add(historyMargin - time.Duration(u.Milliseconds)*time.Millisecond)
		if whole.After(u.Since) && whole.After(from) { // before that the time of its first transfer has not come
			from = whole
		}
	}
	return from, nil
}

// NeverPurgedBefore returns an instant before which no committed transfer was ever
// purged, or will be; the zero time where that is not known. It lies a margin before the
// first use of any retention. A commit takes its time first and shows later, when a
// process may already have searched for what is not finished.
func (r *Retention) NeverPurgedBefore(ctx context.Context) (time.Time, error) {
	used, err := r.usedRetentions(wire.Detached(ctx))
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
	return until.Add(-historyMargin), nil
}

// usedRetentions returns the retentions that were ever in use, read a moment ago.
func (r *Retention) usedRetentions(ctx context.Context) ([]usedRetention, error) {
	r.mu.Lock()
	used, age := r.used, r.catalog.Clock.Now().Sub(r.readAt)
	r.mu.Unlock()
	if age >= 0 && age < readingAge {
		return used, nil
	}
	before := r.catalog.Clock.Now()
	byID := bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: 0}}}} // by the index
	used = nil
	if err := wire.FindAll(ctx, r.majority, byID, &used); err != nil {
		return nil, fmt.Errorf("read %s: %w", wire.NamespaceOf(r.majority), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used, r.readAt = used, before
	return used, nil
}

// oldestUnfinishedCommit returns when the oldest transfer was committed that is not
// finished yet, the zero time if there is none.
func (r *Retention) oldestUnfinishedCommit(ctx context.Context) (time.Time, error) {
	committed := bson.E{Key: "committedAt", Value: bson.D{{Key: "$type", Value: "date"}}}
	unfinished := bson.D{{Key: "open", Value: true}, document.AnyHold(), committed}
	oldest := options.FindOne().
		SetSort(bson.D{{Key: "committedAt", Value: 1}}).SetProjection(bson.D{{Key: "committedAt", Value: 1}})
	found, err := wire.FindOne(ctx, r.catalog.Majority, unfinished, oldest)
	if wire.NotFound(err) {
		return time.Time{}, nil
	}
	at, _ := found.Lookup("committedAt").TimeOK()
	return at, err
}
