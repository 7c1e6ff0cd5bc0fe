package document

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// CreatedBetween selects transfers that were created after one instant and before another
// one. The zero time is no limit.
func CreatedBetween(after, before time.Time) bson.D {
	created := bson.D{}
	if !after.IsZero() {
		created = append(created, bson.E{Key: "$gt", Value: after})
	}
	if !before.IsZero() {
		created = append(created, bson.E{Key: "$lt", Value: before})
	}
	if len(created) == 0 {
		return nil
	}
	return bson.D{{Key: "createdAt", Value: created}}
}

// WithMetadata selects transfers whose metadata has equal values of the given keys.
func WithMetadata(metadata bson.Raw) bson.D {
	elements, err := metadata.Elements()
	if err != nil {
		return nil
	}
	var filter bson.D
	for _, e := range elements {
		is := bson.D{{Key: "$eq", Value: e.Value()}}
		if e.Value().Type == bson.TypeNull { // which a missing one is equal to
			is = append(is, bson.E{Key: "$exists", Value: true})
		}
		filter = append(filter, bson.E{Key: "metadata." + e.Key(), Value: is})
	}
	return filter
}
