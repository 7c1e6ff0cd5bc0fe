package deployment

import (
	"context"
	"fmt"
	"slices"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
)

// purpose is what a collection is connected for.
type purpose uint8

const (
	// toWork is the purpose of a caller that moves money. The collections are inspected,
	// and a deployment from before there were notes gets them.
	toWork purpose = iota + 1
	// toRead is the purpose of a caller that only reads, and may have no right to
	// anything else. A note has to agree where there is one. Where there is none, nothing
	// is known, and nothing is written.
	toRead
	// toRaise is the purpose of Setup.
	// A note in the format before is as good as one in the present format: Setup raises
	// it.
	toRaise
)

// Connect makes sure that the transfers and the collections at the given addresses can be
// used: see the package's comment for what it asks and in which order. It asks only what
// it needs, so a server that is away holds up no use of the others. The exception is
// documents whose name a ledger on that server has, too.
func (d *Deployment) Connect(ctx context.Context, addresses ...document.Address) error {
	return d.connect(ctx, toWork, addresses)
}

// ConnectToRead is Connect for a caller that only reads. It needs no right to write, or
// to list collections and indexes.
func (d *Deployment) ConnectToRead(ctx context.Context, addresses ...document.Address) error {
	return d.connect(ctx, toRead, addresses)
}

// ConnectSameClient is Connect for the collections that are reached through the client of
// the transfers. It leaves out documents that have to be distinguished from accounts on
// another server. That server may be away, and is asked when a transfer needs it.
func (d *Deployment) ConnectSameClient(ctx context.Context) error {
	addresses := slices.DeleteFunc(d.catalog.Addresses(), func(a document.Address) bool {
		c := d.catalog.At(a)
		return !c.SameClient || len(c.Namesakes) > 0
	})
	now := d.catalog.Clock.Now()
	due := func(a document.Address) bool { return d.known[d.catalog.At(a)].sign.due(now) }
	if d.sameClientConnected.Load() && !d.known[d.catalog.Originals].sign.due(now) && !slices.ContainsFunc(addresses, due) {
		return nil
	}
	if err := d.Connect(ctx, addresses...); err != nil {
		return err
	}
	d.sameClientConnected.Store(true)
	return nil
}

func (d *Deployment) connect(ctx context.Context, to purpose, addresses []document.Address) error {
	ctx = wire.Detached(ctx)
	d.confirmDue(ctx, addresses)
	if err := d.checkAndSurvey(ctx, to, d.catalog.Originals); err != nil {
		return err
	}
	for _, a := range addresses {
		if err := d.checkAndSurvey(ctx, to, d.catalog.At(a)); err != nil {
			return fmt.Errorf("%s: %w", a, err)
		}
	}
	if err := d.requireAllDistinct(ctx, to, addresses); err != nil || to == toRead {
		return err
	}
	if err := d.introduce(ctx, addresses); err != nil {
		return err
	}
	if err := d.retention.Declare(ctx); err != nil {
		return err
	}
	for _, a := range addresses {
		d.known[d.catalog.At(a)].connected.Store(true)
	}
	if len(addresses) > 0 {
		d.agreed()
	}
	return nil
}

// checkAndSurvey makes sure that a collection's server can be used, and then the
// collection.
func (d *Deployment) checkAndSurvey(ctx context.Context, to purpose, c *collections.Collection) error {
	if err := d.catalog.CheckServer(ctx, c.Commands); err != nil {
		return err
	}
	return d.survey(ctx, to, c)
}
