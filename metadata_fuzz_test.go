package transfer

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// key draws a key of metadata, mostly one that may be stored.
func (d *dice) key() string {
	if d.roll(8) < 7 {
		return fmt.Sprintf("key %d", d.roll(20))
	}
	return choose(d, "", "$set", "a.b", "a\x00b", "\xff", d.text())
}

// anything draws a value of Go, of which only some can be stored.
func (d *dice) anything(depth int) any {
	type named map[string]any
	type record struct {
		A any `bson:"a,omitempty"`
		B *int
	}
	switch kind := d.roll(12); {
	case kind < 3:
		return d.value(depth)
	case kind == 3 && depth > 0:
		return []any{d.anything(depth - 1), d.anything(depth - 1)}
	case kind == 4 && depth > 0:
		return named{d.key(): d.anything(depth - 1), d.key(): d.anything(depth - 1)}
	case kind == 5 && depth > 0:
		return record{A: d.value(depth - 1)}
	case kind == 6 && depth > 0:
		return map[string]any{d.key(): d.anything(depth - 1)}
	case kind == 7:
		return nested(d.roll(70))
	case kind == 8:
		return d.amount()
	case kind == 9:
		return strings.Repeat(d.text(), d.roll(256)*32)
	}
	return choose[any](d, nil, 5, uint64(math.MaxUint64), uint8(5), d.text(), []byte{1}, []byte(nil), []any(nil),
		map[string]any(nil), named(nil), (*int)(nil), func() {}, make(chan int), complex(1, 2), time.UnixMilli(5),
		time.Time{}, time.Unix(1<<60, 0), [2]string{"a", "\xff"},
		map[int]string{1: "a"}, map[float64]int{math.NaN(): 1}, map[Amount]int{Units(5): 1}, struct{ a int }{5}, bson.Raw{1, 2, 3},
		bson.RawValue{Type: bson.TypeString, Value: []byte{5}}, bson.RawValue{})
}

// nested returns so many documents in each other, or one that holds itself.
func nested(levels int) any {
	if levels == 69 {
		endless := map[string]any{}
		endless["in"] = []any{endless}
		return endless
	}
	var value any = "the innermost"
	for range levels {
		value = map[string]any{"in": value}
	}
	return value
}

// Any metadata is refused as invalid, or is stored as a document within the limits, always the same one, that reads back as what was meant.
func FuzzMetadata(f *testing.F) {
	f.Add([]byte{})
	for kind := range byte(12) {
		for choice := range byte(26) {
			f.Add([]byte{2, 0, 1, kind, choice, 3, 3, 0, 2, 4, choice, kind, 0, 5, 9, kind, choice})
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := (*dice)(&data)
		metadata := map[string]any{}
		for range d.roll(4) {
			metadata[d.key()] = d.anything(3)
		}
		raw, err := encodeMetadata(metadata)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalidRequest)
			require.Nil(t, raw)
			return
		}
		if len(metadata) == 0 {
			require.Nil(t, raw)
			return
		}
		require.NoError(t, raw.Validate())
		require.LessOrEqual(t, len(raw), maxMetadataBytes)
		require.True(t, utf8.ValidString(raw.String()))
		for range 3 {
			again, err := encodeMetadata(metadata)
			require.NoError(t, err)
			require.Equal(t, raw, again, "the order of a map shows")
		}
		read := decodeMetadata(raw)
		require.Len(t, read, len(metadata))
		for key := range metadata {
			require.Contains(t, read, key)
			require.NotContains(t, key, ".")
		}
		again, err := encodeMetadata(read)
		require.NoError(t, err)
		require.Equal(t, raw, again, "what was read is another thing")
	})
}
