package transfer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/insight"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// Explanation says where a transfer stands, for the person on call.
type Explanation struct {
	// Record is the transfer as it is stored.
	Record Record
	// Participants are the documents that it changes: the accounts in the order of its
	// legs, the documents of its effects, and the transfer that it reverses.
	Participants []ParticipantState
	// Executor is the execution that works on it, or that did when it stalled.
	// It is "" where none has to: the transfer is final, waits for a worker, or is held.
	Executor string
	// Since is when the transfer was written last, or was first found to be stuck, by the
	// server's clock.
	Since time.Time
	// NextTry is from when on Run or Recover goes on with it, if nobody has done anything
	// by then: by this Coordinator's stall threshold, or when a hold expires, or a
	// submitted transfer may begin.
	// Where its process has died, Run goes on with it earlier, as a rule within seconds.
	// It is zero for a transfer that is final, or that recovery leaves alone.
	NextTry time.Time
	// Left says what is left to be done.
	Left string
	// Advice says what to do.
	Advice string
}

// ParticipantState is one document of a transfer, and what it shows of it.
type ParticipantState struct {
	// Ledger is that of the account.
	// For an effect it is the name of the documents, and for the original of a reversal
	// "transfers".
	Ledger string
	// Account is the ID of the account.
	// For an effect it is that of the document, and for the original of a reversal that
	// of the transfer that is reversed.
	Account string
	// Amount is what the transfer moves there, negative where it is taken; zero for a
	// document.
	// Of a hold that was posted in part, it is what was held.
	Amount Amount
	// Currency is that of the amount, "" where it has none.
	Currency string
	// State is what the document shows.
	//
	//   - none: the transfer has changed nothing there, or has given back what it had
	//     reserved.
	//   - reserved: the money is taken off the account, or is announced there.
	//     The document of an effect is reserved.
	//   - settled: paid, set, or taken for good.
	//   - missing: there is no such document.
	//   - "": it could not be read, and the Note says why.
	State string
	// Note says more: that the account is frozen, for example.
	Note string
}

// Stats counts the transfers that are unfinished.
// Each is counted in one of Scheduled, Due, Preparing, Held, Committed and Rollback.
type Stats struct {
	// Scheduled counts those that Submit has stored and whose NotBefore is to come, and
	// those that wait for funds.
	Scheduled int64
	// Due counts those that Submit has stored and that a worker may begin with.
	Due int64
	// Preparing counts those in StatePreparing, but for those that are Held.
	Preparing int64
	// Held counts the holds that are held.
	Held int64
	// Overdue counts the held holds that have expired.
	// Where Run works there are none for longer than a second or so.
	Overdue int64
	// Committed counts those in StateCommitted.
	Committed int64
	// Rollback counts those in StateRollback.
	Rollback int64
	// Stuck counts those that could not be finished when that was last tried, whichever
	// state they are in: see [Record].Stuck.
	Stuck int64
	// Undelivered counts the transfers with an event that was not delivered, given up or
	// not: see [WithEvents].
	Undelivered int64
	// Oldest is since when the oldest should have come to its end, by the server's clock:
	// since it was created, could begin or was committed, or since its hold has expired.
	// The Scheduled don't count, nor do holds until they expire: those that are Held, and
	// those in StatePreparing whose process has died before everything was held.
	// It is zero where there are no others.
	Oldest time.Time
}

// Explain says where a transfer stands at each account and document, which execution
// works on it, what is left to be done, and what to do about it.
// It changes nothing, and reads each document by its ID.
//
// A document that can't be read, because its collection is not registered here, its
// server is away, or a right is missing, has an empty State.
// The rest is explained all the same.
//
//   - nil: the explanation, also of a document that can't be a transfer: its Advice says
//     so.
//   - ErrTransferNotFound, ErrInvalidRequest and all others: as [Coordinator.Get].
func (c *Coordinator) Explain(ctx context.Context, id string) (Explanation, error) {
	if err := document.CheckID(id); err != nil {
		return Explanation{}, invalid("transfer: %w", err)
	}
	if err := c.readyToRead(ctx); err != nil {
		return Explanation{}, err
	}
	facts, err := c.factsOf(ctx, id)
	if err != nil {
		return Explanation{}, err
	}
	e := Explanation{
		Record: recordOf(*facts.Transfer), Executor: facts.Executor(), Since: facts.Since(), NextTry: facts.NextTry(),
		Left: facts.Left(), Advice: facts.Advice(),
	}
	for i := range facts.Participants {
		e.Participants = append(e.Participants, participantState(facts.Transfer, &facts.Participants[i]))
	}
	return e, nil
}

// maxLooks bounds how often a transfer is read again that moves on while its documents
// are read.
const maxLooks = 4

// factsOf reads a transfer and its documents.
// The transfer is read once more after the documents: it is in the same state all the
// while, or has changed so often that it is certainly under way.
func (c *Coordinator) factsOf(ctx context.Context, id string) (insight.Facts, error) {
	t, err := c.stored(ctx, id)
	if err != nil {
		return insight.Facts{}, err
	}
	facts := insight.Facts{Threshold: c.settings.stallThreshold}
	for range maxLooks {
		facts.Participants = c.insight.Look(ctx, &t)
		before := t
		if t, err = c.stored(ctx, id); err != nil {
			return facts, err
		}
		if t.State == before.State && t.Epoch == before.Epoch && t.Held == before.Held {
			break
		}
	}
	if err := ctx.Err(); err != nil {
		return facts, err
	}
	facts.Transfer, facts.Unsound = &t, sound(t) != nil
	err = c.read(ctx, func(ctx context.Context) (done bool, err error) {
		facts.Now, err = c.catalog.ReachedTime(wire.Detached(ctx))
		return err == nil, err
	})
	if err != nil {
		return facts, aboutTransfer(id, err)
	}
	if n, since := c.engine.Executions(id); n > 0 {
		facts.WorkingSince = since
	}
	return facts, nil
}

// participantState returns a participant as the API has it.
func participantState(t *document.Transfer, p *insight.Participant) ParticipantState {
	address, _ := p.Address()
	s := ParticipantState{Ledger: address.Name, Account: p.ID(), Note: p.Note}
	if p.Leg != nil {
		s.Amount, s.Currency = Amount{p.Leg.Amount}, t.CurrencyOf(*p.Leg)
	}
	switch p.Trace {
	case insight.None:
		s.State = "none"
	case insight.Reserved:
		s.State = "reserved"
	case insight.Settled:
		s.State = "settled"
	case insight.Missing:
		s.State = "missing"
	case insight.Unread:
	}
	switch {
	case denied(p.Err):
		s.Note = asUnauthorized(p.Err).Error()
	case errors.Is(p.Err, insight.ErrForeign):
		s.Note = p.Err.Error()
	case p.Err != nil:
		s.Note = "it could not be read: " + words.Short(p.Err.Error(), maxNoteBytes)
	}
	s.addNote("it is in the way", t.Stuck)
	s.addNote("it is waited for", t.Waiting)
	return s
}

// addNote adds a reason that is about the participant.
func (p *ParticipantState) addNote(what string, reason *document.Failure) {
	if reason != nil && reason.Ledger == p.Ledger && reason.Account == p.Account {
		p.Note = strings.TrimPrefix(p.Note+"; "+what+": "+reason.Message, "; ")
	}
}

// maxNoteBytes bounds the text of an error in a note.
const maxNoteBytes = 200

// String returns the explanation as some lines of text for people.
// It has the amounts, and no metadata.
// The IDs of the transfer and of its accounts are whole, so that they can be copied.
func (e Explanation) String() string {
	var text strings.Builder
	rec := e.Record
	fmt.Fprintf(&text, "transfer %s is %s", words.Whole(rec.ID), e.state())
	if !e.Since.IsZero() {
		fmt.Fprintf(&text, " since %s", words.Time(e.Since))
	}
	if rec.Attempts > 0 {
		fmt.Fprintf(&text, ", and was taken over %s", times(rec.Attempts))
	}
	text.WriteString("\n")
	for _, p := range e.Participants {
		fmt.Fprintf(&text, "  %s\n", p)
	}
	if rec.Posted != nil {
		fmt.Fprintf(&text, "posted:   %s\n", rec.Posted)
	}
	if !rec.Reversed.IsZero() {
		fmt.Fprintf(&text, "reversed: %s\n", rec.Reversed)
	}
	if rec.Failure != nil {
		fmt.Fprintf(&text, "failed:   %s\n", rec.Failure.inWords())
	}
	if rec.Stuck != nil {
		fmt.Fprintf(&text, "stuck:    %s: %s\n", rec.Stuck.Code, rec.Stuck.Message)
	}
	if e.Executor != "" {
		fmt.Fprintf(&text, "executor: %s\n", e.Executor)
	}
	fmt.Fprintf(&text, "left:     %s\n", e.Left)
	if !e.NextTry.IsZero() {
		fmt.Fprintf(&text, "next try: %s\n", words.Time(e.NextTry))
	}
	fmt.Fprintf(&text, "advice:   %s", e.Advice)
	return text.String()
}

// inWords returns the code, the account or document that is the cause, and the message
// and the detail where they say more.
func (f *Failure) inWords() string {
	text := f.Code
	switch {
	case f.Account != "" && f.Ledger != "":
		text += ": " + words.Whole(f.Account) + " of " + words.Quote(f.Ledger)
	case f.Account != "":
		text += ": account " + words.Whole(f.Account)
	}
	if !strings.EqualFold(strings.ReplaceAll(f.Message, " ", ""), f.Code) && f.Message != "" {
		text += ": " + f.Message
	}
	if f.Detail != "" {
		text += ": " + f.Detail
	}
	return text
}

// state names the record's state, and what else it is.
func (e Explanation) state() string {
	rec, more := e.Record, ""
	switch {
	case rec.State == "": // it is no transfer
		return "in no state"
	case rec.Held:
		more = " (held until " + words.Time(rec.ExpiresAt) + ")"
	case rec.State == StateInitiated && !rec.NotBefore.IsZero():
		more = " (not before " + words.Time(rec.NotBefore) + ")"
	case rec.Reverses != "":
		more = " (reverses " + words.Whole(rec.Reverses) + ")"
	}
	return string(rec.State) + more
}

// String returns the participant as one line of text.
func (p ParticipantState) String() string {
	name := words.Whole(p.Account)
	if p.Ledger != "" {
		name += " of " + words.Quote(p.Ledger)
	}
	state := p.State
	if state == "" {
		state = "not known"
	}
	text := fmt.Sprintf("%-9s %s", state, name)
	if !p.Amount.IsZero() {
		text += " " + p.Amount.String()
	}
	if p.Currency != "" {
		text += " " + words.Quote(p.Currency)
	}
	if p.Note != "" {
		text += " (" + p.Note + ")"
	}
	return text
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprint(n, " times")
}

// Stats counts the transfers that are unfinished.
// It reads these, by their index, and none that is final: it is as quick with a million
// stored transfers as with none.
// It waits for the server as long as ctx lets it.
//
//   - nil: the numbers, all of the same moment or nearly so.
//   - all others: as [Coordinator.Get]; nothing was counted.
func (c *Coordinator) Stats(ctx context.Context) (Stats, error) {
	if err := c.readyToRead(ctx); err != nil {
		return Stats{}, err
	}
	counted, err := c.insight.Count(ctx)
	if err != nil {
		return Stats{}, nothingStored(fmt.Errorf("count what is unfinished: %w", asUnauthorized(err)))
	}
	return Stats(counted), nil
}
