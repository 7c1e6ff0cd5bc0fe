// Package insight reads what the person on call asks for, and changes nothing.
//
//   - Where one transfer stands at each of its participants (look.go), and what that
//     means (explain.go).
//   - How many transfers are unfinished (count.go).
package insight

import (
	"context"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
)

// Insight reads for the person on call.
// It is safe for concurrent use.
type Insight struct {
	catalog *collections.Catalog
	connect func(context.Context, ...document.Address) error
}

// New returns the insight of a catalog.
// Connect makes sure that what is registered at some addresses can be read.
func New(catalog *collections.Catalog, connect func(context.Context, ...document.Address) error) *Insight {
	return &Insight{catalog: catalog, connect: connect}
}
