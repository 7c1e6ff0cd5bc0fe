package wire

import (
	"go.mongodb.org/mongo-driver/v2/bson"
)

// RawValue encodes a string, a number, an ObjectId or nil, which can't fail.
func RawValue(value any) bson.RawValue {
	t, data, err := bson.MarshalValue(value)
	if err != nil {
		return bson.RawValue{Type: bson.TypeNull}
	}
	return bson.RawValue{Type: t, Value: data}
}
