// Package mongostore performs the protocol's operations as MongoDB commands. It decides
// nothing: it reports what the server answered, and where the answer leaves doubt it
// reports Unknown.
//
// A [Call] is one operation of one [Attempt]. Calls of one [Lane] go out together:
// [Store.Perform] puts them into as few commands as possible. Where it leads:
//
//   - claim.go: inserts, claims and takeovers of transfers;
//   - change.go and finish.go: verifies, decisions, holds and finishes;
//   - write.go and mergedupdate.go: prepares, pays, settles, clears, undos, fence-onlys;
//     statement.go says which of them share a statement;
//   - read.go: fences and deciding reads of participants; readtransfer.go: of transfers;
//   - facts.go, effect.go and requirement.go: what a participant's document shows;
//
// Package fences remembers which fences need no read; package transition has the updates
// of a transfer's own document, and package pipeline the statements that accounts share.
//
// Every write is one plain command with write concern majority, journaled. It is plain,
// because the driver would send a retryable write twice and hide that; its write concern
// is explicit, because the client's default may be weaker.
package mongostore

import (
	"cmp"
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/fences"
	"github.com/mongotransfer/transfer/internal/outbox"
	"github.com/mongotransfer/transfer/internal/pipeline"
	"github.com/mongotransfer/transfer/internal/retention"
)

// Store performs operations. It is safe for many goroutines.
type Store struct {
	catalog      *collections.Catalog
	retention    *retention.Retention
	exactBalance bson.Raw            // the condition that a balance is an exact decimal
	unreserved   map[string]bson.Raw // by the field of markers: the condition that there is none
	bodies       pipeline.Bodies
	trials       pipeline.Trials
	refused      pipeline.Refused
	markerLimit  int
	leastShared  int
	fences       *fences.Cache
	outbox       *outbox.Hand
}

// Limits are the limits of a store.
type Limits struct {
	// Markers is the number of transfers in flight that one participant may have.
	Markers int
	// FenceBytes is the memory for known fences. At 0 none is remembered.
	FenceBytes int64
	// Shared is the least number of accounts that share a statement. 0 stands for 3.
	Shared int
	// Outbox has room for the events that this process delivers itself. nil has none.
	Outbox *outbox.Hand
}

// New returns the store of a catalog and of the retention that its transfers have.
func New(c *collections.Catalog, kept *retention.Retention, limits Limits) (*Store, error) {
	exact, err := document.ExactBalance(c.Fields.Balance)
	if err != nil {
		return nil, err
	}
	unreserved := map[string]bson.Raw{}
	for _, field := range []string{c.Fields.Pending, c.Originals.Fields.Pending} {
		if unreserved[field], err = bson.Marshal(document.NothingReserved(field)); err != nil {
			return nil, err
		}
	}
	bodies, err := pipeline.New(c.Fields)
	if err != nil {
		return nil, err
	}
	return &Store{
		catalog:      c,
		retention:    kept,
		exactBalance: exact,
		unreserved:   unreserved,
		bodies:       bodies,
		markerLimit:  limits.Markers,
		leastShared:  cmp.Or(limits.Shared, leastShared),
		fences:       fences.New(c.Clock.Now, limits.FenceBytes),
		outbox:       limits.Outbox,
	}, nil
}

// WithLimit bounds a context by a limit, measured by the store's clock.
func (s *Store) WithLimit(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return s.catalog.WithLimit(ctx, limit)
}
