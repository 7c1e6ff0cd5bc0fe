package deployment

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Setup creates the collections, indexes and notes that are missing, and refuses what the
// protocol can't be run on. It may be called again: where nothing is missing nothing is
// written, and no right to create is needed.
func (s *Deployment) Setup(ctx context.Context) error {
	ctx = wire.Detached(ctx)
	if err := s.reviewed(ctx, true); err != nil {
		return err
	}
	if err := s.Connect(ctx, s.Addresses()...); err != nil {
		return err
	}
	return s.make(ctx)
}

// reviewed looks at everything, be it known or not, before anything is written anywhere. An
// index of the user's that stands in the way of one of the library's is found here, too.
func (s *Deployment) reviewed(ctx context.Context, writes bool) error {
	for _, l := range s.All() {
		if err := s.CheckServer(ctx, l.Commands); err != nil {
			return fmt.Errorf("%s: %w", l.Namespace, err)
		}
	}
	for _, l := range s.All() {
		if err := s.review(ctx, l); err != nil {
			return err
		}
	}
	if err := s.probe(ctx, writes); err != nil {
		return err
	}
	for _, l := range s.All() {
		if err := s.validators(ctx, l); err != nil {
			return err
		}
	}
	_, err := s.missingIndexes(ctx)
	return err
}

// review inspects a collection and reads its note, whatever is known of them. What it
// refuses is not fit any more, though it may have been: it is refused from now on.
func (s *Deployment) review(ctx context.Context, l *collections.Collection) error {
	err := s.inspect(ctx, l)
	if err == nil {
		s.of(l).surveyed.Store(true)
		err = s.consult(ctx, l)
	}
	if errors.Is(err, collections.ErrUnsupported) {
		s.near.Store(false)
		s.of(l).connected.Store(false)
		s.of(l).surveyed.Store(false)
		s.of(l).noted.Store(false)
	}
	return err
}

// make creates what is missing.
func (s *Deployment) make(ctx context.Context) error {
	for _, l := range s.All() {
		limited, cancel := context.WithTimeout(ctx, wire.CommandLimit)
		_, found, err := describe(limited, l.Commands)
		if err == nil && !found {
			err = create(limited, l.Commands)
		}
		cancel()
		if err != nil {
			return err
		}
	}
	missing, err := s.missingIndexes(ctx)
	if err != nil || len(missing) == 0 {
		return err
	}
	_, err = s.Transfers.Indexes().CreateMany(ctx, missing) // as long as it takes
	switch wire.CommandCode(err) {
	case wire.CodeIndexOptions, wire.CodeIndexKeys, wire.CodeCannotIndex:
		return fmt.Errorf("%w: an index of %s stands in the way of one of the library's: drop it: %w",
			collections.ErrUnsupported, wire.NamespaceOf(s.Transfers), wire.ServerErrorOf(err, "createIndex", wire.NamespaceOf(s.Transfers)))
	}
	return wire.ServerErrorOf(err, "createIndex", wire.NamespaceOf(s.Transfers))
}

// Check makes sure of all that Setup makes sure of, and that what Setup makes is there. It
// writes nothing.
func (s *Deployment) Check(ctx context.Context) error {
	ctx = wire.Detached(ctx)
	if err := s.reviewed(ctx, false); err != nil {
		return err
	}
	if err := s.ConnectToRead(ctx, s.Addresses()...); err != nil {
		return err
	}
	return s.complete(ctx)
}

// complete refuses a deployment that Setup has not been through with.
func (s *Deployment) complete(ctx context.Context) error {
	for _, l := range s.All() {
		limited, cancel := context.WithTimeout(ctx, wire.CommandLimit)
		_, found, err := describe(limited, l.Commands)
		cancel()
		switch {
		case err != nil:
			return err
		case !found:
			return fmt.Errorf("%w: there is no collection %s: %s", collections.ErrUnsupported, l.Namespace, setItUp)
		case !s.of(l).noted.Load():
			return fmt.Errorf("%w: %s has no note of how it is used, in %s: %s", collections.ErrUnsupported, l.Namespace, wire.NamespaceOf(s.of(l).notes), setItUp)
		}
	}
	missing, err := s.missingIndexes(ctx)
	if err != nil || len(missing) == 0 {
		return err
	}
	name, err := nameOf(missing[0])
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: %s lacks the index %q: %s", collections.ErrUnsupported, wire.NamespaceOf(s.Transfers), name, setItUp)
}

const setItUp = "run Setup once, with the rights to create"

// indexes of the transfers. None of accounts: they are only found by _id. A transfer is in as few of them as can be, under keys that change
// as seldom as can be: to keep an index costs each transfer as much as it would cost to write another document.
func indexes() []mongo.IndexModel {
	account := func(by string) bson.D {
		return bson.D{{Key: "legs.account", Value: 1}, {Key: "legs.ledger", Value: 1}, {Key: by, Value: 1}}
	}
	where := func(name string, filter bson.D) *options.IndexOptionsBuilder {
		return options.Index().SetName(name).SetPartialFilterExpression(filter)
	}
	exists := bson.D{{Key: "$exists", Value: true}}
	return []mongo.IndexModel{
		{ // unfinished work but for holds: first what nobody has claimed, and of that what is due at once
			Keys: bson.D{
				{Key: "hold", Value: 1}, {Key: "epoch", Value: 1}, {Key: "notBefore", Value: 1}, {Key: "createdAt", Value: 1},
			},
			Options: where("unfinished", bson.D{{Key: "open", Value: true}}),
		},
		{ // unfinished holds: those that are not decided, by the time when they expire
			Keys:    bson.D{{Key: "state", Value: 1}, {Key: "expiresAt", Value: 1}},
			Options: where("holds", bson.D{{Key: "open", Value: true}, {Key: "hold", Value: true}}),
		},
		{ // an account's history: what was committed
			Keys:    account("committedAt"),
			Options: where("committed", bson.D{{Key: "committedAt", Value: exists}}),
		},
		{ // an account's failures
			Keys:    account("createdAt"),
			Options: where("failures", bson.D{{Key: "failure", Value: exists}}),
		},
		{ // lists, newest first
			Keys:    bson.D{{Key: "createdAt", Value: -1}, {Key: "_id", Value: -1}},
			Options: options.Index().SetName("created"),
		},
		{ // by which the server removes what is final, where it is not kept
			Keys:    bson.D{{Key: "purgeAt", Value: 1}},
			Options: where("purge", bson.D{{Key: "purgeAt", Value: exists}}).SetExpireAfterSeconds(0),
		},
	}
}
