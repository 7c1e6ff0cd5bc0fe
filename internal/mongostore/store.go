// Package mongostore performs the protocol's operations as MongoDB commands. It decides nothing: it says what the server
// answered, and where the answer leaves doubt it says Unknown.
//
// Every write is one plain command with write concern majority, journaled. Plain, because the driver would
// send a retryable write twice and hide it; with an explicit write concern, because the client's default may be weaker.
package mongostore

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/retention"
)

// Store performs operations. It is safe for many goroutines.
type Store struct {
	*collections.Catalog
	retention    *retention.Retention
	exactBalance bson.Raw // see exactBalance
	markerLimit  int
	fences       *fenceCache
}

// Limits are what a store keeps to.
type Limits struct {
	Markers    int   // transfers in flight on one participant
	FenceBytes int64 // of memory for known fences; 0: none
}

// New returns the store of a catalog and of the retention that its transfers have.
func New(c *collections.Catalog, kept *retention.Retention, limits Limits) (*Store, error) {
	exact, err := document.ExactBalance(c.Fields.Balance)
	if err != nil {
		return nil, err
	}
	return &Store{
		Catalog:      c,
		retention:    kept,
		exactBalance: exact,
		markerLimit:  limits.Markers,
		fences:       newFenceCache(c.Clock.Now, limits.FenceBytes),
	}, nil
}
