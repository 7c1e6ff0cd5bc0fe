package deployment

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/words"
)

// requireAgreement refuses a stored note that differs from the wanted one.
func (n note) requireAgreement(stored note, c *collections.Collection) error {
	if n.of == collections.OfTransfers && stored.deployment == "" && stored.format == document.Format {
		return fmt.Errorf("%w: the note of %s has no identity: restore it, or see Coordinator.Adopt", collections.ErrUnsupported, c.Namespace)
	}
	differences := n.differences(stored, c)
	if len(differences) == 0 {
		return nil
	}
	advice := ": give this coordinator the same options as the others; to change the deployment on purpose, see Coordinator.Adopt"
	if !stored.readable() {
		advice = ""
	}
	return fmt.Errorf("%w: %s%s", collections.ErrUnsupported, strings.Join(differences, "; "), advice)
}

// readable reports whether this release understands all of a stored note.
func (n note) readable() bool { return n.format == document.Format && len(n.unknown) == 0 }

// differences returns why this process can't work by a stored note, one reason each.
func (n note) differences(stored note, c *collections.Collection) []string {
	if stored.format != document.Format {
		advice := "use a later release"
		switch {
		case stored.format == document.FormatBefore:
			advice = "stop all processes of the earlier release, and then run Setup once with this one"
		case stored.format < document.FormatBefore:
			advice = "use an earlier release"
		}
		return []string{fmt.Sprintf("this release writes format %d, and %s was set up in format %d: %s",
			document.Format, c.Namespace, stored.format, advice)}
	}
	if len(stored.unknown) > 0 {
		return []string{fmt.Sprintf("the note of %s says something of %s that this release does not know: use a later release",
			c.Namespace, words.QuoteAll(stored.unknown))}
	}
	var differences []string
	if stored.of != n.of {
		differences = append(differences, fmt.Sprintf("%s was set up to hold %s, and is used for %s here", c.Namespace, stored.of, n.of))
	}
	if n.of != collections.OfTransfers && (n.deployment == "" || n.deployment != stored.deployment) {
		lost := ""
		if n.deployment == "" {
			lost = ", or has lost its note"
		}
		differences = append(differences, fmt.Sprintf(
			"%s belongs to the transfers collection %s, and this is another one, %s%s (see WithTransfers)",
			c.Namespace, stored.transfers, n.transfers, lost))
	}
	if stored.of != n.of {
		return differences
	}
	if !slices.Equal(stored.events, n.events) {
		differences = append(differences, fmt.Sprintf("the events of %s are %s, and WithEvents says %s",
			c.Namespace, listed(stored.events), listed(n.events)))
	}
	if stored.ids != n.ids {
		differences = append(differences, fmt.Sprintf("%s stores account IDs as %s, and WithAccountIDs says %s", c.Namespace, stored.ids, n.ids))
	}
	for _, f := range n.fields {
		if name := stored.field(f.role); name != f.name {
			differences = append(differences, fmt.Sprintf("in %s the field for %s is %q, and WithFields says %q", c.Namespace, f.role, name, f.name))
		}
	}
	return differences
}

// equals reports whether two notes say the same.
func (n note) equals(other note) bool {
	return slices.Equal(n.events, other.events) && n.equalsButEvents(other)
}

// equalsButEvents reports whether two notes say the same of everything else.
func (n note) equalsButEvents(other note) bool {
	return n.of == other.of && n.deployment == other.deployment && n.transfers == other.transfers && n.ids == other.ids &&
		slices.Equal(n.fields, other.fields)
}

// listed names kinds of events.
func listed(kinds []string) string {
	if len(kinds) == 0 {
		return "none"
	}
	return strings.Join(kinds, ", ")
}
