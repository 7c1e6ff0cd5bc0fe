package document

import (
	"bytes"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/wire"
)

const (
	// Format is the version of the documents that this release writes: transfers,
	// markers and fences.
	// It changes when a release can't work beside the one before it.
	Format = 2
	// FormatBefore is the version of the release before.
	// This release reads it too, and finishes what was stored in it.
	// That release knows no done marks, and rolls back without a fence first.
	FormatBefore = 1
)

// The subtypes of a stored digest.
// They are the sign of the format in which a transfer was stored.
//
// The note beside a collection keeps a release of format 1 from starting on a deployment
// of format 2. One that runs already has read the note before, and doesn't look again.
//
//  1. A, of format 2, knows that everything is prepared, and reports it as committed.
//  2. B, of format 1, takes the transfer over, and rolls it back.
//
// B decodes only a digest of the generic subtype.
// So it can't read the transfer, and what it can't read it leaves alone.
// It answers neither that the ID is free nor that it is used for something else.
const (
	subtypeBefore = bson.TypeBinaryGeneric
	subtype       = bson.TypeBinaryUserDefined
)

// Digest stands for what a transfer was asked for.
type Digest struct {
	// Format is the version in which the transfer was stored.
	// It is 0 where nothing is stored that a release has written.
	Format int
	// Sum is the same in each format.
	Sum []byte
}

// Same reports whether two digests stand for the same payload, in whatever formats.
func (d Digest) Same(other Digest) bool { return bytes.Equal(d.Sum, other.Sum) }

// stored returns the digest as it is stored.
func (d Digest) stored() bson.Binary {
	if d.Format == Format {
		return bson.Binary{Subtype: subtype, Data: d.Sum}
	}
	return bson.Binary{Subtype: subtypeBefore, Data: d.Sum}
}

// Write writes the digest as a field.
func (d Digest) Write(m *wire.Message, field string) {
	stored := d.stored()
	m.Binary(field, stored.Subtype, stored.Data)
}

// MarshalBSONValue implements bson.ValueMarshaler.
func (d Digest) MarshalBSONValue() (kind byte, data []byte, err error) {
	of, data, err := bson.MarshalValue(d.stored())
	return byte(of), data, err
}

// UnmarshalBSONValue implements bson.ValueUnmarshaler.
// It fails on a subtype that a later format may have.
func (d *Digest) UnmarshalBSONValue(kind byte, data []byte) error {
	value := bson.RawValue{Type: bson.Type(kind), Value: data}
	if value.Type == bson.TypeNull {
		*d = Digest{}
		return nil
	}
	found, sum, ok := value.BinaryOK()
	switch {
	case ok && found == subtypeBefore:
		*d = Digest{Format: FormatBefore, Sum: bytes.Clone(sum)}
	case ok && found == subtype:
		*d = Digest{Format: Format, Sum: bytes.Clone(sum)}
	default:
		return errors.New("no digest of a format that this release knows")
	}
	return nil
}
