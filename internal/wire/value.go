package wire

import (
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// RawValue encodes a string, a number, an ObjectId or nil, which can't fail.
func RawValue(value any) bson.RawValue {
	t, data, err := bson.MarshalValue(value)
	if err != nil {
		return bson.RawValue{Type: bson.TypeNull}
	}
	return bson.RawValue{Type: t, Value: data}
}

// RawText encodes a string as [RawValue] does, without reflection.
func RawText(text string) bson.RawValue {
	encoded := make([]byte, 0, len(text)+5) // its length, the text, and NUL
	return bson.RawValue{Type: bson.TypeString, Value: bsoncore.AppendString(encoded, text)}
}
