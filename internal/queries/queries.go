// Package queries reads stored transfers: one, several, lists, and those that are due.
package queries

import (
	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
)

// Queries reads transfers. It is safe for many goroutines.
type Queries struct {
	*collections.Catalog
	needs map[document.Address][]string // the clusters that a place needs: see Route
}

// New returns the queries of a catalog.
func New(c *collections.Catalog) *Queries {
	q := &Queries{Catalog: c}
	q.needs = q.needsOf()
	return q
}
