package wire

import (
	"iter"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// MaxDocumentIDBytes bounds the ID of an effect's document.
// The server's own limit is that of a key in its index.
const MaxDocumentIDBytes = 1024

const (
	// MaxCommandBytes is where a command is split. A server takes 16 MB, and hangs up at
	// more than three times that.
	MaxCommandBytes = 8 << 20
	// MaxAnswerBytes is about how much one read asks for. A read of 500 transfers with
	// 1,000 legs each is answered by 50 MB, which may take longer than a command may; in
	// portions, what was answered in time is not asked for again.
	MaxAnswerBytes = 8 << 20
	// ParticipantBytes is about what a read shows of a participant: some sixty transfers
	// in flight.
	ParticipantBytes = 4 << 10
	// ElementBytes is the most that an element of a list, or a field of a document, takes
	// beside its name and value, and what stands around the list.
	ElementBytes = 32
)

// Portions splits a list into portions of at most some bytes, or of one element.
func Portions[T any](list []T, most int, bytes func(T) int) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for len(list) > 0 {
			n, sum := 1, bytes(list[0])
			for n < len(list) && sum+bytes(list[n]) <= most {
				sum += bytes(list[n])
				n++
			}
			if !yield(list[:n]) {
				return
			}
			list = list[n:]
		}
	}
}

// idBytes returns what an ID, a text or a value, takes in a list of them at the most.
func idBytes(id any) int {
	switch id := id.(type) {
	case string:
		return ElementBytes + len(id)
	case bson.RawValue:
		return ElementBytes + len(id.Value)
	default:
		return ElementBytes + MaxDocumentIDBytes
	}
}
