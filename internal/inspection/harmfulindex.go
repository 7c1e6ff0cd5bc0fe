package inspection

import (
	"reflect"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// harmOf returns why an index of the user's can't exist beside the protocol, "" if it
// can.
//
// An index that expires documents removes money with them, or an ID that a caller asks
// for again, or a document that is reserved: its transfer may then be rolled back, though
// a caller was told that it is committed. No condition of the index prevents that, as the
// server doesn't look at it once more when it removes a document. A unique index may
// refuse what has to be written. At worst that is a credit of a committed transfer, which
// is then stuck for good.
func (i *Inspector) harmOf(x index, c *collections.Collection) string {
	contents := i.catalog.ContentsOf(c)
	ours := contents == collections.OfTransfers && x.purges()
	f := c.Fields
	if x.Expiry.Type != 0 && !ours {
		harm := "lets the server remove " + string(contents) + " by itself (expireAfterSeconds)"
		if contents == collections.OfDocuments {
			harm += ", also reserved ones; have a job of yours delete those whose field " + words.Quote(f.Pending) + " is missing or empty"
		}
		return harm
	}
	if !x.unique() || x.hasID() {
		return ""
	}
	switch contents {
	case collections.OfTransfers:
		return harmToTransfers(x)
	case collections.OfDocuments:
		return harmToParticipants(x, []string{f.Pending, f.Fence}, nil)
	case collections.OfAccounts:
		return harmToParticipants(x, []string{f.Balance, f.Pending, f.Fence}, []string{f.Floor, f.Currency, f.Closed, f.Frozen})
	}
	return ""
}

// hasID reports whether no two documents ever have the same keys, because the whole _id
// is one of them. A path in _id distinguishes nothing where IDs lack it, nor does _id
// where a collation takes two IDs for one: such an index refuses credits like any other.
func (x index) hasID() bool { return x.Locale == nil && slices.Contains(x.paths(), "_id") }

// purges reports whether the index is the one by which the server removes final
// transfers.
func (x index) purges() bool {
	seconds, isNumber := x.Expiry.AsInt64OK()
	keys := wire.Elements(x.Key)
	return isNumber && seconds == 0 && len(keys) == 1 && keys[0].Key() == "purgeAt"
}

// harmToTransfers judges a unique index of the transfers. It is harmless if two things
// hold: it contains only transfers that carry something of the caller's own, in their
// metadata or in a field that the library does not know; and nothing of that ever
// changes. Then it refuses the second transfer of the same metadata before any money has
// moved.
func harmToTransfers(x index) string {
	callers := func(path string) bool { return !slices.Contains(transferFields(), topField(path)) }
	for _, path := range x.paths() {
		if !callers(path) {
			return "is unique over " + words.Quote(path) + ", in which transfers don't differ"
		}
	}
	switch {
	case x.Partial == nil && !x.Sparse:
		return "is unique and neither sparse nor partial: only one transfer could be without " + words.QuoteAll(x.paths())
	case x.Partial != nil && !requiresOnly(x.Partial, callers):
		return "is unique by a condition that transfers come to fulfil while they run (partialFilterExpression)"
	}
	return ""
}

// transferFields lists the fields that the library writes into a transfer. It leaves out
// metadata, which belongs to the caller and never changes.
func transferFields() []string {
	fields := []string{"fence", "keepUntil", "verified"} // no transfer is read with these
	for _, field := range reflect.VisibleFields(reflect.TypeFor[document.Transfer]()) {
		name, _, _ := strings.Cut(field.Tag.Get("bson"), ",")
		if name != "_id" && name != "metadata" {
			fields = append(fields, name)
		}
	}
	return fields
}

// requiresOnly reports whether a partial filter names only the given fields, and matches
// no document that lacks them.
func requiresOnly(filter bson.Raw, given func(path string) bool) bool {
	conditions := wire.Elements(filter)
	for _, e := range conditions {
		if e.Key() == "$and" {
			parts, ok := arrayOf(e.Value())
			if !ok || len(parts) == 0 {
				return false
			}
			for _, part := range parts {
				if document, ok := part.DocumentOK(); !ok || !requiresOnly(document, given) {
					return false
				}
			}
			continue
		}
		if strings.HasPrefix(e.Key(), "$") || !given(e.Key()) || matchesMissing(e.Value()) {
			return false
		}
	}
	return len(conditions) > 0
}

// matchesMissing reports whether a condition on a field may match a document without it.
func matchesMissing(condition bson.RawValue) bool {
	if condition.Type == bson.TypeNull {
		return true
	}
	operators, _ := condition.DocumentOK()
	return slices.ContainsFunc(wire.Elements(operators), func(o bson.RawElement) bool {
		return o.Value().Type == bson.TypeNull || o.Key() == "$type" && strings.Contains(o.Value().String(), "null")
	})
}

// harmToParticipants judges a unique index of accounts or documents. Every transfer
// changes some of their fields; others are the library's as well, and stay.
func harmToParticipants(x index, changing, staying []string) string {
	for _, path := range append(x.paths(), filteredPaths(x.Partial)...) {
		if slices.Contains(changing, topField(path)) {
			return "is unique by " + words.Quote(path) + ", which every transfer changes: it would refuse transfers, also committed ones"
		}
	}
	for _, field := range x.topFields() {
		if !slices.Contains(staying, field) {
			return ""
		}
	}
	return "is unique over " + words.QuoteAll(x.paths()) + ", in which accounts don't differ"
}

// filteredPaths lists the paths that a partial filter names.
func filteredPaths(filter bson.Raw) []string {
	var paths []string
	for _, e := range wire.Elements(filter) {
		if !strings.HasPrefix(e.Key(), "$") {
			paths = append(paths, e.Key())
			continue
		}
		parts, _ := arrayOf(e.Value())
		for _, part := range parts {
			document, _ := part.DocumentOK()
			paths = append(paths, filteredPaths(document)...)
		}
	}
	return paths
}

// arrayOf returns the values of an array.
func arrayOf(value bson.RawValue) (values []bson.RawValue, ok bool) {
	array, ok := value.ArrayOK()
	if !ok {
		return nil, false
	}
	values, err := array.Values()
	return values, err == nil
}
