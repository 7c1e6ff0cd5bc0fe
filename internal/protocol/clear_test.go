package protocol

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// refusedBut brings a fresh transfer of three participants to its roll-back: the first
// one gives a prepare the given answer, the second one is prepared, and the third one
// refuses.
func refusedBut(t *testing.T, first Answer) dialogue {
	t.Helper()
	d := begin(t, Start{Claim: Insert}, 3)
	d.hears(ReadFence, shows(able("f0")), shows(able("f1")), shows(able("f2")))
	d.hears(Claim, holds(Preparing, 1))
	d.hears(Prepare, first, yes(), only(Failed))
	d.hears(Look, shows(able("f0")))
	d.hears(Decide, yes())
	return d
}

// TestCleanRollBackTouchesOnlyWhatIsPrepared promises that a clean roll-back undoes what
// was prepared, keeps the fences, and sends nothing to the others.
func TestCleanRollBackTouchesOnlyWhatIsPrepared(t *testing.T) {
	d := refusedBut(t, no())
	undo := d.hears(Undo, yes())[0]
	require.Equal(t, 1, undo.Participant)
	require.False(t, undo.ReplaceFence)
	d.hears(Finish, yes())
	d.ends(Finished, Fail)
}

// TestCleanRollBackThatDidNotMatch promises that a clean undo which did not match is
// looked into, and that nothing is left to do where the marker is gone.
func TestCleanRollBackThatDidNotMatch(t *testing.T) {
	for name, c := range map[string]struct {
		facts Facts
		next  Kind
	}{
		"still there":        {marked("f1"), Undo},
		"undone by another":  {able("f1"), Finish},
		"the account is off": {Facts{}, Finish},
	} {
		d := refusedBut(t, no())
		d.hears(Undo, no())
		d.hears(Look, shows(c.facts))
		require.NotEmpty(t, d.asks(c.next, 1), name)
	}
}

// TestDirtyRollBackReplacesEveryFence promises that a roll-back after an ambiguous
// prepare replaces the fence at every participant, by the undo where the marker is, else
// by a fence-only, and finishes only then.
func TestDirtyRollBackReplacesEveryFence(t *testing.T) {
	d := refusedBut(t, only(Unknown))
	for _, undo := range d.hears(Undo, no(), yes(), no()) {
		require.True(t, undo.ReplaceFence)
	}
	fences := d.hears(FenceOnly, only(Unknown), yes())
	require.Equal(t, 0, fences[0].Participant)
	require.Equal(t, 2, fences[1].Participant)
	d.hears(FenceOnly, only(NotSent))
	d.hears(FenceOnly, no())
	d.hears(Look, shows(marked("f0"))) // the late prepare has just landed
	require.True(t, d.hears(Undo, only(Unknown))[0].ReplaceFence)
	d.hears(Undo, no())
	d.hears(FenceOnly, no())
	d.hears(Look, shows(able("f0"))) // it was stale
	d.hears(FenceOnly, yes())
	d.hears(Finish, yes())
	d.ends(Finished, Fail)
}

// TestRollBackOfWhatIsGone promises that a missing participant does not hold up a
// roll-back.
func TestRollBackOfWhatIsGone(t *testing.T) {
	d := refusedBut(t, only(Unknown))
	d.hears(Undo, yes(), yes(), no())
	d.hears(FenceOnly, no())
	d.hears(Look, shows(Facts{}))
	d.hears(Finish, yes())
	d.ends(Finished, Fail)
}

// TestRollBackOfATakeoverIsDirty promises that recovery and cancelling replace all
// fences, even of a transfer that looks untouched.
func TestRollBackOfATakeoverIsDirty(t *testing.T) {
	for _, claiming := range []ClaimKind{TakeOver, TakeToCancel} {
		d := begin(t, Start{Claim: claiming, RollBack: Cancelled}, 2)
		d.hears(Claim, holds(Preparing, 2))
		d.hears(FenceOnly, only(Unknown), yes())
		d.hears(Decide, yes())
		require.Equal(t, 0, d.hears(Undo, no())[0].Participant)
		d.hears(FenceOnly, yes())
		d.hears(Finish, yes())
		d.ends(Finished, Fail)
	}
}

// TestClearThatDidNotMatch promises that a settle or a clear which did not match is
// looked into.
// It is asked for again if the trace is there, done if another executor was first, and
// stuck if the document is gone.
func TestClearThatDidNotMatch(t *testing.T) {
	d := committed(t)
	d.hearsAll([]Kind{Settle, Clear}, no(), no())
	d.hears(Look, shows(marked("f0")), shows(able("f1")))
	require.Equal(t, 0, d.hears(Settle, only(Unknown))[0].Participant)
	d.hears(Settle, only(NotSent))
	d.hears(Settle, yes())
	d.hears(Finish, yes())
	d.ends(Finished, Success)
}

// TestTakeoverOfACommitLearnsWhatIsPaid promises that one who takes over what is
// committed clears done marks, and settles what is still reserved.
func TestTakeoverOfACommitLearnsWhatIsPaid(t *testing.T) {
	d := begin(t, Start{Claim: TakeOver}, 3)
	d.hears(ReadFence, shows(able("f")), shows(able("f")), shows(able("f")))
	d.hears(Claim, holds(Committed, 2))
	require.Equal(t, Decided, d.x.Progress())
	d.hearsAll([]Kind{Settle, Clear, Clear}, no(), no(), yes())
	d.hears(Look, shows(able("f")), shows(marked("f")))
	settle := d.hears(Settle, no())[0]
	require.True(t, settle.ReplaceFence)
	require.Equal(t, 1, settle.Participant)
	d.hears(Look, shows(paidOut("f"))) // by a pay that was late
	require.True(t, d.hears(Clear, yes())[0].ReplaceFence)
	require.Equal(t, Settled, d.x.Progress())
	d.hears(Finish, yes())
	d.ends(Finished, Success)
}

// TestStuckParticipants promises that a commit goes on at the other participants when one
// is gone or refuses, reports where it is stuck, and does not finish.
func TestStuckParticipants(t *testing.T) {
	d := committed(t)
	d.hearsAll([]Kind{Settle, Clear}, only(Unknown), only(Failed))
	require.Equal(t, 0, d.hears(Settle, yes())[0].Participant)
	d.ends(Stuck, Committed)
	require.Equal(t, 1, d.x.StuckAt())

	d = committed(t)
	d.hearsAll([]Kind{Settle, Clear}, no(), yes())
	d.hears(Look, shows(Facts{}))
	d.ends(Stuck, Committed)
	require.Equal(t, 0, d.x.StuckAt())

	d = recorded(t, only(Failed), no())
	d.hears(LookTransfer, holds(Committed, 1))
	require.Equal(t, 0, d.hears(Settle, yes())[0].Participant)
	require.Equal(t, Decided, d.x.Progress(), "what can't be paid is not settled")
	d.ends(Stuck, Committed)
	require.Equal(t, 1, d.x.StuckAt())

	d = recorded(t, no(), yes())
	d.hears(Look, shows(Facts{}))
	d.hears(Settle, yes())
	d.ends(Stuck, Committed)
	require.Equal(t, 1, d.x.StuckAt())

	d = refusedBut(t, only(Unknown))
	d.hears(Undo, only(Failed), yes(), no())
	d.hears(FenceOnly, only(Failed))
	d.ends(Stuck, Rollback)
	require.Equal(t, 0, d.x.StuckAt(), "the first of two")
}
