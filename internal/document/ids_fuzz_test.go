package document_test

import (
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// Two transfers never share a marker's key, because each key can be read back.
// No key can be mistaken for a path, an operator or an index.
func FuzzMarkerKey(f *testing.F) {
	for id, key := range storetest.AwkwardIDs() {
		f.Add(id, id+"%")
		f.Add(id, strings.ReplaceAll(key, "%25", "%"))
		f.Add(id, key)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if document.CheckID(a) != nil || document.CheckID(b) != nil {
			return
		}
		key := document.MarkerKey(a)
		require.Equal(t, a == b, key == document.MarkerKey(b), "%q and %q", a, b)
		id, err := url.PathUnescape(key)
		require.NoError(t, err)
		require.Equal(t, a, id)
		id, ok := document.TransferOf(key)
		require.True(t, ok)
		require.Equal(t, a, id)
		require.NotEmpty(t, strings.Trim(key, "0123456789"), "%q means an index", key)
		require.False(t, strings.ContainsAny(key, ".$\x00"), "%q means a path", key)
		require.True(t, utf8.ValidString(key))

		// The driver and the server find under the key what was stored under it, and
		// nothing else.
		pending := encode(bson.D{{Key: key, Value: int64(5)}})
		view := standardFields().View(encode(bson.D{{Key: "pending", Value: pending}}))
		require.Equal(t, int64(5), view.Pending().Document().Lookup(key).Int64())
		require.Equal(t, document.Markers{Count: 1, Own: protocol.Reserved}, view.Markers(a))
		trace := protocol.NoTrace
		if a == b {
			trace = protocol.Reserved
		}
		require.Equal(t, document.Markers{Count: 1, Own: trace}, view.Markers(b))
		require.Equal(t, []string{a}, view.InFlight())
	})
}

// An ID is refused, or its stored value reads back as its canonical form.
// Two IDs are one account exactly if that form is the same.
func FuzzIDCodec(f *testing.F) {
	for id := range storetest.AwkwardIDs() {
		f.Add(id, id+" ", []byte(id))
	}
	hex := "0123456789abcdef01234567"
	for _, other := range []string{strings.ToUpper(hex), hex[1:], hex + "0", "0x" + hex[2:], hex[:23] + "g", "ſ" + hex[2:], "\xff" + hex[1:]} {
		f.Add(hex, other, []byte(hex))
	}
	f.Add("", strings.Repeat("é", 128), []byte{})
	f.Fuzz(func(t *testing.T, a, b string, stored []byte) {
		for _, codec := range []document.IDCodec{document.StringIDs, document.ObjectIDs} {
			first, errA := codec.Encode(a)
			second, errB := codec.Encode(b)
			for id, err := range map[string]error{a: errA, b: errB} {
				fits := id != "" && len(id) <= document.MaxIDBytes && utf8.ValidString(id)
				if codec == document.ObjectIDs {
					fits = len(id) == 24 && strings.Trim(id, "0123456789abcdefABCDEF") == ""
				}
				require.Equal(t, fits, err == nil, "%q: %v", id, err)
			}
			if errA != nil {
				require.Zero(t, first)
				continue
			}
			read, err := codec.Decode(first)
			require.NoError(t, err)
			require.Equal(t, codec.Canonical(a), read)
			require.Equal(t, read, codec.Canonical(read))
			again, err := codec.Encode(read)
			require.NoError(t, err)
			require.Equal(t, first, again)
			if errB == nil {
				require.Equal(t, codec.Canonical(a) == codec.Canonical(b), first.Equal(second), "%q and %q", a, b)
			}
		}
		// An _id that another program has stored reads as an ID of one kind at most.
		for _, kind := range []bson.Type{bson.TypeString, bson.TypeObjectID, bson.TypeInt64, bson.TypeNull, 0} {
			id := bson.RawValue{Type: kind, Value: stored}
			_, errString := document.StringIDs.Decode(id)
			_, errObject := document.ObjectIDs.Decode(id)
			require.True(t, errString != nil || errObject != nil)
		}
	})
}

// standardFields are the default names of a coordinator's fields.
func standardFields() document.Fields {
	return document.Fields{
		Balance: "balance", Pending: "pending", Fence: "fence", Floor: "floor", Currency: "currency",
		Closed: "closed", Frozen: "frozen",
	}
}

func encode(document any) bson.Raw {
	data, err := bson.Marshal(document)
	if err != nil {
		panic(err)
	}
	return data
}
