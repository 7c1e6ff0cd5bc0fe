package deployment

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
)

// purpose is what a place is connected for.
type purpose uint8

const (
	// toWork is for whoever moves money: the collections are inspected, and a deployment from
	// before there were notes gets them.
	toWork purpose = iota + 1
	// toRead is for whoever only reads, and may have no right to anything else. Where there is
	// a note it has to agree; where there is none, nothing is known, and nothing is written.
	toRead
)

// Connect makes sure that the servers of the transfers and of the given places can be used,
// and their collections; that everybody else uses these in the same way, which their notes
// say; that no two of these places are one collection, and that documents among them are not
// those of accounts; and that the retention is known to everybody. Each is asked once, and
// only when it is needed: a server that is away keeps nobody from the others, but for
// effects, where a ledger of the same name is there.
func (s *Deployment) Connect(ctx context.Context, places ...document.Address) error {
	return s.connect(ctx, toWork, places)
}

// ConnectToRead is Connect for whoever only reads: it needs no right to write, or to list
// collections and indexes.
func (s *Deployment) ConnectToRead(ctx context.Context, places ...document.Address) error {
	return s.connect(ctx, toRead, places)
}

// ConnectSameClient is Connect for the places that are reached through the client of the transfers.
// It leaves out documents that another server may have to tell from accounts: that one may be
// away, and is asked when a transfer needs them.
func (s *Deployment) ConnectSameClient(ctx context.Context) error {
	if s.near.Load() {
		return nil
	}
	near := slices.DeleteFunc(s.Addresses(), func(p document.Address) bool {
		l := s.At(p)
		return !l.SameClient || len(l.Namesakes) > 0
	})
	if err := s.Connect(ctx, near...); err != nil {
		return err
	}
	s.near.Store(true)
	return nil
}

func (s *Deployment) connect(ctx context.Context, to purpose, places []document.Address) error {
	ctx = wire.Detached(ctx)
	if err := s.CheckServer(ctx, s.Transfers); err != nil {
		return err
	}
	if err := s.survey(ctx, to, s.Originals); err != nil {
		return err
	}
	for _, p := range places {
		l := s.At(p)
		if err := s.CheckServer(ctx, l.Commands); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		if err := s.survey(ctx, to, l); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	if err := s.requireAllDistinct(ctx, to, places); err != nil || to == toRead {
		return err
	}
	if err := s.introduce(ctx, places); err != nil {
		return err
	}
	if err := s.declare(ctx); err != nil {
		return err
	}
	for _, p := range places {
		s.of(s.At(p)).connected.Store(true)
	}
	return nil
}

// requireAllDistinct makes sure that places are different collections.
func (s *Deployment) requireAllDistinct(ctx context.Context, to purpose, places []document.Address) error {
	collections := []*mongo.Collection{s.Transfers}
	for _, p := range places {
		c := s.At(p).Commands
		for _, other := range collections {
			if err := s.requireDistinct(ctx, to, c, other); err != nil {
				return err
			}
		}
		collections = append(collections, c)
		if err := s.noAccounts(ctx, to, p); err != nil {
			return err
		}
	}
	return nil
}

// noAccounts makes sure that documents are not the collection of a ledger, whether that is
// used now or not: an effect would set an account's balance. Where the server of a ledger of
// the same name is away it can't be told, and the effects have to wait. Of two ledgers it is
// enough that no transfer uses both.
func (s *Deployment) noAccounts(ctx context.Context, to purpose, documents document.Address) error {
	if !documents.Documents {
		return nil
	}
	l := s.At(documents)
	for _, p := range l.Namesakes {
		other := s.At(p).Commands
		if err := s.CheckServer(ctx, other); err != nil {
			return fmt.Errorf("whether %s and %s are one collection, %s: %w", documents, p, l.Namespace, err)
		}
		if err := s.requireDistinct(ctx, to, l.Commands, other); err != nil {
			return err
		}
	}
	return nil
}

// requireDistinct refuses one collection that is reached through two clients. Two handles of one name
// are told apart, once, by the collection's UUID, so those are created if need be. Who only
// reads creates nothing: where a collection is missing there is nothing to be mistaken about.
func (s *Deployment) requireDistinct(ctx context.Context, to purpose, a, b *mongo.Collection) error {
	if a == b || wire.NamespaceOf(a) != wire.NamespaceOf(b) || s.knownDistinct(a, b) {
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
		return fmt.Errorf("%w: the collection %s is registered under two names, through two clients", collections.ErrUnsupported, wire.NamespaceOf(a))
	}
	s.distinctPairs.Store([2]*mongo.Collection{a, b}, true)
	return nil
}

// knownDistinct reports whether two collections of one name, in this order, have been told
// apart.
func (s *Deployment) knownDistinct(a, b *mongo.Collection) bool {
	_, known := s.distinctPairs.Load([2]*mongo.Collection{a, b})
	return known
}

// collectionUUID returns what tells a collection from others of its name, "" if it is not
// there and is not to be created.
func collectionUUID(ctx context.Context, to purpose, c *mongo.Collection) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	spec, found, err := describe(ctx, c)
	if err == nil && !found && to == toWork {
		if err = create(ctx, c); err == nil {
			spec, found, err = describe(ctx, c)
		}
	}
	switch {
	case err != nil:
		return "", err
	case !found && to == toRead:
		return "", nil
	case !found || spec.UUID == nil:
		return "", fmt.Errorf("the server does not tell the UUID of %s", wire.NamespaceOf(c))
	}
	return string(spec.UUID.Data), nil
}

// create makes sure that a collection exists.
func create(ctx context.Context, c *mongo.Collection) error {
	err := c.Database().CreateCollection(ctx, c.Name())
	if wire.CommandCode(err) == wire.CodeNamespaceExists {
		return nil
	}
	return wire.ServerErrorOf(err, "createCollection", wire.NamespaceOf(c))
}
