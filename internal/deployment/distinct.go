package deployment

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/inspection"
	"github.com/mongotransfer/transfer/internal/wire"
)

// requireAllDistinct makes sure that no two of the addresses lead to one collection, and
// none to the transfers.
func (d *Deployment) requireAllDistinct(ctx context.Context, to purpose, addresses []document.Address) error {
	handles := []*mongo.Collection{d.catalog.Transfers}
	for _, a := range addresses {
		handle := d.catalog.At(a).Commands
		for _, other := range handles {
			if err := d.requireDistinct(ctx, to, handle, other); err != nil {
				return err
			}
		}
		handles = append(handles, handle)
		if err := d.requireNoAccounts(ctx, to, a); err != nil {
			return err
		}
	}
	return nil
}

// requireNoAccounts makes sure that documents are not the collection of a ledger, even of
// one that is not used now: an effect would set an account's balance. While the server of
// a ledger of the same name is away, this is not known, and the effects have to wait. Two
// ledgers need no such check: it is enough that no transfer uses both.
func (d *Deployment) requireNoAccounts(ctx context.Context, to purpose, documents document.Address) error {
	if !documents.Documents {
		return nil
	}
	c := d.catalog.At(documents)
	for _, ledger := range c.Namesakes {
		other := d.catalog.At(ledger).Commands
		if err := d.catalog.CheckServer(ctx, other); err != nil {
			return fmt.Errorf("whether %s and %s are one collection, %s: %w", documents, ledger, c.Namespace, err)
		}
		if err := d.requireDistinct(ctx, to, c.Commands, other); err != nil {
			return err
		}
	}
	return nil
}

// requireDistinct refuses one collection that is reached through two clients. The UUIDs
// of two collections of one name show it, and are compared once. To have UUIDs,
// collections that are missing are created. A caller that only reads creates nothing: a
// collection that is missing can't be mistaken for another one.
func (d *Deployment) requireDistinct(ctx context.Context, to purpose, a, b *mongo.Collection) error {
	if a == b || wire.NamespaceOf(a) != wire.NamespaceOf(b) || d.knownDistinct(a, b) {
		return nil
	}
	first, err := collectionUUID(ctx, to, a)
	if err != nil || first == "" {
		return err
	}
	second, err := collectionUUID(ctx, to, b)
	if err != nil || second == "" {
		return err
	}
	if first == second {
		return fmt.Errorf("%w: the collection %s is registered under two names, through two clients",
			collections.ErrUnsupported, wire.NamespaceOf(a))
	}
	d.distinct.Store([2]*mongo.Collection{a, b}, true)
	return nil
}

// knownDistinct reports whether two handles of one name, in this order, are known to be
// two collections.
func (d *Deployment) knownDistinct(a, b *mongo.Collection) bool {
	_, known := d.distinct.Load([2]*mongo.Collection{a, b})
	return known
}

// collectionUUID returns the UUID by which a collection differs from others of its name,
// "" if the collection does not exist and is not to be created.
func collectionUUID(ctx context.Context, to purpose, handle *mongo.Collection) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	spec, found, err := inspection.Describe(ctx, handle)
	if err == nil && !found && to == toWork {
		if err = create(ctx, handle); err == nil {
			spec, found, err = inspection.Describe(ctx, handle)
		}
	}
	switch {
	case err != nil:
		return "", err
	case !found && to == toRead:
		return "", nil
	case !found || spec.UUID == nil:
		return "", fmt.Errorf("the server did not report the UUID of %s", wire.NamespaceOf(handle))
	}
	return string(spec.UUID.Data), nil
}

// create makes sure that a collection exists.
func create(ctx context.Context, handle *mongo.Collection) error {
	err := handle.Database().CreateCollection(ctx, handle.Name())
	if wire.CommandCode(err) == wire.CodeNamespaceExists {
		return nil
	}
	return wire.ServerErrorOf(err, "createCollection", wire.NamespaceOf(handle))
}
