// Package inspection judges whether a server and a collection can be used for transfers.
// It reads what they are, and refuses what the protocol can't run on.
// It writes nothing, and remembers nothing: the caller decides when to ask.
//
// It judges four things, each in a file of its own:
//
//   - how a collection was created, and how it is sharded (collection.go);
//   - the user's indexes, some of which would destroy or refuse documents
//     (harmfulindex.go), and the library's own, some of which may be missing
//     (ownindex.go);
//   - the validator of a collection (validator.go);
//   - what a server can do (server.go).
package inspection

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

// Inspector judges the servers and collections of a catalog.
type Inspector struct{ catalog *collections.Catalog }

// New returns the inspector of a catalog.
func New(catalog *collections.Catalog) *Inspector { return &Inspector{catalog} }

// CheckCollection refuses a collection that can't hold what it is meant for:
//
//   - one in which an ID does not stand for exactly one document;
//   - one in which a document is not found by its ID without asking all shards;
//   - one from which the server removes documents by itself;
//   - one with an index that refuses what the protocol has to write.
//
// A collection that does not exist yet passes. Of the transfers it returns the library's
// indexes that are missing, without which everything works, and slowly.
func (i *Inspector) CheckCollection(ctx context.Context, c *collections.Collection) (missing []mongo.IndexModel, err error) {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	spec, found, err := Describe(ctx, c.Commands)
	if err != nil {
		return nil, err
	}
	var indexes []index
	if found {
		if err := checkCreation(spec, c.Namespace); err != nil {
			return nil, err
		}
		if indexes, err = indexesOf(ctx, c.Commands); err != nil {
			return nil, err
		}
	}
	for _, index := range indexes {
		if harm := i.harmOf(index, c); harm != "" {
			return nil, fmt.Errorf("%w: drop the index %s of %s: it %s",
				collections.ErrUnsupported, words.Quote(index.Name), c.Namespace, harm)
		}
	}
	if c.Originals {
		missing, _, err = i.missingAmong(indexes)
	}
	if err != nil || !found {
		return missing, err
	}
	return missing, i.checkSharding(ctx, c)
}

// Describe returns how a collection was created, and whether it exists.
func Describe(ctx context.Context, handle *mongo.Collection) (spec mongo.CollectionSpecification, found bool, err error) {
	specs, err := handle.Database().ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: handle.Name()}})
	if err != nil {
		return spec, false, wire.ServerErrorOf(err, "listCollections", handle.Database().Name())
	}
	for _, spec := range specs {
		if spec.Name == handle.Name() {
			return spec, true, nil
		}
	}
	return spec, false, nil
}

// checkCreation judges how a collection was created.
func checkCreation(spec mongo.CollectionSpecification, namespace string) error {
	if spec.Type != "collection" {
		return fmt.Errorf("%w: %s is a %s, not a collection", collections.ErrUnsupported, namespace, spec.Type)
	}
	if capped, _ := spec.Options.Lookup("capped").BooleanOK(); capped {
		return fmt.Errorf("%w: %s is capped: its documents can't grow, and the oldest are removed", collections.ErrUnsupported, namespace)
	}
	if hasCollation(spec.Options) {
		return fmt.Errorf("%w: %s has a collation of its own: two different IDs may be the same document there",
			collections.ErrUnsupported, namespace)
	}
	if expiry := spec.Options.Lookup("expireAfterSeconds"); expiry.Type != 0 { // of a clustered collection
		return fmt.Errorf("%w: %s has expireAfterSeconds: the server removes its documents by itself", collections.ErrUnsupported, namespace)
	}
	return nil
}

func hasCollation(collectionOptions bson.Raw) bool {
	locale, ok := collectionOptions.Lookup("collation", "locale").StringValueOK()
	return ok && locale != "simple"
}

// checkSharding refuses a collection that is sharded by anything but _id, also where a
// reshardCollection has made it so. A replica set has no shards: there nobody needs the
// right to read config.collections.
func (i *Inspector) checkSharding(ctx context.Context, c *collections.Collection) error {
	catalog := wire.ForCommands(c.Commands.Database().Client().Database("config").Collection("collections"))
	entry, err := wire.FindID(ctx, catalog, c.Namespace)
	refused := wire.CommandCode(err) == wire.CodeUnauthorized || wire.CommandCode(err) == wire.CodeAtlas
	if errors.Is(err, mongo.ErrNoDocuments) || refused && !i.catalog.Routed(c.Commands) {
		return nil // it is not sharded
	}
	if err != nil {
		return err
	}
	return checkShardKey(c.Namespace, entry)
}

// checkShardKey judges an entry of config.collections.
func checkShardKey(namespace string, entry bson.Raw) error {
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
