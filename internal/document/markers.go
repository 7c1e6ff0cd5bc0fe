package document

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/mongotransfer/transfer/internal/wire"
)

// The markers of a participant are a map, by the transfer. Without markers the map is
// empty, null or missing. Another program may have replaced it by something else, and a
// filter searches an array:
//
//  1. A hold is held, and another program puts the receiver's map of markers into an
//     array.
//  2. The hold is posted. Its settle asks for a marker that is there, and finds it in the
//     array; it takes it out, which does nothing to an array, and pays the money in.
//  3. The answer is lost. The settle is sent again, finds the marker, and pays again.
//
// So every write to a participant requires that the field is not an array, and doesn't
// match if it is one. Anything else in the place of a map is not taken for a map without
// the marker. Otherwise the transfer would count as settled, and its marker would stay
// behind unnoticed. The transfer is stuck, and goes on when the map is
// restored. A missing or null map counts as empty: it doesn't show whether a settle has
// emptied it, or another program, as some programs don't store an empty map. But the
// server sets no marker of an account in null, and refuses every prepare there.

// ErrGarbled is the cause where a marker can't be removed, as what should be a map of
// markers is something else.
var ErrGarbled = errors.New("the markers are no map")

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

// MarkerKey returns the key of a transfer's marker in a participant's map of markers. The
// server takes dots and leading dollars for paths and operators, and stops at NUL: these
// are percent-encoded, and so is the percent sign. It takes digits alone for an index,
// should somebody have stored an array: so the first one of these is encoded, too.
func MarkerKey(id string) string {
	onlyDigits := strings.Trim(id, "0123456789") == ""
	if !onlyDigits && !strings.ContainsAny(id, "%.$\x00") {
		return id
	}
	var key strings.Builder
	for i := range len(id) {
		c := id[i]
		if c == '%' || c == '.' || c == '$' || c == 0 || (onlyDigits && i == 0) {
			fmt.Fprintf(&key, "%%%02X", c)
			continue
		}
		key.WriteByte(c)
	}
	return key.String()
}

// A participant that is settled and not cleared yet has a done mark: an entry of the same
// map, with what was paid in. It reserves nothing, and shows any executor that the
// transfer was prepared there. No marker's key ends in a percent sign: it is followed by
// two digits in all of them.
const doneSuffix = "%"

// DoneKey returns the key of a transfer's done mark in a participant's map of markers.
func DoneKey(id string) string { return MarkerKey(id) + doneSuffix }

// CutDone returns the key of the marker that a done mark stands for.
// It reports false for a key that is not that of a done mark.
func CutDone(key string) (marker string, done bool) { return strings.CutSuffix(key, doneSuffix) }

// TransferOf returns the ID of the transfer whose marker has this key.
// It reports false for a key that no transfer's marker has.
func TransferOf(key string) (string, bool) {
	id, ok := spelledID(key)
	if !ok || CheckID(id) != nil || MarkerKey(id) != key {
		return "", false
	}
	return id, true
}

// spelledID returns the ID that a key stands for, also where the library would have
// written the key in another way.
func spelledID(key string) (string, bool) {
	id, err := url.PathUnescape(key)
	return id, err == nil
}
