package simulate

import (
	"fmt"
	"strings"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// story describes a run line by line: its events, and what each changes in the database.
// A nil story records nothing.
type story struct {
	lines []string
	seen  Version // as recorded last
	trial int     // where the recovery that is tried out begins
	stood Version // as recorded before it
}

// tellTo makes a run write its story from here on.
func (r *run) tellTo(s *story) {
	r.story = s
	r.note("the beginning")
	r.noteChanges()
}

// beginTrial opens a part that is forgotten unless it leads to a violation.
func (s *story) beginTrial() *story {
	if s != nil {
		s.trial, s.stood = len(s.lines), s.seen
		s.lines = append(s.lines, "     from here, recovery alone:")
	}
	return s
}

func (s *story) endTrial() {
	if s != nil {
		s.lines, s.seen = s.lines[:s.trial], s.stood
	}
}

func (r *run) note(format string, args ...any) {
	if r.story != nil {
		r.story.lines = append(r.story.lines, "     "+fmt.Sprintf(format, args...))
	}
}

// noteSent records what is sent, its fate, and the answers that the executions get.
func (r *run) noteSent(sent []Message, fate Fate, result protocol.Result) {
	if r.story == nil {
		return
	}
	text := r.w.describeAll(sent)
	if fate != answered {
		text += fmt.Sprintf("; %s", fate)
	}
	heard := result != 0 && fate != unheard && fate != answeredLate
	if heard && (fate != answered || result != protocol.Applied) {
		text += fmt.Sprintf("; %s", result)
	}
	r.note("%s", text)
}

// noteChanges records what has changed in the database since the last record.
func (r *run) noteChanges() {
	if r.story == nil || r.story.seen == r.w.Version {
		return
	}
	var changes []string
	for i := range r.w.Accounts {
		if r.w.Accounts[i] != r.story.seen.Accounts[i] {
			changes = append(changes, accountName(i)+" "+r.w.Accounts[i].String())
		}
	}
	for t := range r.w.Transfers {
		if r.w.Transfers[t] != r.story.seen.Transfers[t] {
			changes = append(changes, transferName(t)+" "+r.w.Transfers[t].String())
		}
	}
	r.story.seen = r.w.Version
	r.story.lines = append(r.story.lines, "         "+strings.Join(changes, ", "))
}

func accountName(i int) string  { return [...]string{"alice", "bob", "carol"}[i] }
func transferName(t int) string { return fmt.Sprintf("T%d", t+1) }
func executorName(o int) string {
	switch o {
	case recoveryOwner:
		return "the recovery"
	case extender:
		return "an extension"
	}
	return "E" + fmt.Sprint(o)
}

// String names an account's balance, fence, markers and state.
func (a Account) String() string {
	text := fmt.Sprintf("{%d", a.Balance)
	if a.Fence != "" {
		text += fmt.Sprintf(" fence %s", a.Fence)
	}
	for t, trace := range a.Traces {
		switch trace {
		case protocol.Reserved:
			text += " marker " + transferName(t)
		case protocol.Done:
			text += " done mark " + transferName(t)
		case protocol.NoTrace, protocol.Illegible:
		}
	}
	if a.Closed {
		text += " closed"
	}
	if a.Frozen {
		text += " frozen"
	}
	if a.Value != 0 {
		text += fmt.Sprintf(" value %d", a.Value)
	}
	return text + "}"
}

// String names a transfer's state, epoch and owner.
func (t Transfer) String() string {
	if !t.Stored {
		return "{not stored}"
	}
	text := fmt.Sprintf("{%s epoch %d of %s", t.State, t.Epoch, executorName(t.Owner))
	if t.Held {
		text += " held"
	}
	if t.Posted != 0 {
		text += fmt.Sprintf(" posted %d", t.Posted)
	}
	return text + "}"
}

func describeStart(s protocol.Start) string {
	if s.Hold {
		return s.Claim.String() + ", to hold"
	}
	if s.RollBack != 0 {
		return fmt.Sprintf("%s, to roll back (%s)", s.Claim, s.RollBack)
	}
	return s.Claim.String()
}

// describeAll describes what travels as one update.
func (w *World) describeAll(members []Message) string {
	if len(members) == 1 {
		return w.describe(members[0])
	}
	var each []string
	for _, m := range members {
		each = append(each, w.describe(m))
	}
	return "as one: " + strings.Join(each, "; ")
}

// describe describes a message.
func (w *World) describe(m Message) string {
	text := executorName(m.Owner) + ": " + m.Op.Kind.String()
	switch m.Op.Kind {
	case protocol.Claim:
		text += " by " + m.Op.Claim.String() + " of"
	case protocol.Decide, protocol.Finish:
		text += " " + string(m.Op.To) + " of"
	default:
		text += " of"
	}
	text += " " + transferName(m.Transfer)
	if m.Op.Participant != protocol.NoParticipant {
		text += " at " + accountName(w.leg(m).Account)
	}
	switch {
	case m.Op.Kind == protocol.Prepare:
		text += fmt.Sprintf(", expecting fence %q", string(m.Op.Fence))
	case m.Op.Kind == protocol.FenceOnly, m.Op.ReplaceFence:
		text += ", new fence " + string(m.Token)
	case m.Op.Kind == protocol.Decide, m.Op.Kind == protocol.Verify, m.Op.Kind == protocol.MarkHeld:
		text += fmt.Sprintf(", epoch %d", m.Op.Epoch)
	}
	return text
}
