package audit

import (
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
)

// Transfer is a stored transfer as an audit sees it.
type Transfer struct {
	document.Transfer
	// ID is its _id as text, whatever is stored there.
	ID string
	// Err says why it can't be read as a transfer.
	Err error
	// Opened says that the field open is there.
	Opened bool
	// Odd are the fields of another type than the library stores, with their values as
	// text.
	Odd map[string]string
	// Kept says that the time of the purge waits for events to be delivered.
	Kept bool
	// Reversals is its document as that of a participant of reversals.
	// It is the zero value if there is no marker.
	Reversals Document
}

// timeFields returns the fields of a transfer that are dates.
func timeFields() []string {
	return []string{
		"createdAt", "lastModified", "committedAt", "notBefore", "askedNotBefore", "fundsUntil",
		"stuckAt", "expiresAt", "purgeAt", "keepUntil",
	}
}

// typeOfMetadata projects a document to the field stored, and metadata that nobody can
// read to the name of its type. An audit doesn't read what is in the metadata.
func typeOfMetadata() bson.D {
	kind := bson.D{{Key: "$type", Value: "$metadata"}}
	readable := bson.D{{Key: "$in", Value: bson.A{kind, bson.A{"object", "array", "null", "undefined", "missing"}}}}
	return bson.D{{Key: "_id", Value: 0}, {Key: "stored", Value: bson.D{{Key: "$setField", Value: bson.D{
		{Key: "field", Value: "metadata"}, {Key: "input", Value: "$$ROOT"},
		{Key: "value", Value: bson.D{{Key: "$cond", Value: bson.A{readable, "$$REMOVE", kind}}}},
	}}}}}
}

// transfer decodes a transfer that was read without its metadata.
func (r *Reader) transfer(raw bson.Raw) *Transfer {
	decoded, err := document.DecodeTransfer(raw)
	if kind, odd := raw.Lookup("metadata").StringValueOK(); odd {
		err = fmt.Errorf("%w: the metadata is no document, but of type %s", document.ErrUnreadable, kind)
	}
	t := &Transfer{
		Transfer: decoded, ID: document.IDText(raw.Lookup("_id")), Err: err,
		Opened: !document.Absent(raw.Lookup("open")), Kept: !document.Absent(raw.Lookup("keepUntil")),
	}
	t.expect(raw, "epoch", bson.TypeInt32, bson.TypeInt64)
	for _, flag := range []string{"open", "hold", "held", "clean"} {
		t.expect(raw, flag, bson.TypeBoolean)
	}
	for _, at := range timeFields() {
		t.expect(raw, at, bson.TypeDateTime)
	}
	if !document.Absent(raw.Lookup(r.Transfers.Fields.Pending)) {
		t.Reversals = *r.document(r.Transfers, raw)
	}
	return t
}

// expect notes a field of another type than the library stores.
//
//  1. Somebody stores open as 1.
//  2. Everything that decodes the transfer reads it as true.
//  3. Recovery's filter requires true, and 1 is not true: the transfer is never finished.
//
// The same happens with a text or a Timestamp that is decoded as a time: to the server it
// is before all dates, or after them, and most of its indexes don't contain it.
func (t *Transfer) expect(raw bson.Raw, field string, types ...bson.Type) {
	stored := raw.Lookup(field)
	if document.Absent(stored) || slices.Contains(types, stored.Type) {
		return
	}
	if t.Odd == nil {
		t.Odd = map[string]string{}
	}
	t.Odd[field] = stored.String()
}

// backOff returns for how much longer than the threshold recovery leaves an unfinished
// transfer alone, because it was taken over often: up to 63 thresholds more.
func (t *Transfer) backOff(threshold time.Duration) time.Duration {
	return threshold<<document.Doublings(t.Attempts, t.Stuck != nil) - threshold
}
