package deployment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// EverPurged reports whether final transfers may have been removed.
func (s *Deployment) EverPurged(ctx context.Context) (bool, error) {
	ctx, cancel := wire.WithTimeout(wire.Detached(ctx), wire.CommandLimit)
	defer cancel()
	used, err := s.usedRetentions(ctx)
	return len(used) > 0, err
}

const (
	// ShortestRetention keeps the ID of a final transfer for longer than any message about it may be on its way, and any caller may
	// want to ask again.
	ShortestRetention = time.Hour
	// FinishLimit is how late a finish may arrive that names the time of the purge. 1. A stamps a finish with the end of an hour, and is
	// frozen. 2. It wakes two hours later and sends it: the transfer would be purged the moment it is final, and its ID free for a
	// caller who asks once more.
	FinishLimit = time.Minute
	// HistoryMargin is what the history is told to be shorter than the retention: a late finish, servers whose clocks differ, and a
	// statement that is being read.
	HistoryMargin = 5 * time.Minute
	// RetentionAge is how long what was read of retentions is used. A retention that came into use since has purged nothing yet.
	RetentionAge = time.Minute
)

// retention removes final transfers after a while, and knows which retentions were ever used.
type retention struct {
	after     time.Duration // 0: they are kept
	commands  *mongo.Collection
	majority  *mongo.Collection
	declaring collections.Turns
	declared  atomic.Bool // it is stored that this retention is in use

	mu   sync.Mutex
	used []UsedRetention
	Read time.Time // when used was read, by the process's clock
}

// UsedRetention is a document of the collection of retentions.
type UsedRetention struct {
	Milliseconds int64     `bson:"_id"`
	Since        time.Time `bson:"since"`
	Owing        time.Time `bson:"owing,omitempty"` // see declaration
}

func newRetention(after time.Duration, transfers *mongo.Collection) *retention {
	c := collections.RetentionCollection(transfers)
	return &retention{after: after, commands: wire.ForCommands(c), majority: wire.ForReads(c, readconcern.Majority()), declaring: make(collections.Turns, 1)}
}

// PurgeAfter returns how long final transfers are kept, once that is stored; false: for good.
func (s *Deployment) PurgeAfter() (after time.Duration, purges bool) {
	return s.Retention.after, s.Retention.declared.Load()
}

// declare makes sure, once, that everybody can know of the retention before it purges anything.
func (s *Deployment) declare(ctx context.Context) error {
	r := s.Retention
	if r.after == 0 || r.declared.Load() {
		return nil
	}
	if err := r.declaring.Acquire(ctx); err != nil {
		return err
	}
	defer r.declaring.Release()
	if r.declared.Load() {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	// What a majority has stored of it stays, so that it need not be written again.
	if _, err := wire.FindID(limited, r.majority, r.after.Milliseconds()); !wire.NotFound(err) {
		r.declared.Store(err == nil)
		return wire.ServerErrorOf(err, "find", wire.NamespaceOf(r.majority))
	}
	now, err := s.ReachedTime(limited)
	if err != nil {
		return err
	}
	owing, err := s.oldestOwing(limited)
	if err != nil {
		return err
	}
	v := wire.UpdateAll(limited, r.commands, []declaration{{r.after, now, owing}}).Verdicts[0]
	switch v.Result {
	case protocol.Applied:
		r.declared.Store(true)
		return nil
	case protocol.NotMatched:
		return errors.New("the server has not stored which retention is in use")
	case protocol.Failed:
		return fmt.Errorf("%w: which retention is in use can't be stored in %s: %w", collections.ErrUnsupported, wire.NamespaceOf(r.commands), v.Err)
	case protocol.Unknown, protocol.NotSent:
	}
	return v.Err
}

// declaration is the write of a retention. It counts, because a write that changes
// nothing is acknowledged without asking anybody: a cut-off old primary might say that it
// is stored already.
//
// What was committed before the first use, and finished by then, is never purged. What
// was not finished may be finished by whoever uses the retention, and so purged: owing is
// when the oldest of those was committed, zero if there were none.
type declaration struct {
	after time.Duration
	since time.Time
	owing time.Time
}

func (d declaration) Write(m *wire.Message) {
	m.Begin("q")
	m.Number("_id", d.after.Milliseconds())
	m.End()
	m.Begin("u")
	m.Begin("$setOnInsert")
	m.Date("since", d.since)
	if !d.owing.IsZero() {
		m.Date("owing", d.owing)
	}
	m.End()
	m.Begin("$inc")
	m.Number("coordinators", 1)
	m.End()
	m.End()
	m.Flag("upsert", true)
}

// Upserts says that the write needs the right to insert as well.
func (d declaration) Upserts() {}

func (d declaration) Documents() int { return 1 }

func (d declaration) Size() int { return 256 }

// HistoryFrom returns from when on the history is whole: no transfer that was committed later has been purged, or will be while the
// answer is used. It is zero where none was ever purged.
func (s *Deployment) HistoryFrom(ctx context.Context) (time.Time, error) {
	ctx = wire.Detached(ctx)
	used, err := s.usedRetentions(ctx)
	if err != nil || len(used) == 0 {
		return time.Time{}, err
	}
	now, err := s.ReachedTime(ctx)
	if err != nil {
		return time.Time{}, err
	}
	var from time.Time
	for _, u := range used {
		whole := now.Add(HistoryMargin - time.Duration(u.Milliseconds)*time.Millisecond)
		if whole.After(u.Since) && whole.After(from) { // before that its first transfer is not due yet
			from = whole
		}
	}
	return from, nil
}

// usedRetentions returns the retentions that were ever in use, read a moment ago.
func (s *Deployment) usedRetentions(ctx context.Context) ([]UsedRetention, error) {
	r := s.Retention
	r.mu.Lock()
	used, age := r.used, s.Clock.Now().Sub(r.Read)
	r.mu.Unlock()
	if age >= 0 && age < RetentionAge {
		return used, nil
	}
	before := s.Clock.Now()
	byID := bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: 0}}}} // by the index
	used = nil
	if err := wire.FindAll(ctx, r.majority, byID, &used); err != nil {
		return nil, fmt.Errorf("read %s: %w", wire.NamespaceOf(r.majority), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used, r.Read = used, before
	return used, nil
}
