package deployment

import (
	"context"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
)

// NamesOther reports whether a stored transfer was stored by a process in which one of
// its names stands for another collection than here.
//
// A transfer stores name and namespace of each collection. Another namespace may be a new
// one of the same collection, which was moved with its identity: the records know. Where
// nothing is recorded, as before there were records, it counts as that.
func (d *Deployment) NamesOther(ctx context.Context, stored *document.Transfer) (bool, error) {
	ctx = wire.Detached(ctx)
	for p := range stored.Participants() {
		address, registered := p.Address()
		if !registered {
			continue
		}
		other, err := d.standsFor(ctx, d.catalog.At(address), p.Namespace())
		if err != nil || other {
			return other, err
		}
	}
	return false, nil
}

// standsFor reports whether the name of a collection, with another namespace, is that of
// another collection.
func (d *Deployment) standsFor(ctx context.Context, c *collections.Collection, namespace string) (other bool, err error) {
	if c == nil || namespace == c.Namespace {
		return false, nil
	}
	own := d.known[c].sign.identity.Load()
	if own == nil {
		return false, nil
	}
	there := *c
	there.Namespace = namespace
	recorded, err := d.readRecord(ctx, &there)
	return recorded.found && recorded.identity != *own, err
}
