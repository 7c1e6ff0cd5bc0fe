// Package history reads the past of one account: its entries in the order of their commits,
// and its balance at an instant.
package history

import (
	"github.com/mongotransfer/transfer/internal/collections"
)

// Reader read the past of accounts. They are safe for many goroutines.
type Reader struct {
	*collections.Catalog
	barless refusal // of the right to bar
}

// New returns the histories of a catalog.
func New(c *collections.Catalog) *Reader { return &Reader{Catalog: c} }
