package mongostore

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Setup creates the collections and indexes and refuses what the protocol can't be run on. It may be called again.
func (s *Store) Setup(ctx context.Context) error {
	if err := s.Connect(ctx, s.Places()...); err != nil {
		return err
	}
	ctx = detached(ctx)
	collections := []*mongo.Collection{s.transfers}
	for _, p := range s.Places() {
		collections = append(collections, s.place(p).commands)
	}
	for _, c := range collections {
		if err := create(ctx, c); err != nil {
			return fmt.Errorf("create %s: %w", namespaceOf(c), err)
		}
		if err := usable(ctx, c); err != nil {
			return err
		}
	}
	if _, err := s.transfers.Indexes().CreateMany(ctx, indexes()); err != nil {
		err = told(err, "createIndex", namespaceOf(s.transfers))
		return fmt.Errorf("create the indexes of %s: %w", namespaceOf(s.transfers), err)
	}
	return nil
}

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

// usable refuses collections in which an ID does not stand for exactly one document, or is not found without a broadcast.
func usable(ctx context.Context, c *mongo.Collection) error {
	specs, err := c.Database().ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: c.Name()}})
	if err != nil {
		return fmt.Errorf("describe %s: %w", namespaceOf(c), told(err, "listCollections", c.Database().Name()))
	}
	for _, spec := range specs {
		if spec.Type != "collection" {
			return fmt.Errorf("%w: %s is a %s, not a collection", ErrUnsupported, namespaceOf(c), spec.Type)
		}
		if capped, _ := spec.Options.Lookup("capped").BooleanOK(); capped {
			return fmt.Errorf("%w: %s is capped: its documents can't grow, and the oldest are removed", ErrUnsupported, namespaceOf(c))
		}
		if collated(spec.Options) {
			return fmt.Errorf("%w: %s has a collation of its own: two different IDs may be the same document there",
				ErrUnsupported, namespaceOf(c))
		}
	}
	catalog := handle(c.Database().Client().Database("config").Collection("collections"))
	entry, err := findOne(ctx, catalog, bson.D{{Key: "_id", Value: namespaceOf(c)}})
	if errors.Is(err, mongo.ErrNoDocuments) || commandCode(err) == codeUnauthorized {
		return nil // not sharded, or not ours to know
	}
	if err != nil {
		return fmt.Errorf("read the shard key of %s: %w", namespaceOf(c), err)
	}
	return shardedByID(namespaceOf(c), entry)
}

func collated(collectionOptions bson.Raw) bool {
	locale, ok := collectionOptions.Lookup("collation", "locale").StringValueOK()
	return ok && locale != "simple"
}

// shardedByID judges an entry of config.collections.
func shardedByID(namespace string, entry bson.Raw) error {
	key, ok := entry.Lookup("key").DocumentOK()
	if dropped, _ := entry.Lookup("dropped").BooleanOK(); !ok || dropped {
		return nil
	}
	elements, err := key.Elements()
	if err != nil {
		return fmt.Errorf("read the shard key of %s: %w", namespace, err)
	}
	if len(elements) != 1 || elements[0].Key() != "_id" {
		return fmt.Errorf("%w: %s is sharded by %s; only _id, ranged or hashed, finds a document without asking all shards",
			ErrUnsupported, namespace, key)
	}
	return nil
}
