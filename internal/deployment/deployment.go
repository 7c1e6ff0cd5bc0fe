// Package deployment makes sure, once per collection, that the servers and collections of a
// deployment can be used, and that every process means the same by them. Its note beside
// each collection says what they mean.
package deployment

import (
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Deployment makes sure that the collections of a catalog can be used, and that everybody
// who uses them means the same by them. It is safe for many goroutines.
type Deployment struct {
	*collections.Catalog
	identity_     atomic.Pointer[string] // of the transfers, once their note was seen
	near          atomic.Bool            // ConnectNear has found nothing wrong
	inspections   map[*collections.Collection]*inspection
	Retention     *retention
	distinctPairs sync.Map // the pairs of *mongo.Collections of one name that are not one collection
}

// New returns the deployment of a catalog. Final transfers are kept for as long
// as keep says; 0: for good.
func New(c *collections.Catalog, keep time.Duration) *Deployment {
	d := &Deployment{Catalog: c, Retention: newRetention(keep, c.Transfers), inspections: map[*collections.Collection]*inspection{}}
	for _, l := range c.All() {
		d.inspections[l] = &inspection{notes: wire.ForCommands(collections.NoteCollection(l.Commands)), surveying: collections.NewSharedCheck()}
	}
	return d
}

// inspection is what is known of a collection.
type inspection struct {
	connected atomic.Bool              // Connect has found nothing wrong with it by itself
	notes     *mongo.Collection        // where its note is
	surveying *collections.SharedCheck // of those who look at the collection and its note
	surveyed  atomic.Bool              // nothing is wrong with the collection
	noted     atomic.Bool              // its note says what this store would say
	unnoted   atomic.Bool              // it had no note when that was looked for
}

// of returns what is known of a collection of the catalog.
func (s *Deployment) of(l *collections.Collection) *inspection { return s.inspections[l] }
