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

// CreatedWith selects transfers of one millisecond whose IDs come before another one.
func CreatedWith(created time.Time, beforeID string) bson.D {
	return bson.D{
		{Key: "createdAt", Value: bson.D{{Key: "$eq", Value: created}}},
		{Key: "_id", Value: bson.D{{Key: "$lt", Value: beforeID}}},
	}
}

// Unfinished selects what is not final, by an index.
func Unfinished() bson.D { return bson.D{{Key: "open", Value: true}, AnyHold()} }

// HasFailed selects what was rolled back, or is being, by an index.
func HasFailed() bson.E { return bson.E{Key: "failure", Value: bson.D{{Key: "$exists", Value: true}}} }

// IsStuck selects what an execution has left with a reason, of what is unfinished.
func IsStuck() bson.E { return bson.E{Key: "stuck", Value: bson.D{{Key: "$exists", Value: true}}} }

// IsHeld selects, of transfers in Preparing, the holds that are held, by an index.
func IsHeld() bson.D {
	return bson.D{{Key: "open", Value: true}, {Key: "hold", Value: true}, {Key: "held", Value: true}}
}

// ExpiresBefore selects holds that expire before an instant.
func ExpiresBefore(instant time.Time) bson.E {
	return bson.E{Key: "expiresAt", Value: bson.D{{Key: "$lt", Value: instant}}}
}

// Reverses selects the transfers that reverse another one, by an index.
func Reverses(id string) bson.E { return bson.E{Key: "reverses", Value: id} }

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
