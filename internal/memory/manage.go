package memory

import (
	"maps"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// manage performs the commands about collections and indexes.
func (c command) manage(verb string) (bson.D, error) {
	switch verb {
	case "listCollections":
		return c.with(c.listCollections, "filter", "nameOnly", "authorizedCollections", "cursor")
	case "create":
		return c.with(c.create)
	case "drop":
		return c.with(c.drop)
	case "dropDatabase":
		return c.with(c.dropDatabase)
	case "listIndexes":
		return c.with(c.listIndexes, "cursor")
	case "createIndexes":
		return c.with(c.createIndexes, "indexes", "commitQuorum")
	}
	return nil, refuse(codeCommandNotFound, "the server in memory doesn't know the command %s", verb)
}

// create makes a collection without options, such as a validator.
func (c command) create() (bson.D, error) {
	if c.found() != nil {
		return nil, refuse(codeNamespaceExists, "Collection %s.%s already exists.", c.database, c.name)
	}
	c.made()
	return nil, nil
}

func (c command) drop() (bson.D, error) {
	delete(c.server.collections, c.database+"."+c.name)
	return nil, nil
}

func (c command) dropDatabase() (bson.D, error) {
	maps.DeleteFunc(c.server.collections, func(namespace string, _ *collection) bool {
		return strings.HasPrefix(namespace, c.database+".")
	})
	return nil, nil
}

func (c command) listIndexes() (bson.D, error) {
	if c.found() == nil {
		return nil, refuse(codeNamespaceNotFound, "ns does not exist: %s.%s", c.database, c.name)
	}
	return c.firstBatch(c.found().indexes, "$cmd.listIndexes."+c.name), nil
}

func (c command) listCollections() (bson.D, error) {
	var found []bson.D
	for _, namespace := range slices.Sorted(maps.Keys(c.server.collections)) {
		name, is := strings.CutPrefix(namespace, c.database+".")
		if !is {
			continue
		}
		entry := bson.D{
			{Key: "name", Value: name}, {Key: "type", Value: "collection"}, {Key: "options", Value: bson.D{}},
			{Key: "info", Value: bson.D{
				{Key: "readOnly", Value: false}, {Key: "uuid", Value: c.server.collections[namespace].uuid},
			}},
		}
		met, err := matches(entry, nested(c.body, "filter"), c.scope)
		if err != nil {
			return nil, err
		}
		if met {
			found = append(found, entry)
		}
	}
	return c.firstBatch(found, "$cmd.listCollections"), nil
}

// createIndexes notes indexes. All of them are good for is that they can be listed, and
// that a TTL index removes documents.
func (c command) createIndexes() (bson.D, error) {
	collection := c.made()
	for _, i := range list(c.body, "indexes") {
		index, _ := i.(bson.D)
		if err := onlyKnown("an index", index, "key", "name", "expireAfterSeconds", "partialFilterExpression"); err != nil {
			return nil, err
		}
		exists, err := collection.hasIndex(index)
		if err != nil {
			return nil, err
		}
		if !exists {
			collection.indexes = append(collection.indexes, append(bson.D{{Key: "v", Value: int32(2)}}, index...))
		}
	}
	return nil, nil
}

// hasIndex reports whether an index is there. It is refused where another one has its
// name, or is for the same documents in the same order.
func (c *collection) hasIndex(index bson.D) (bool, error) {
	for _, other := range c.indexes {
		same := func(option string) bool { return equal(field(other, option), field(index, option)) }
		named, alike := same("name"), same("key") && same("partialFilterExpression")
		switch {
		case named && alike && same("expireAfterSeconds"):
			return true, nil
		case named && !alike:
			return false, refuse(codeIndexKeyConflict, "an index with other keys has the name '%s'", text(index, "name"))
		case named || alike:
			return false, refuse(codeIndexOptionsConflict, "the index '%s' is there with another name, or with other options", text(other, "name"))
		}
	}
	return false, nil
}
