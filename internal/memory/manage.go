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
		return c.listCollections()
	case "create":
		if c.found() != nil {
			return nil, refuse(codeNamespaceExists, "Collection %s.%s already exists.", c.database, c.name)
		}
		if len(nested(c.body, "validator")) > 0 || flag(c.body, "capped") {
			return nil, refuse(codeNotSupported, "the server in memory has no validators and no capped collections")
		}
		c.made()
		return nil, nil
	case "drop":
		delete(c.server.collections, c.database+"."+c.name)
		return nil, nil
	case "dropDatabase":
		maps.DeleteFunc(c.server.collections, func(namespace string, _ *collection) bool {
			return strings.HasPrefix(namespace, c.database+".")
		})
		return nil, nil
	case "listIndexes":
		if c.found() == nil {
			return nil, refuse(codeNamespaceNotFound, "ns does not exist: %s.%s", c.database, c.name)
		}
		return c.firstBatch(c.found().indexes, "$cmd.listIndexes."+c.name), nil
	case "createIndexes":
		return nil, c.createIndexes()
	}
	return nil, refuse(codeCommandNotFound, "no such command: '%s'", verb)
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
func (c command) createIndexes() error {
	collection := c.made()
	for _, i := range list(c.body, "indexes") {
		index, _ := i.(bson.D)
		if flag(index, "unique") {
			return refuse(codeNotSupported, "the server in memory has no unique index but that of _id")
		}
		same := func(other bson.D) bool { return text(other, "name") == text(index, "name") }
		if !slices.ContainsFunc(collection.indexes, same) {
			collection.indexes = append(collection.indexes, append(bson.D{{Key: "v", Value: int32(2)}}, index...))
		}
	}
	return nil
}
