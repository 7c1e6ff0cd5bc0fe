package transfer

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/words"
)

// ConflictError says in what the payload that an ID was used with before differs from the
// one that is asked for now. errors.Is finds ErrIDConflict through it. The record that
// comes with it is the first one's.
type ConflictError struct {
	// Differs names the parts that differ: "legs" (accounts or amounts), "atMost",
	// "currency", "effects", "hold" (one is a hold and the other is not), "reverses", or
	// "posted", for a hold that was posted with another amount. It is empty where this
	// version can't tell, since a later one has stored the transfer.
	Differs []string

	id string
}

// Error names the transfer and what differs, without values.
func (e *ConflictError) Error() string {
	text := fmt.Sprintf("transfer %s: %v", words.Quote(e.id), ErrIDConflict)
	if len(e.Differs) > 0 {
		text += ": other " + strings.Join(e.Differs, ", ")
	}
	return text
}

// Unwrap returns ErrIDConflict.
func (e *ConflictError) Unwrap() error { return ErrIDConflict }

// conflict compares a stored transfer with the one that is asked for under its ID. Only
// what the digest is made of can differ.
func conflict(stored, planned document.Transfer) error {
	e := &ConflictError{id: stored.ID}
	for _, part := range []struct {
		name  string
		other bool
	}{
		{"legs", !bytes.Equal(legsOf(stored, planned), legsOf(planned, stored))},
		{"atMost", !equalParts(stored.AtMost, planned.AtMost)},
		{"currency", stored.Currency != planned.Currency},
		{"effects", !bytes.Equal(effectsPayload(nil, stored.Effects), effectsPayload(nil, planned.Effects))},
		{"hold", stored.Hold != planned.Hold},
		{"reverses", stored.Reverses != planned.Reverses},
	} {
		if part.other {
			e.Differs = append(e.Differs, part.name)
		}
	}
	return e
}

// legsOf returns the legs as the digest counts them, without the currency. Where one of
// the two moves what is there their amounts don't count: it is the limit that differs.
func legsOf(t, other document.Transfer) []byte {
	t.Currency = ""
	if t.AtMost == nil {
		t.AtMost = other.AtMost
	}
	return plainPayload(counted(t), nil)
}

// postedOtherwise is the error of a hold that was posted with another amount.
func postedOtherwise(id string) error {
	return &ConflictError{id: id, Differs: []string{"posted"}}
}
