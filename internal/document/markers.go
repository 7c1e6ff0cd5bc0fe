package document

import (
	"errors"
	"net/url"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/wire"
)

// The markers of a participant are a map, by the transfer, or there are none: then the
// map is empty, null or missing. Somebody else may have made something else of it, and a
// filter looks into an array:
//
//  1. A hold is held, and somebody puts the receiver's map of markers into an array.
//  2. The hold is posted. Its settle asks for a marker that is there, and finds it in the
//     array; it takes it out, which does nothing to an array, and pays the money in.
//  3. The answer is lost. The settle is sent again, finds the marker, and pays again.
//
// So whatever prepares, settles, undoes or replaces a fence alone requires that it is no
// array, and doesn't match where it is one. What a look finds instead of a map is not
// taken for a map without the marker: the transfer would count as settled, and its marker
// would be left where nobody looks for it any more. It is stuck, and goes on when the map
// is put right. Of a map that is missing, or null, nobody can say whether it was emptied
// by a settle or by somebody else, as some programs don't store an empty one: it counts as
// empty.

// ErrGarbled is the cause where a marker can't be removed, as what should be a map of
// markers is something else.
var ErrGarbled = errors.New("the markers are no map")

// HasMap reports whether a document's markers are a map, or missing.
func (f Fields) HasMap(document bson.Raw) bool {
	pending := document.Lookup(f.Pending)
	return Absent(pending) || pending.Type == bson.TypeEmbeddedDocument
}

// Legible requires that a participant's markers are no array; strictly, that they are a
// map, or missing. What is required of a marker that has to be there says the rest.
func (f Fields) Legible(m *wire.Message, strictly bool) {
	m.Begin(f.Pending)
	m.NoArray()
	m.End()
	if !strictly {
		return
	}
	m.BeginArray("$or")
	m.Begin("0")
	m.Null(f.Pending)
	m.End()
	m.Begin("1")
	m.Begin(f.Pending)
	m.Text("$type", "object")
	m.End()
	m.End()
	m.End()
}

// Markers counts the transfers in flight on a participant, and tells whether the given
// one is among them.
func (f Fields) Markers(document bson.Raw, transferID string) (count int, found bool) {
	pending, ok := document.Lookup(f.Pending).DocumentOK()
	if !ok {
		return 0, false
	}
	elements, err := pending.Elements()
	if err != nil {
		return 0, false
	}
	key := MarkerKey(transferID)
	for _, element := range elements {
		found = found || element.Key() == key
	}
	return len(elements), found
}

// InFlight returns the IDs of the transfers whose markers a document has. What is no ID's
// key is left out: no transfer is meant by it.
func (f Fields) InFlight(document bson.Raw) []string {
	pending, _ := document.Lookup(f.Pending).DocumentOK()
	elements, err := pending.Elements()
	if pending == nil || err != nil {
		return nil
	}
	ids := make([]string, 0, len(elements))
	for _, element := range elements {
		if id, err := url.PathUnescape(element.Key()); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}
