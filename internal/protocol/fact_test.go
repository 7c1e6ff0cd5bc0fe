package protocol

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// paidOut are the facts of a participant that is settled and not cleared.
func paidOut(fence Fence) Facts {
	facts := able(fence)
	facts.Trace = Done
	return facts
}

// TestRecordIsLookedUp promises that a record which was not answered, or did not match,
// is looked up, while the pays go on beside it, and that nothing is cleared before it
// is known to be stored.
func TestRecordIsLookedUp(t *testing.T) {
	for _, doubt := range []Result{NotMatched, Unknown} {
		d := recorded(t, only(Unknown), only(doubt))
		require.Equal(t, Decided, d.x.Progress())
		d.hearsAll([]Kind{Pay, LookTransfer}, no(), only(Unknown))
		d.hearsAll([]Kind{Look, LookTransfer}, shows(marked("f1")), holds(Preparing, 1))
		d.hearsAll([]Kind{Pay, Decide}, yes(), only(doubt))
		require.Equal(t, Decided, d.x.Progress(), "all is paid, and the record is not there")
		d.hears(LookTransfer, holds(Committed, 1))
		require.Equal(t, Settled, d.x.Progress())
		d.hearsAll([]Kind{Settle, Clear}, yes(), yes())
		d.hears(Finish, yes())
		d.ends(Finished, Success)
	}
}

// TestOvertakenAfterTheFact promises that one who finds that the transfer is another's
// when it looks up its record clears nothing, and that what it has reported stays true.
func TestOvertakenAfterTheFact(t *testing.T) {
	for _, state := range []State{Preparing, Committed, Success} {
		d := recorded(t, yes(), no())
		d.hears(LookTransfer, reads(Image{Found: true, State: state, Epoch: 2}))
		d.ends(Overtaken, Preparing)
		require.Equal(t, Decided, d.x.Progress())
	}
}

// TestPayThatAnotherOneWasFirstWith promises that a pay which finds the done mark, or no
// trace any more, is done.
func TestPayThatAnotherOneWasFirstWith(t *testing.T) {
	for _, facts := range []Facts{paidOut("f1"), able("f1")} {
		d := recorded(t, no(), yes())
		d.hears(Look, shows(facts))
		require.Equal(t, Settled, d.x.Progress())
		d.hearsAll([]Kind{Settle, Clear}, yes(), yes())
	}
}

// TestResumedAfterTheFact promises that one who takes over finds the fact by the traces,
// pays what is not paid, records it under its own epoch, and clears with new fences.
func TestResumedAfterTheFact(t *testing.T) {
	d := begin(t, Start{Claim: TakeOver}, 3)
	d.hears(ReadFence, shows(marked("f0")), shows(paidOut("f1")), shows(able("f2")))
	d.hears(Claim, holds(Preparing, 2))
	d.hears(Look, shows(marked("f0")), shows(paidOut("f1")), shows(able("f2")))
	require.Equal(t, 2, d.hears(Prepare, no())[0].Participant)
	d.hears(Look, shows(marked("f2")))
	operations := d.hearsAll([]Kind{Pay, Decide}, yes(), yes())
	require.Equal(t, 2, operations[0].Participant)
	require.Equal(t, int64(2), operations[1].Epoch)
	require.False(t, operations[1].Clean)
	for _, clearing := range d.hearsAll([]Kind{Settle, Clear, Clear}, yes(), yes(), yes()) {
		require.True(t, clearing.ReplaceFence)
	}
	d.hears(Finish, yes())
	d.ends(Finished, Success)
}

// toCancel brings a cancel of a transfer in Preparing past its claim.
func toCancel(t *testing.T, participants int) dialogue {
	t.Helper()
	d := begin(t, Start{Claim: TakeToCancel, RollBack: Cancelled}, participants)
	d.hears(Claim, holds(Preparing, 2))
	return d
}

// TestCancelThatComesTooLate promises that one who is to roll back goes forward if every
// participant holds a trace, and names no reason then.
func TestCancelThatComesTooLate(t *testing.T) {
	d := toCancel(t, 2)
	d.hears(FenceOnly, no(), only(Unknown))
	d.hearsAll([]Kind{FenceOnly, Look}, no(), only(Unknown))
	d.hears(Look, shows(marked("f0")), shows(able("f1")))
	d.hears(FenceOnly, no()) // the answer before was stale, or a prepare has just landed
	require.Equal(t, Undecided, d.x.Progress())
	d.hears(Look, shows(paidOut("f1")))
	d.hears(Decide, yes())
	require.Equal(t, Settled, d.x.Progress())
	require.Zero(t, d.x.Refusal().Reason)
	d.hearsAll([]Kind{Settle, Clear}, yes(), yes())
	d.hears(Finish, yes())
	d.ends(Finished, Success)
}

// TestOneFenceAllowsTheRollBack promises that one fence-only that matched, or one
// document that is missing, is enough, and that the others are undone and fenced as
// ever.
func TestOneFenceAllowsTheRollBack(t *testing.T) {
	d := toCancel(t, 3)
	d.hears(FenceOnly, no(), yes(), only(NotSent))
	require.Equal(t, Refusal{Reason: Cancelled, Participant: NoParticipant}, d.hears(Decide, only(Unknown))[0].Refusal)
	d.hears(LookTransfer, holds(Preparing, 2))
	d.hears(Decide, yes())
	require.Equal(t, Decided, d.x.Progress())
	for _, undo := range d.hears(Undo, yes(), no()) {
		require.NotEqual(t, 1, undo.Participant, "it needs no second fence")
		require.True(t, undo.ReplaceFence)
	}
	require.Equal(t, 2, d.hears(FenceOnly, yes())[0].Participant)
	require.Equal(t, Settled, d.x.Progress())
	d.hears(Finish, yes())
	d.ends(Finished, Fail)

	d = toCancel(t, 2)
	d.hears(FenceOnly, no(), no())
	d.hears(Look, shows(Facts{}), shows(marked("f")))
	d.asks(Decide, 1)
}

// TestRefusedAfterATakeover promises that one who takes over and is refused fences first,
// and prepares nothing any more.
func TestRefusedAfterATakeover(t *testing.T) {
	refused := func() dialogue {
		d := begin(t, Start{Claim: TakeOver}, 2)
		d.hears(ReadFence, shows(able("f0")), shows(able("f1")))
		d.hears(Claim, holds(Preparing, 2))
		d.hears(Prepare, yes(), no())
		return d
	}
	d := refused()
	d.hears(Look, shows(refusing(Closed, false)))
	require.Equal(t, 1, d.hears(FenceOnly, yes())[0].Participant)
	require.Equal(t, Refusal{Reason: Closed, Participant: 1}, d.hears(Decide, yes())[0].Refusal)
	require.Equal(t, 0, d.hears(Undo, yes())[0].Participant)
	d.hears(Finish, yes())
	d.ends(Finished, Fail)

	d = refused()
	d.hears(Look, shows(Facts{}))
	require.Equal(t, Refusal{Reason: NotFound, Participant: 1}, d.asks(Decide, 1)[0].Refusal, "what is missing has no fence")

	d = refused()
	d.hears(Look, shows(refusing(Closed, false)))
	d.hears(FenceOnly, only(Failed))
	d.ends(Stuck, Preparing)
	require.Equal(t, 1, d.x.StuckAt())

	d = refused()
	d.hears(Look, shows(refusing(Closed, false)))
	d.hears(FenceOnly, no())
	d.hears(Look, shows(marked("f1"))) // an earlier executor's prepare has landed
	require.Equal(t, 1, d.hearsAll([]Kind{Pay, Decide})[0].Participant)
	require.Equal(t, Decided, d.x.Progress())
	require.Zero(t, d.x.Refusal().Reason)
}

// TestSomeAreNotByFact promises that a hold, a reversal, whose original may be purged,
// and what an earlier release has stored, is committed by a decision alone, and rolled
// back without a fence before it.
func TestSomeAreNotByFact(t *testing.T) {
	for _, start := range []Start{{Reserve: 1, Reversal: true}, {Reserve: 1, ByRecord: true}} {
		start.Claim = Insert
		d := begin(t, start, 2)
		d.hears(ReadFence, shows(able("f")), shows(able("f")))
		d.hears(Claim, holds(Preparing, 1))
		d.hears(Prepare, yes())
		d.hears(Prepare, yes())
		d.asks(Decide, 1)
		require.Equal(t, Undecided, d.x.Progress())
		d.hears(Decide, yes())
		require.Equal(t, Decided, d.x.Progress())
		d.hears(Settle, yes(), only(Unknown))
		require.Equal(t, Decided, d.x.Progress())
		d.hears(Settle, yes())
		require.Equal(t, Settled, d.x.Progress())
	}

	for _, start := range []Start{
		{Claim: TakeToCancel, RollBack: Voided, Hold: true}, {Claim: TakeToCancel, RollBack: Cancelled, Reversal: true},
		{Claim: TakeToCancel, RollBack: Cancelled, ByRecord: true},
	} {
		d := begin(t, start, 2)
		d.hears(Claim, holds(Preparing, 2))
		d.asks(Decide, 1)
	}
}

// TestNothingIsTakenBackFromADoneMark promises that a transfer which is rolled back, and
// has paid somewhere, is left alone there: no protocol does that.
func TestNothingIsTakenBackFromADoneMark(t *testing.T) {
	d := begin(t, Start{Claim: TakeOver}, 1)
	d.hears(ReadFence, shows(able("f")))
	d.hears(Claim, holds(Rollback, 2))
	d.hears(Undo, no())
	d.hears(FenceOnly, no())
	d.hears(Look, shows(paidOut("f")))
	d.ends(Stuck, Rollback)
	require.Equal(t, 0, d.x.StuckAt())
}

// TestWhatCantBeReadShowsNothing promises that a document whose traces can't be read is
// taken neither for paid nor for prepared nor for free: the write is asked for again,
// which the server refuses.
func TestWhatCantBeReadShowsNothing(t *testing.T) {
	illegible := able("f")
	illegible.Trace = Illegible
	d := recorded(t, no(), yes())
	d.hears(Look, shows(illegible))
	require.Equal(t, Decided, d.x.Progress())
	d.hears(Pay, only(Failed))
	d.hears(Settle, yes())
	d.ends(Stuck, Committed)

	d = toCancel(t, 2)
	d.hears(FenceOnly, no(), no())
	d.hears(Look, shows(marked("f")), shows(illegible))
	d.hears(FenceOnly, only(Failed))
	d.ends(Stuck, Preparing)
	require.Equal(t, 1, d.x.StuckAt())

	d = committed(t)
	d.hearsAll([]Kind{Settle, Clear}, yes(), no())
	d.hears(Look, shows(illegible))
	d.hears(Clear, only(Failed))
	d.ends(Stuck, Committed)

	d = reached(t)
	d.hears(Prepare, yes(), no())
	illegible.Kind = false
	d.hears(Look, shows(illegible))
	require.Equal(t, AmountKind, d.asks(Decide, 1)[0].Refusal.Reason)
}

// Each progress has a name, for logs.
func TestNamesOfProgress(t *testing.T) {
	for p, name := range map[Progress]string{Undecided: "Undecided", Decided: "Decided", Settled: "Settled", Complete: "Complete", 9: ""} {
		require.Equal(t, name, p.String())
	}
	for trace, name := range map[Trace]string{NoTrace: "NoTrace", Reserved: "Reserved", Done: "Done", Illegible: "Illegible", 9: ""} {
		require.Equal(t, name, trace.String())
	}
}
