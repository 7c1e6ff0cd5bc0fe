package insight

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/words"
)

// maxNamed is how many documents a text names.
const maxNamed = 3

// notRead says what is left where that depends on what could not be read.
const notRead = "not known: not everything could be read"

// dueWithin is how long a transfer may wait for a worker before that is worth a remark.
const dueWithin = 10 * time.Second

// Facts are what an explanation is made of.
type Facts struct {
	// Transfer is as it is stored.
	Transfer *document.Transfer
	// Participants are its documents, as they were read at the same time.
	Participants []Participant
	// Now is the server's time, zero where that is not known.
	Now time.Time
	// Threshold is how long a transfer shows no sign of life before it is taken over.
	Threshold time.Duration
	// Unsound says that the document makes no sense, so that recovery leaves it alone.
	Unsound bool
	// WorkingSince is since when this process works on the transfer, zero if it doesn't.
	WorkingSince time.Time
}

// waits reports whether a transfer waits for a time or a decision, and for no execution.
func (f *Facts) waits() bool {
	t := f.Transfer
	return t.State == protocol.Initiated || t.State.Final() || t.HeldNow()
}

// Executor returns the execution that works on the transfer, or did when it stalled; ""
// where none has to.
func (f *Facts) Executor() string {
	if f.waits() {
		return ""
	}
	return f.Transfer.Owner
}

// Since returns since when the transfer stands where it does.
func (f *Facts) Since() time.Time {
	if t := f.Transfer; t.Stuck != nil && !t.StuckAt.IsZero() {
		return t.StuckAt
	}
	return f.Transfer.LastModified
}

// NextTry returns when a process goes on with the transfer by itself, if none has done
// anything by then.
// A worker that finds its process dead does so earlier.
// It is zero of what is final, or makes no sense.
func (f *Facts) NextTry() time.Time {
	t := f.Transfer
	switch {
	case t.State.Final(), !t.State.Known(), f.Unsound:
		return time.Time{}
	case t.State == protocol.Initiated && t.NotBefore.After(t.CreatedAt):
		return t.NotBefore
	case t.State == protocol.Initiated:
		return t.CreatedAt
	case t.Hold && t.State == protocol.Preparing:
		return t.ExpiresAt
	}
	wait := document.StallMillis(f.Threshold, document.Doublings(t.Attempts, t.Stuck != nil))
	next := t.LastModified.Add(time.Duration(wait) * time.Millisecond)
	if ahead := time.Duration(document.StallMillis(f.Threshold, 0)) * time.Millisecond; t.LastModified.Sub(f.Now) > ahead {
		return f.Now // the server's clock was set back
	}
	return next
}

// Left says what is left to be done.
func (f *Facts) Left() string {
	t := f.Transfer
	switch t.State {
	case protocol.Initiated:
		return "everything: a worker has to run it"
	case protocol.Preparing:
		return f.leftToPrepare()
	case protocol.Committed:
		return f.leftToSettle()
	case protocol.Rollback:
		return f.leftToGiveBack()
	case protocol.Success, protocol.Fail:
		return "nothing"
	}
	return "not known: " + words.Quote(string(t.State)) + " is no state of this version"
}

func (f *Facts) leftToPrepare() string {
	missing := append(f.named(None, nil), f.named(Missing, nil)...)
	switch {
	case f.Transfer.HeldNow():
		return "to be posted or voided"
	case len(missing) > 0:
		return cutOff("to reserve at ", missing)
	case len(f.named(Unread, nil)) > 0:
		return notRead
	case f.Transfer.Hold:
		return "to record that all is held"
	}
	return "all is reserved: to record the commit, and to pay"
}

func (f *Facts) leftToSettle() string {
	gains := func(p *Participant) bool { return p.Leg == nil || p.Leg.Amount.Sign() > 0 }
	if unpaid := append(f.named(Reserved, gains), f.named(Missing, awaited)...); len(unpaid) > 0 {
		return cutOff("to pay or set at ", unpaid)
	}
	if anew := f.anew(); len(anew) > 0 {
		return cutOff("not known: there again, without the marker, are ", anew)
	}
	marked := func(p *Participant) bool { return p.HasMark }
	if marks := append(f.named(Reserved, marked), f.named(Settled, marked)...); len(marks) > 0 {
		return cutOff("all is in place: to remove the marks at ", marks)
	}
	if len(f.named(Unread, nil)) > 0 {
		return notRead
	}
	return "all is in place: to record the end"
}

func (f *Facts) leftToGiveBack() string {
	switch reserved := f.named(Reserved, nil); {
	case len(reserved) > 0:
		return cutOff("to give back at ", reserved)
	case len(f.named(Unread, nil)) > 0:
		return notRead
	}
	return "to record the end"
}

// named returns the names of the participants with a trace that meet a condition.
func (f *Facts) named(trace Trace, meets func(*Participant) bool) []string {
	var names []string
	for i := range f.Participants {
		if p := &f.Participants[i]; p.Trace == trace && (meets == nil || meets(p)) {
			names = append(names, p.Name())
		}
	}
	return names
}

// cutOff lists the first names.
func cutOff(before string, names []string) string {
	more := ""
	if len(names) > maxNamed {
		more, names = fmt.Sprintf(" and %d more", len(names)-maxNamed), names[:maxNamed]
	}
	return before + strings.Join(names, ", ") + more
}

// Advice says what to do.
func (f *Facts) Advice() string { return f.adviceOnTransfer() + f.adviceOnEvents() }

// adviceOnEvents says what to do about the events that were given up.
func (f *Facts) adviceOnEvents() string {
	var advice strings.Builder
	for _, e := range f.Transfer.Undelivered() {
		if e.GivenUp {
			attempts := fmt.Sprint(e.Attempts, " attempts")
			if e.Attempts == 1 {
				attempts = "1 attempt"
			}
			fmt.Fprintf(&advice, " Its event %s was given up after %s: remove the cause, and call Redeliver.", e.Kind, attempts)
		}
	}
	return advice.String()
}

func (f *Facts) adviceOnTransfer() string {
	t := f.Transfer
	switch {
	case f.Unsound, !t.State.Known():
		return "Recovery leaves it alone: somebody has changed its document, or a later version has written it. Audit says what is wrong."
	case t.State.Final():
		return f.adviceWhenFinal()
	case f.someAre(func(p *Participant) bool { return errors.Is(p.Err, ErrForeign) }):
		return "A process that knows all its collections has to finish it: see WithLedger and WithDocuments."
	case t.Stuck != nil, len(f.owed()) > 0:
		return f.adviceWhenStuck()
	case t.State == protocol.Initiated:
		return f.adviceWhenInitiated()
	case t.Hold && t.State == protocol.Preparing:
		return f.adviceWhenHold()
	case !f.WorkingSince.IsZero():
		return "Nothing: this process has been working on it since " + words.Time(f.WorkingSince) + "."
	case f.someAre(func(p *Participant) bool { return p.Err != nil }):
		return "See that all its documents can be read."
	case f.Now.Before(f.NextTry()):
		return "Nothing yet: it is under way. If nobody finishes it, recovery takes it over from " + words.Time(f.NextTry()) + " on, " +
			"and where its process has died, Run as a rule within seconds."
	}
	return "It has stalled. See that Run or Recover works in a process that knows all its collections."
}

func (f *Facts) adviceWhenFinal() string {
	switch t := f.Transfer; {
	case f.someAre(func(p *Participant) bool { return p.HasMark }):
		return "It has left a mark, which no step of the library does. Audit says what to do about it."
	case t.WhollyReversedBy() != "":
		return "Nothing. It was reversed, the last of it by " + words.Whole(t.WhollyReversedBy()) + "."
	case t.State == protocol.Success && len(t.Legs) == 0:
		return "Nothing."
	case t.State == protocol.Success:
		return "Nothing. Reverse takes its money back."
	}
	return "Nothing. Another try needs a new ID."
}

func (f *Facts) adviceWhenInitiated() string {
	due := f.NextTry()
	overdue := f.Now.Sub(due) > dueWithin
	if lack := f.Transfer.Waiting; lack != nil {
		money := "It waits for money: " + strings.TrimSuffix(lack.Message, ".") + ". "
		if overdue {
			return money + "A worker should have looked again by now. See that some process calls Run."
		}
		return money + "Workers look again when some comes in, and at " + words.Time(due) + ". From " +
			words.Time(f.Transfer.FundsUntil) + " on it is run for good, whatever is there."
	}
	switch {
	case f.Now.Before(due):
		return "Nothing: it waits for its time, " + words.Time(due) +
			". Transfer with the same request runs it at once, and Cancel takes it back."
	case overdue:
		return "It should have begun by now. See that some process calls Run."
	}
	return "Nothing: a worker is about to begin with it."
}

// adviceWhenHold says what to do about a hold that is undecided.
// Neither Post nor Void looks at a document.
// One whose document is gone is not to be posted: the money is then in transit until it
// is back.
// A document without the marker is not changed at all:
//
//  1. A hold has taken 10 off alice, and somebody puts an older document in her place.
//  2. The hold is posted. Bob is paid, and alice has all of her money.
func (f *Facts) adviceWhenHold() string {
	missing, unmarked := f.named(Missing, nil), f.named(None, nil)
	switch t := f.Transfer; {
	case !f.Now.Before(t.ExpiresAt):
		return "Its time has run out, and Run gives the money back within a second or so. See that some process calls Run."
	case !t.Held:
		return "Not everything is held yet. Ask for the hold again with the same ID, or void it. At " + words.Time(t.ExpiresAt) +
			" it is voided by itself."
	case len(missing) > 0:
		return cutOff("Restore what is missing, with its marker, before you post or void it: ", missing) +
			". Post commits it all the same, and can't finish it until then; Void gives nothing back there. At " + words.Time(t.ExpiresAt) +
			" it is voided by itself."
	case len(unmarked) > 0:
		return cutOff("Without its marker is ", unmarked) + ". The document was replaced, or restored from a backup, while the money was " +
			"held. Compare its balance with its history before you post or void the hold: neither does anything to a document without the " +
			"marker. At " + words.Time(t.ExpiresAt) + " it is voided by itself."
	}
	return "Nothing. Post takes the money, and Void gives it back. At " + words.Time(f.Transfer.ExpiresAt) + " it goes back by itself."
}

func (f *Facts) someAre(meets func(*Participant) bool) bool {
	return slices.ContainsFunc(f.Participants, func(p Participant) bool { return meets(&p) })
}
