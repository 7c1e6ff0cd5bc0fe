// Package retention keeps final transfers for a while, and knows from when on the history
// is complete. Each process may use a retention of its own, or none. Which ones were ever
// in use is stored beside the transfers, before the first of them purges anything: a
// history that can't say what it lacks would be taken for whole.
package retention

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

const (
	// Shortest is the shortest retention that is allowed. An ID stays known for longer
	// than any message about its transfer may be on its way, and any caller may want to
	// ask again.
	Shortest = time.Hour
	// FinishLimit is how late a finish may arrive that names the time of the purge.
	//
	//  1. A stamps a finish with the end of an hour, and is frozen.
	//  2. It wakes two hours later and sends it. The transfer would be purged the moment
	//     it is final, and its ID would be free for a caller who asks once more.
	FinishLimit = time.Minute
)

// Retention is how long this process keeps final transfers, and which retentions were
// ever in use. It is safe for many goroutines.
type Retention struct {
	catalog   *collections.Catalog
	keep      time.Duration     // 0: for good
	commands  *mongo.Collection // which retentions were ever in use, for writes
	majority  *mongo.Collection // the same, for reads
	declaring collections.Turns
	declared  atomic.Bool // it is stored that this retention is in use

	mu     sync.Mutex
	used   []usedRetention
	readAt time.Time // when used was read, by the process's clock
}

// New returns the retention of a process that keeps final transfers for a while; 0: for
// good.
func New(catalog *collections.Catalog, keep time.Duration) *Retention {
	c := collections.RetentionCollection(catalog.Transfers)
	return &Retention{
		catalog:   catalog,
		keep:      keep,
		commands:  wire.ForCommands(c),
		majority:  wire.ForReads(c, readconcern.Majority()),
		declaring: make(collections.Turns, 1),
	}
}

// PurgeAfter returns how long a final transfer is kept, and 0 if it is kept for good.
// Nothing is purged before [Retention.Declare].
func (r *Retention) PurgeAfter() time.Duration {
	if !r.declared.Load() {
		return 0
	}
	return r.keep
}

// Declare makes sure, once, that it is stored which retention is in use. Every process
// can then know it before it purges anything.
func (r *Retention) Declare(ctx context.Context) error {
	if r.keep == 0 || r.declared.Load() {
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
	if _, err := wire.FindID(limited, r.majority, r.keep.Milliseconds()); !wire.NotFound(err) {
		r.declared.Store(err == nil)
		return err
	}
	now, err := r.catalog.ReachedTime(limited)
	if err != nil {
		return err
	}
	owing, err := r.oldestUnfinishedCommit(limited)
	if err != nil {
		return err
	}
	return r.store(limited, declaration{r.keep, now, owing})
}

// IsDeclared reports whether a majority has stored that this retention is in use.
func (r *Retention) IsDeclared(ctx context.Context) (bool, error) {
	if r.keep == 0 || r.declared.Load() {
		return true, nil
	}
	limited, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	_, err := wire.FindID(limited, r.majority, r.keep.Milliseconds())
	if wire.NotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// store writes a declaration.
func (r *Retention) store(ctx context.Context, d declaration) error {
	v := wire.UpdateAll(ctx, r.commands, []declaration{d}).Verdicts[0]
	switch v.Result {
	case protocol.Applied:
		r.declared.Store(true)
		return nil
	case protocol.NotMatched:
		return errors.New("the server has not stored which retention is in use")
	case protocol.Failed:
		return fmt.Errorf("%w: which retention is in use can't be stored in %s: %w",
			collections.ErrUnsupported, wire.NamespaceOf(r.commands), v.Err)
	case protocol.Unknown, protocol.NotSent:
	}
	return v.Err
}

// declaration is the write of a retention. It counts, because a server acknowledges a
// write that changes nothing without asking the others. A primary that was cut off might
// answer that the retention is stored already.
//
// A transfer that was committed and finished before the first use is never purged. One
// that was committed and not finished may be finished by a process that uses the
// retention, and so be purged: owing is when the oldest of those was committed, zero if
// there are none.
type declaration struct {
	keep  time.Duration
	since time.Time
	owing time.Time
}

// Write encodes the declaration as a statement.
func (d declaration) Write(m *wire.Message) {
	m.Begin("q")
	m.Number("_id", d.keep.Milliseconds())
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

// Documents is how many documents the statement writes.
func (d declaration) Documents() int { return 1 }

// Size bounds the bytes of the statement.
func (d declaration) Size() int { return 256 }
