package mongostore

import (
	"iter"

	"go.mongodb.org/mongo-driver/v2/bson"
)

const (
	// maxCommandBytes is where a command is split. A server takes 16 MB, and hangs up at
	// more than three times that.
	maxCommandBytes = 8 << 20
	// maxAnswerBytes is about how much one read asks for. A read of 500 transfers with
	// 1,000 legs each is answered by 50 MB, which may take longer than a command may; in
	// portions, what was answered in time is not asked for again.
	maxAnswerBytes = 8 << 20
	// participantBytes is about what a read shows of a participant: some sixty transfers
	// in flight.
	participantBytes = 4 << 10
	// elementBytes is the most that an element of a list, or a field of a document, takes
	// beside its name and value, and what stands around the list.
	elementBytes = 32
)

// portions splits a list into portions of so many bytes at the most, or of one element.
func portions[T any](list []T, most int, bytes func(T) int) iter.Seq[[]T] {
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
		return elementBytes + len(id)
	case bson.RawValue:
		return elementBytes + len(id.Value)
	default:
		return elementBytes + maxDocumentIDBytes
	}
}

// bytes returns about what a transfer takes as it is stored.
func (t *Transfer) bytes() int {
	const around = 512
	sum := around + len(t.Metadata)
	for _, leg := range t.Legs {
		sum += 2*elementBytes + len(leg.Ledger) + len(leg.Namespace) + len(leg.Account)
	}
	for _, e := range t.Effects {
		sum += 2*elementBytes + len(e.Documents) + len(e.Namespace) + len(e.ID.Value) + len(e.Require) + len(e.Set)
	}
	return sum
}

// wantedBytes returns what the condition for the values that an effect requires takes at
// the most.
func wantedBytes(r *Call) int {
	p := r.participant()
	return 2*elementBytes + len(p.id.Value) + p.effect.requiredBytes()
}

// requiredBytes returns what the conditions for the required values take at the most.
func (e *effect) requiredBytes() int {
	const around = 48 // each value
	size := len(e.require)
	for _, field := range elements(e.require) {
		size += around
		if value := field.Value(); value.Type == bson.TypeArray {
			size += len(value.Value) // which is named twice
		}
	}
	return size
}
