package audit

import (
	"fmt"
	"math"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// judgeTransfer finds what is wrong with a transfer's document by itself.
func judgeTransfer(t *Transfer, now time.Time, genuine func(document.Transfer) bool) []Finding {
	if t.Err != nil {
		return []Finding{aboutTransfer(t.ID, Unreadable, "%v", t.Err)}
	}
	if !t.State.Known() {
		return []Finding{aboutTransfer(t.ID, WrongState, "the state %q is none", t.State)}
	}
	var found []Finding
	for _, check := range []struct {
		code  Code
		wrong func(*Transfer) string
	}{
		{WrongEpoch, wrongEpoch}, {WrongOpen, wrongOpen}, {WrongCommit, wrongCommit}, {WrongFailure, wrongFailure},
		{WrongLegs, wrongLegs}, {WrongHold, wrongHold},
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

// wrongEpoch: the claim sets state, epoch and owner at once. Each takeover raises the epoch, and of what had stalled the attempts too.
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

// wrongOpen: the finish sets the state and unsets the flag at once.
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

// wrongCommit: the decision to commit stamps its time, and nothing else does.
func wrongCommit(t *Transfer) string {
	switch committed := !t.CommittedAt.IsZero(); {
	case t.State.Forward() && !committed:
		return "there is no time of the commit"
	case !t.State.Forward() && committed:
		return fmt.Sprintf("it was committed at %s", t.CommittedAt.Format(time.RFC3339Nano))
	}
	return ""
}

// wrongFailure: the decision to roll back says why, and nothing else does.
func wrongFailure(t *Transfer) string {
	switch {
	case t.State.Back() && t.Failure == nil:
		return "it doesn't say why"
	case !t.State.Back() && t.Failure != nil:
		return fmt.Sprintf("has failed: %s (%s)", t.Failure.Code, t.Failure.Message)
	}
	return ""
}

// clockTolerance is how far ahead of the server's clock, as the audit has read it, a stored time may be: another server may have set it,
// whose clock is ahead, and the read takes a while.
const clockTolerance = 10 * time.Minute

// wrongTime: times are stored as dates, and those at which something has happened are past. 1. Somebody
// sets committedAt to next year. 2. A statement of this year doesn't show what has happened in it.
func wrongTime(t *Transfer, now time.Time) string {
	for _, field := range Times() {
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
	return ""
}

func wrongLegs(t *Transfer) string {
	var sum money.Sum
	accounts := map[[2]string]bool{}
	for _, leg := range t.Legs {
		sum.Add(leg.Amount)
		account := [2]string{leg.Ledger, leg.Account}
		switch {
		case leg.Amount.Sign() == 0:
			return fmt.Sprintf("moves nothing on account %q", leg.Account)
		case leg.Amount.Kind() != t.Legs[0].Amount.Kind():
			return "moves whole units and decimals"
		case accounts[account]:
			return fmt.Sprintf("has two legs for account %q", leg.Account)
		}
		accounts[account] = true
	}
	if sum.Sign() != 0 {
		return fmt.Sprintf("its legs sum to %s", &sum)
	}
	return ""
}

// wrongHold: a hold has an end, holds money once all is prepared, and is posted only then.
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

// stallThresholds is for how many of them a transfer may stand still before that is a finding.
const stallThresholds = 10

// longestThreshold is the longest that is reckoned with, some three years: seventy-three of them are a duration still.
const longestThreshold = math.MaxInt64 / 100 * time.Nanosecond

// overdue reports for how long nothing has happened to an unfinished transfer that should have gone on, if that is too long. What recovery
// leaves alone for longer, because those who took it over were killed again and again, is not overdue before recovery has looked.
//
// What was modified ahead of the clock is not overdue: recovery takes it up at once, and wrongTime tells
// of it.
func overdue(t *Transfer, now time.Time, threshold time.Duration) (time.Duration, bool) {
	threshold = min(threshold, longestThreshold)
	since, backOff := t.LastModified, t.BackOff(threshold)
	if t.Stuck != nil {
		backOff = 0 // something stands in its way, which is told
	}
	if t.Stuck != nil && !t.StuckAt.IsZero() {
		since = t.StuckAt // recovery tries again and again, which doesn't make it better
	}
	switch t.State {
	case protocol.Initiated:
		since = latest(since, t.NotBefore)
	case protocol.Preparing:
		if t.Hold {
			since, backOff = latest(since, t.ExpiresAt), 0 // whoever finds it then doesn't wait
		}
	case protocol.Committed:
		if t.Stuck != nil {
			since = t.CommittedAt
		}
	case protocol.Rollback:
	case protocol.Success, protocol.Fail:
		return 0, false
	}
	if threshold == 0 {
		threshold = wire.CommandLimit // zero says nothing of how long a transfer may take: a healthy one waits for each of its commands
	}
	age := now.Sub(since)
	return age, age > stallThresholds*threshold+backOff
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// judgeReversal finds what is wrong between a reversal that has succeeded and its original, as they are at the same moment. Either may be
// nil: it is not there.
func judgeReversal(originalID, reversalID string, original, reversal *Transfer) (Finding, bool) {
	switch {
	case original == nil:
		return aboutTransfer(reversalID, WrongReversal, "it has reversed transfer %q, which does not exist", originalID), true
	case reversal == nil:
		return aboutTransfer(originalID, WrongReversal, "it was reversed by transfer %q, which does not exist", reversalID), true
	case original.State != protocol.Success:
		return aboutTransfer(originalID, WrongReversal, "it was reversed by transfer %q, and is %s", reversalID, original.State), true
	case original.ReversedBy != reversalID:
		return aboutTransfer(reversalID, WrongReversal, "it has reversed transfer %q, which says that %q did",
			originalID, original.ReversedBy), true
	case reversal.Reverses != originalID || !reversal.State.Forward():
		return aboutTransfer(originalID, WrongReversal, "it was reversed by transfer %q, which is %s and reverses %q",
			reversalID, reversal.State, reversal.Reverses), true
	}
	return Finding{}, false
}
