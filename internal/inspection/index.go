package inspection

import (
	"context"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/wire"
)

// index is one of a collection's indexes, as the server lists it.
type index struct {
	Name    string        `bson:"name"`
	Key     bson.Raw      `bson:"key"`
	Unique  bool          `bson:"unique"`
	Becomes bool          `bson:"prepareUnique"`
	Sparse  bool          `bson:"sparse"`
	Hidden  bool          `bson:"hidden"`
	Partial bson.Raw      `bson:"partialFilterExpression"`
	Expiry  bson.RawValue `bson:"expireAfterSeconds"`
	Locale  bson.Raw      `bson:"collation"`
}

// indexesOf lists a collection's indexes.
func indexesOf(ctx context.Context, handle *mongo.Collection) ([]index, error) {
	cursor, err := handle.Indexes().List(ctx)
	if err != nil {
		return nil, wire.ServerErrorOf(err, "listIndexes", wire.NamespaceOf(handle))
	}
	var all []index
	if err := cursor.All(ctx, &all); err != nil {
		return nil, wire.ServerErrorOf(err, "listIndexes", wire.NamespaceOf(handle))
	}
	return all, nil
}

// unique reports whether the index refuses a second document of the same keys: it is
// unique, or is to become it by collMod (since MongoDB 6.0). Then the server refuses
// duplicates already, and lists it as not unique.
func (x index) unique() bool { return x.Unique || x.Becomes }

// paths lists the paths of the index's keys.
func (x index) paths() []string {
	var paths []string
	for _, key := range wire.Elements(x.Key) {
		paths = append(paths, key.Key())
	}
	return paths
}

// topFields lists the top-level fields of the index's keys.
func (x index) topFields() []string {
	fields := x.paths()
	for n, path := range fields {
		fields[n] = topField(path)
	}
	return fields
}

// topField returns the top-level field of a path.
func topField(path string) string {
	field, _, _ := strings.Cut(path, ".")
	return field
}
