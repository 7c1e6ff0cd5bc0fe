package document

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// FenceOf returns a stored fence as the protocol knows it: the value's type and its
// bytes. It is empty where none is stored.
func FenceOf(stored bson.RawValue) protocol.Fence {
	if Absent(stored) {
		return ""
	}
	return protocol.Fence(append([]byte{byte(stored.Type)}, stored.Value...))
}

// FenceOfToken returns a token that was drawn here as the protocol knows it.
func FenceOfToken(token bson.ObjectID) protocol.Fence {
	return FenceOf(bson.RawValue{Type: bson.TypeObjectID, Value: token[:]})
}

// StoredFence returns a fence as it is stored, the zero value if there is none.
func StoredFence(fence protocol.Fence) bson.RawValue {
	if fence == "" {
		return bson.RawValue{}
	}
	return bson.RawValue{Type: bson.Type(fence[0]), Value: []byte(fence[1:])}
}

// FenceIs requires a fence. None is required as null, which also matches a missing field.
func FenceIs(m *wire.Message, field string, fence protocol.Fence) {
	requireStored(m, field, StoredFence(fence))
}

// FloorIs requires that the stored floor is still the one that a bound was computed with.
func FloorIs(m *wire.Message, field string, f Floor) { requireStored(m, field, f.Stored) }

// requireStored requires a field's value, or, for the zero value, that there is none.
func requireStored(m *wire.Message, field string, value bson.RawValue) {
	m.Begin(field)
	if value.Type == 0 {
		m.Null("$eq")
		m.NoArray()
	} else {
		m.Equals(value)
	}
	m.End()
}
