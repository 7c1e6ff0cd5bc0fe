package audit

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// checkTransfer finds what is wrong with a transfer's document by itself, at the time
// that the server's clock has shown.
func checkTransfer(t *Transfer, now time.Time, genuine func(document.Transfer) bool) []Finding {
	if t.Err != nil {
		return []Finding{aboutTransfer(t.ID, Unreadable, "%v", t.Err)}
	}
	if !t.State.Known() {
		return []Finding{aboutTransfer(t.ID, WrongState, "the state %q is not known", t.State)}
	}
	var found []Finding
	for _, check := range []struct {
		code  Code
		wrong func(*Transfer) string
	}{
		{WrongEpoch, wrongEpoch}, {WrongOpen, wrongOpen}, {WrongCommit, wrongCommit}, {WrongFailure, wrongFailure},
		{WrongLegs, wrongLegs}, {WrongHold, wrongHold}, {WrongOutbox, wrongOutbox},
		{WrongTime, func(t *Transfer) string { return wrongTime(t, now) }},
	} {
		if wrong := check.wrong(t); wrong != "" {
			found = append(found, aboutTransfer(t.ID, check.code, "it is %s, and %s", t.State, wrong))
		}
	}
	if !genuine(t.Transfer) {
		found = append(found, aboutTransfer(t.ID, WrongDigest, "what it moves is not what its digest stands for"))
	}
	return found
}

// wrongEpoch checks the epoch: the claim sets state, epoch and owner at once. Each
// takeover raises the epoch, and that of a stalled transfer raises the attempts too.
func wrongEpoch(t *Transfer) string {
	if odd := t.Odd["epoch"]; odd != "" {
		return fmt.Sprintf("its epoch %s is no int32 or int64", odd)
	}
	if t.Epoch >= 1 && t.Attempts >= t.Epoch {
		return fmt.Sprintf("its epoch is %d after %d takeovers", t.Epoch, t.Attempts)
	}
	if claimed := t.State != protocol.Initiated; (t.Epoch >= 1) == claimed && (t.Owner != "") == claimed && t.Epoch >= 0 {
		return ""
	}
	return fmt.Sprintf("its epoch is %d, and its owner %q", t.Epoch, t.Owner)
}

// wrongOpen checks the flag open: the finish sets the state and unsets the flag at once.
func wrongOpen(t *Transfer) string {
	switch odd := t.Odd["open"]; {
	case odd != "":
		return fmt.Sprintf("its flag open, %s, is no boolean", odd)
	case t.State.Final() && t.Opened:
		return "still marked as open"
	case !t.State.Final() && !t.Open:
		return "not marked as open: recovery doesn't find it"
	}
	return ""
}

// wrongCommit checks the time of the commit: only the decision to commit stamps it.
func wrongCommit(t *Transfer) string {
	switch committed := !t.CommittedAt.IsZero(); {
	case t.State.Forward() && !committed:
		return "there is no time of the commit"
	case !t.State.Forward() && committed:
		return fmt.Sprintf("it was committed at %s", t.CommittedAt.Format(time.RFC3339Nano))
	}
	return ""
}

// wrongFailure checks the reason of a failure: only the decision to roll back stores it.
func wrongFailure(t *Transfer) string {
	switch {
	case t.State.Back() && t.Failure == nil:
		return "it doesn't say why"
	case !t.State.Back() && t.Failure != nil:
		return fmt.Sprintf("has failed: %s (%s)", t.Failure.Code, t.Failure.Message)
	}
	return ""
}

// clockTolerance is how far ahead of the server's clock, as the audit has read it, a
// stored time may be. Another server, whose clock is ahead, may have set it, and the
// audit takes a while.
const clockTolerance = 10 * time.Minute

// longestPause is how far ahead a transfer that lacks funds is put off at most.
const longestPause = time.Minute

// wrongTime checks the times: they are stored as dates, and those at which something has
// happened are past. A transfer that was put off, and an event, are due soon.
//
//  1. Somebody sets committedAt to next year.
//  2. A statement of this year doesn't show the transfer.
func wrongTime(t *Transfer, now time.Time) string {
	for _, field := range timeFields() {
		if odd := t.Odd[field]; odd != "" {
			return fmt.Sprintf("its %s, %s, is no date", field, odd)
		}
	}
	for _, past := range []struct {
		field string
		at    time.Time
	}{{"createdAt", t.CreatedAt}, {"lastModified", t.LastModified}, {"committedAt", t.CommittedAt}, {"stuckAt", t.StuckAt}} {
		if past.at.Sub(now) > clockTolerance {
			return fmt.Sprintf("its %s, %s, is to come", past.field, past.at.Format(time.RFC3339Nano))
		}
	}
	if t.State == protocol.Initiated && t.Postponed > 0 && t.NotBefore.Sub(now) > clockTolerance+longestPause {
		return fmt.Sprintf("it waits for funds, and is looked at only at %s", t.NotBefore.Format(time.RFC3339Nano))
	}
	for _, u := range t.Undelivered() {
		if u.Due.Sub(now) > clockTolerance+document.FarDue {
			return fmt.Sprintf("its event %s is due only at %s", u.Kind, u.Due.Format(time.RFC3339Nano))
		}
	}
	return ""
}

// wrongOutbox checks the outbox: workers find each event, and what keeps a transfer from
// its purge is an event that waits.
func wrongOutbox(t *Transfer) string {
	waits := false
	for _, u := range t.Undelivered() {
		waits = waits || !u.GivenUp
	}
	switch wrong := wrongEvents(t); {
	case wrong != "":
		return wrong
	case t.Kept && !t.State.Final():
		return "its purge is dated"
	case t.Kept && !waits:
		return "its purge waits for an event, and there is none"
	case waits && !t.PurgeAt.IsZero():
		return "it is purged before its event is delivered"
	}
	return ""
}

// wrongEvents checks the events of the outbox, each by itself.
func wrongEvents(t *Transfer) string {
	if document.Absent(t.Outbox) {
		return ""
	}
	entries, isArray := t.Outbox.ArrayOK()
	values, _ := entries.Values()
	undelivered := t.Undelivered()
	if !isArray || len(undelivered) == 0 || len(undelivered) != len(values) {
		return "its outbox holds something else than events"
	}
	for _, u := range undelivered {
		switch {
		case u.At.IsZero():
			return fmt.Sprintf("its event %s has no time", u.Kind)
		case u.Due.IsZero() && !u.GivenUp:
			return fmt.Sprintf("no worker finds its event %s", u.Kind)
		}
	}
	return ""
}

// wrongLegs checks the legs: they move something on each account once, and those in one
// currency are amounts of one kind and sum to zero.
func wrongLegs(t *Transfer) string {
	sums := map[string]*legSum{} // by currency
	accounts := map[[2]string]bool{}
	for _, leg := range t.Legs {
		currency := t.CurrencyOf(leg)
		if sums[currency] == nil {
			sums[currency] = &legSum{kind: leg.Amount.Kind()}
		}
		sum := sums[currency]
		sum.Add(leg.Amount)
		account := [2]string{leg.Ledger, leg.Account}
		switch {
		case leg.Amount.Sign() == 0:
			return fmt.Sprintf("moves nothing on account %q", leg.Account)
		case leg.Amount.Kind() != sum.kind:
			return "moves whole units and decimals"
		case accounts[account]:
			return fmt.Sprintf("has two legs for account %q", leg.Account)
		}
		accounts[account] = true
	}
	for _, currency := range slices.Sorted(maps.Keys(sums)) {
		switch sum := sums[currency]; {
		case sum.Sign() == 0:
		case len(sums) == 1:
			return fmt.Sprintf("its legs sum to %s", sum)
		default:
			return fmt.Sprintf("its legs in currency %q sum to %s", currency, sum)
		}
	}
	return ""
}

// legSum is the sum of a transfer's legs in one currency, whose amounts are of one kind.
type legSum struct {
	money.Sum
	kind money.Kind
}

// wrongHold checks a hold: it has an end, it holds money once everything is prepared, and
// it is posted only after that.
func wrongHold(t *Transfer) string {
	for _, flag := range []string{"hold", "held", "clean"} {
		if odd := t.Odd[flag]; odd != "" {
			return fmt.Sprintf("its flag %s, %s, is no boolean", flag, odd)
		}
	}
	switch {
	case t.Held && !t.Hold:
		return "holds money, and is no hold"
	case t.Held && t.State == protocol.Initiated:
		return "holds money"
	case t.Hold && t.ExpiresAt.IsZero():
		return "is a hold without an end"
	case t.Hold && t.State.Forward() && !t.Held:
		return "was posted without having been held"
	case !t.SoundPart() || t.Posted != nil && !t.State.Forward():
		return fmt.Sprintf("%s of it was posted", t.Posted)
	}
	return ""
}
