package insight

import (
	"strings"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/words"
)

// foundGone reports whether the transfer is stuck because its document at a participant
// was gone.
func foundGone(t *document.Transfer, p *Participant) bool {
	if t.Stuck == nil || t.State != protocol.Committed {
		return false
	}
	return p.isNamedBy(t.Stuck) && (t.Stuck.Code == protocol.NotFound.String() || t.Stuck.Code == protocol.RequirementFailed.String())
}

// owed returns the names of the documents that are missing, and that a committed transfer
// waits for.
func (f *Facts) owed() []string {
	if f.Transfer.State != protocol.Committed {
		return nil
	}
	return f.named(Missing, awaited)
}

// awaited reports whether the transfer waits for the document.
// The original of a reversal that is gone holds up nobody.
func awaited(p *Participant) bool { return p.Original == "" }

// anew returns the names of the documents that were gone, and are there again without a
// marker.
func (f *Facts) anew() []string {
	return f.named(Unread, func(p *Participant) bool { return p.Anew })
}

// adviceWhenStuck says what to do about a transfer that something stands in the way of.
//
// A document that is gone is not to be opened anew.
//
//  1. A hold is posted, and bob's document is gone: the transfer is committed, and waits.
//  2. Somebody opens bob anew.
//  3. A document without the marker looks as if it had been paid. Recovery ends the
//     transfer as a success, bob has nothing, and the audit finds nothing.
func (f *Facts) adviceWhenStuck() string {
	const bring = ". Bring the document back with its marker: docs/operations.md has the runbook. Don't open or insert a new one in its " +
		"place: the transfer would end without paying there. "
	next := "Recovery then goes on by itself, from " + words.Time(f.NextTry()) + " on, and at once by Recover of a Coordinator with " +
		"WithStallThreshold(0)."
	if anew := f.anew(); len(anew) > 0 {
		return cutOff("A document was gone, and is there again without its marker: ", anew) + ". Unless recovery has just paid it, it was " +
			"opened or inserted anew, and the transfer ends without paying there. Set the marker before recovery goes on, as the runbook in " +
			"docs/operations.md says. " + next
	}
	if owed := f.owed(); len(owed) > 0 {
		return cutOff("Gone is what it has to pay or set: ", owed) + bring + next
	}
	if f.someAre(func(p *Participant) bool { return p.HasMark && foundGone(f.Transfer, p) }) {
		return "Nothing: the document that was gone is back, with its marker. " + next
	}
	return "Remove what stands in its way: " + strings.TrimSuffix(f.Transfer.Stuck.Message, ".") + ". " + next
}
