// Package queries reads stored transfers, and changes nothing.
//
//   - By their IDs: one (transfer.go), or several at once (transfers.go).
//   - By what a caller selects (list.go).
//   - By the work that they need (work.go), apart from those that need a cluster that is
//     away (route.go).
//   - As they become final or held (watch.go).
package queries

import (
	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
)

// Queries reads transfers. It is safe for many goroutines.
type Queries struct {
	catalog *collections.Catalog
	needs   map[document.Address][]string // the clusters that an address needs: see Route
}

// New returns the queries of a catalog.
func New(catalog *collections.Catalog) *Queries {
	return &Queries{catalog: catalog, needs: clusterNeeds(catalog)}
}
