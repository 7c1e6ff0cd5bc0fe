package mongostore

import (
	"errors"
	"fmt"
	"net/url"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/protocol"
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

// errGarbled is the cause where a marker can't be removed, as what should be a map of
// markers is something else.
var errGarbled = errors.New("the markers are no map")

// hasMap reports whether a document's markers are a map, or missing.
func (f Fields) hasMap(document bson.Raw) bool {
	pending := document.Lookup(f.Pending)
	return absent(pending) || pending.Type == bson.TypeEmbeddedDocument
}

// legible requires that a participant's markers are no array; strictly, that they are a
// map, or missing. What is required of a marker that has to be there says the rest.
func (f Fields) legible(m *message, strictly bool) {
	m.begin(f.Pending)
	m.noArray()
	m.end()
	if !strictly {
		return
	}
	m.beginArray("$or")
	m.begin("0")
	m.null(f.Pending)
	m.end()
	m.begin("1")
	m.begin(f.Pending)
	m.text("$type", "object")
	m.end()
	m.end()
	m.end()
}

// garbles reports whether a document of a transfer that is decided has something else
// where the markers should be. The marker counts as being there then: it may be.
func (p *participant) garbles(w *Attempt, document bson.Raw) bool {
	decided := w.Transfer.State == protocol.Committed || w.Transfer.State == protocol.Rollback
	return decided && document != nil && !p.key.ledger.fields.hasMap(document)
}

// legible returns those of the requests that can be performed, and answers the others.
func legible(requests []*Call) []*Call {
	if !slices.ContainsFunc(requests, func(r *Call) bool { return r.participant().garbled }) {
		return requests
	}
	var rest []*Call // and not in their place: the list is the caller's
	for _, r := range requests {
		if !r.illegible() {
			rest = append(rest, r)
		}
	}
	return rest
}

// illegible answers a request that is to remove a marker, or to replace the fence where
// there is none, if the look before has shown that nobody can tell. It is asked for again
// after the next look.
func (r *Call) illegible() bool {
	p := r.participant()
	if !p.garbled || r.Op.Kind == protocol.Prepare {
		return false
	}
	p.garbled = false
	fields := p.key.ledger.fields
	r.answer(protocol.Failed, fmt.Errorf("%w: somebody has changed its field %q; put the map back", errGarbled, fields.Pending))
	return true
}

// markers counts the transfers in flight on a participant, and tells whether the given
// one is among them.
func (f Fields) markers(document bson.Raw, transferID string) (count int, found bool) {
	pending, ok := document.Lookup(f.Pending).DocumentOK()
	if !ok {
		return 0, false
	}
	elements, err := pending.Elements()
	if err != nil {
		return 0, false
	}
	key := markerKey(transferID)
	for _, element := range elements {
		found = found || element.Key() == key
	}
	return len(elements), found
}

// inFlight returns the IDs of the transfers whose markers a document has. What is no ID's
// key is left out: no transfer is meant by it.
func (f Fields) inFlight(document bson.Raw) []string {
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
