package deployment

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/wire"
)

// harm says why an index of the user's can't be beside the protocol, "" if it can.
//
// An index that expires documents would take money with it, or an ID that somebody asks
// again for. A unique one may refuse what has to be written: at worst a credit of a transfer
// that is committed, which is then stuck for good.
func (s *Deployment) harm(l *collections.Collection, i indexSpec) string {
	holds := s.holds(l)
	ours := holds == ofTransfers && i.purges()
	if i.Expiry.Type != 0 && holds != ofDocuments && !ours {
		return "lets the server remove " + holds + " by itself (expireAfterSeconds)"
	}
	if !i.Unique || slices.Contains(i.roots(), "_id") { // with _id in it no two keys are ever the same
		return ""
	}
	switch holds {
	case ofTransfers:
		return harmsTransfers(i)
	case ofDocuments:
		return harmsBalances(i, []string{l.Fields.Pending, l.Fields.Fence}, nil)
	}
	f := l.Fields
	return harmsBalances(i, []string{f.Balance, f.Pending, f.Fence}, []string{f.Floor, f.Currency, f.Closed})
}

// purges reports whether the index is the one by which the server removes what is final.
func (i indexSpec) purges() bool {
	seconds, isNumber := i.Expiry.AsInt64OK()
	keys := wire.Elements(i.Key)
	return isNumber && seconds == 0 && len(keys) == 1 && keys[0].Key() == "purgeAt"
}

// harmsTransfers judges a unique index of the transfers. It is harmless where it holds only
// transfers with something of the caller's own, in their metadata or in a field that the
// library does not know, and nothing of it ever changes: then it refuses the second transfer
// of the same metadata before anything has moved.
func harmsTransfers(i indexSpec) string {
	own := func(path string) bool { return !slices.Contains(transferFields(), root(path)) }
	for _, key := range wire.Elements(i.Key) {
		if !own(key.Key()) {
			return "is unique over " + quoted([]string{key.Key()}) + ", in which transfers don't differ"
		}
	}
	switch {
	case i.Partial == nil && !i.Sparse:
		return "is unique and neither sparse nor partial: only one transfer could be without " + quoted(i.paths())
	case i.Partial != nil && !requiresOnly(i.Partial, own):
		return "is unique by a condition that transfers come to fulfil while they run (partialFilterExpression)"
	}
	return ""
}

// transferFields are the fields that the library writes into a transfer, but for metadata,
// which is the caller's and never changes.
func transferFields() []string {
	return []string{
		"state", "open", "legs", "effects", "currency", "digest", "epoch", "owner", "attempts", "clean", "createdAt", "lastModified",
		"committedAt", "notBefore", "failure", "stuck", "stuckAt", "purgeAt", "hold", "held", "expiresAt", "posted", "atMost",
		"reverses", "reversedBy", "pending", "fence", "verified",
	}
}

// requiresOnly reports whether a partial filter is about fields for which own is true alone,
// and holds of no document that lacks them.
func requiresOnly(filter bson.Raw, own func(string) bool) bool {
	conditions := wire.Elements(filter)
	for _, e := range conditions {
		value := e.Value()
		if e.Key() == "$and" {
			list, _ := value.ArrayOK()
			parts, err := list.Values()
			if err != nil || len(parts) == 0 {
				return false
			}
			for _, part := range parts {
				if document, ok := part.DocumentOK(); !ok || !requiresOnly(document, own) {
					return false
				}
			}
			continue
		}
		if strings.HasPrefix(e.Key(), "$") || !own(e.Key()) || value.Type == bson.TypeNull {
			return false
		}
		operators, _ := value.DocumentOK()
		for _, o := range wire.Elements(operators) {
			if o.Value().Type == bson.TypeNull || o.Key() == "$type" && strings.Contains(o.Value().String(), "null") {
				return false
			}
		}
	}
	return len(conditions) > 0
}

// harmsBalances judges a unique index of accounts, or of documents, of which some fields
// change with every transfer, and others are the library's as well.
func harmsBalances(i indexSpec, changing, others []string) string {
	paths := append(i.paths(), conditions(i.Partial)...)
	for _, path := range paths {
		if slices.Contains(changing, root(path)) {
			return "is unique by " + quoted([]string{path}) + ", which every transfer changes: it would refuse transfers, also committed ones"
		}
	}
	for _, r := range i.roots() {
		if !slices.Contains(others, r) {
			return ""
		}
	}
	return "is unique over " + quoted(i.paths()) + ", in which accounts don't differ"
}

// conditions lists the fields of a partial filter.
func conditions(filter bson.Raw) []string {
	var paths []string
	for _, e := range wire.Elements(filter) {
		if !strings.HasPrefix(e.Key(), "$") {
			paths = append(paths, e.Key())
			continue
		}
		list, _ := e.Value().ArrayOK()
		parts, _ := list.Values()
		for _, part := range parts {
			document, _ := part.DocumentOK()
			paths = append(paths, conditions(document)...)
		}
	}
	return paths
}

// paths lists an index's keys.
func (i indexSpec) paths() []string {
	var paths []string
	for _, key := range wire.Elements(i.Key) {
		paths = append(paths, key.Key())
	}
	return paths
}

// roots lists the top-level fields of an index's keys.
func (i indexSpec) roots() []string {
	roots := i.paths()
	for n, path := range roots {
		roots[n] = root(path)
	}
	return roots
}

func root(path string) string {
	field, _, _ := strings.Cut(path, ".")
	return field
}
