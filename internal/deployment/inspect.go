package deployment

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// inspect refuses a collection that can't hold what it is meant for: one in which an ID does
// not stand for exactly one document, or is not found without a broadcast; one from which
// the server removes documents by itself; and one with an index that refuses what the
// protocol has to write. A collection that does not exist yet is fine.
func (s *Deployment) inspect(ctx context.Context, l *collections.Collection) error {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	spec, found, err := describe(ctx, l.Commands)
	if err != nil || !found {
		return err
	}
	if err := usable(spec, l.Namespace); err != nil {
		return err
	}
	indexes, err := indexesOf(ctx, l.Commands)
	if err != nil {
		return err
	}
	for _, index := range indexes {
		if reason := s.harm(l, index); reason != "" {
			return fmt.Errorf("%w: the index %s of %s %s: drop it", collections.ErrUnsupported, words.Quote(index.Name), l.Namespace, reason)
		}
	}
	return s.shardKey(ctx, l)
}

// describe returns how a collection was created; false: there is none of that name.
func describe(ctx context.Context, c *mongo.Collection) (mongo.CollectionSpecification, bool, error) {
	specs, err := c.Database().ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: c.Name()}})
	if err != nil {
		return mongo.CollectionSpecification{}, false, wire.ServerErrorOf(err, "listCollections", c.Database().Name())
	}
	for _, spec := range specs {
		if spec.Name == c.Name() {
			return spec, true, nil
		}
	}
	return mongo.CollectionSpecification{}, false, nil
}

// usable judges how a collection was created.
func usable(spec mongo.CollectionSpecification, namespace string) error {
	if spec.Type != "collection" {
		return fmt.Errorf("%w: %s is a %s, not a collection", collections.ErrUnsupported, namespace, spec.Type)
	}
	if capped, _ := spec.Options.Lookup("capped").BooleanOK(); capped {
		return fmt.Errorf("%w: %s is capped: its documents can't grow, and the oldest are removed", collections.ErrUnsupported, namespace)
	}
	if collated(spec.Options) {
		return fmt.Errorf("%w: %s has a collation of its own: two different IDs may be the same document there",
			collections.ErrUnsupported, namespace)
	}
	if expiry := spec.Options.Lookup("expireAfterSeconds"); expiry.Type != 0 { // of a clustered collection
		return fmt.Errorf("%w: %s has expireAfterSeconds: the server removes its documents by itself", collections.ErrUnsupported, namespace)
	}
	return nil
}

func collated(collectionOptions bson.Raw) bool {
	locale, ok := collectionOptions.Lookup("collation", "locale").StringValueOK()
	return ok && locale != "simple"
}

// indexSpec is one of a collection's indexes, as the server lists it.
type indexSpec struct {
	Name    string        `bson:"name"`
	Key     bson.Raw      `bson:"key"`
	Unique  bool          `bson:"unique"`
	Sparse  bool          `bson:"sparse"`
	Hidden  bool          `bson:"hidden"`
	Partial bson.Raw      `bson:"partialFilterExpression"`
	Expiry  bson.RawValue `bson:"expireAfterSeconds"`
	Locale  bson.Raw      `bson:"collation"`
}

// indexesOf lists a collection's indexes.
func indexesOf(ctx context.Context, c *mongo.Collection) ([]indexSpec, error) {
	cursor, err := c.Indexes().List(ctx)
	if err != nil {
		return nil, wire.ServerErrorOf(err, "listIndexes", wire.NamespaceOf(c))
	}
	var all []indexSpec
	if err := cursor.All(ctx, &all); err != nil {
		return nil, wire.ServerErrorOf(err, "listIndexes", wire.NamespaceOf(c))
	}
	return all, nil
}

// shardKey refuses a collection that is sharded by something else than _id, be it since a
// reshardCollection. On a replica set the catalog is of no consequence, so that nobody needs
// a right to read it there.
func (s *Deployment) shardKey(ctx context.Context, l *collections.Collection) error {
	catalog := wire.ForCommands(l.Commands.Database().Client().Database("config").Collection("collections"))
	entry, err := wire.FindID(ctx, catalog, l.Namespace)
	refused := wire.CommandCode(err) == wire.CodeUnauthorized || wire.CommandCode(err) == wire.CodeAtlas
	if errors.Is(err, mongo.ErrNoDocuments) || refused && !s.Routed(l.Commands) {
		return nil // it is not sharded
	}
	if err != nil {
		return wire.ServerErrorOf(err, "find", wire.NamespaceOf(catalog))
	}
	return ShardedByID(l.Namespace, entry)
}

// ShardedByID judges an entry of config.collections.
func ShardedByID(namespace string, entry bson.Raw) error {
	key, ok := entry.Lookup("key").DocumentOK()
	if dropped, _ := entry.Lookup("dropped").BooleanOK(); !ok || dropped {
		return nil
	}
	fields := wire.Elements(key)
	if len(fields) != 1 || fields[0].Key() != "_id" {
		return fmt.Errorf("%w: %s is sharded by %.256s; only _id, ranged or hashed, finds a document without asking all shards",
			collections.ErrUnsupported, namespace, key)
	}
	return nil
}
