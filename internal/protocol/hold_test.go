package protocol

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// held brings a hold of two participants up to its last write.
func held(t *testing.T, prepares ...Result) dialogue {
	t.Helper()
	d := begin(t, Start{Claim: Insert, Hold: true}, len(prepares))
	facts := Answer{Result: Applied, Facts: well("f")}
	var reads, answers []Answer
	for _, result := range prepares {
		reads, answers = append(reads, facts), append(answers, Answer{Result: result})
	}
	d.hears(ReadFence, reads...)
	d.hears(Claim, Answer{Result: Applied, Transfer: Image{Found: true, State: Preparing, Epoch: 1, Mine: true}})
	d.hears(Prepare, answers...)
	return d
}

// well returns the facts of a participant that can be prepared.
func well(fence Fence) Facts {
	return Facts{
		Found: true, Fence: fence, Open: true, Unfrozen: true, Currency: true, Kind: true,
		BelowMarkerLimit: true, Funds: true, WithinLimits: true,
	}
}

// A hold is reported as held once that is stored, and never decides.
func TestHoldEndsOnceItIsStoredAsHeld(t *testing.T) {
	d := held(t, Applied, Applied)
	mark := d.asks(MarkHeld, 1)[0]
	require.Equal(t, int64(1), mark.Epoch)
	require.True(t, mark.Clean)
	d.x.Observe(mark, Answer{Result: Applied})
	d.ends(Held, Preparing)
}

// A hold is not clean if one of its prepares may still arrive.
func TestHoldWithAnAmbiguousPrepareIsNotClean(t *testing.T) {
	d := held(t, Applied, Unknown)
	marked := well("f")
	marked.Trace = Reserved
	d.hears(Look, Answer{Result: Applied, Facts: marked})
	require.False(t, d.asks(MarkHeld, 1)[0].Clean)
}

// After an answer that leaves it open, a deciding read shows whether a hold is held.
// It is this execution's and held; it is not held yet, and marked again; or it is
// another's.
func TestHeldIsLearnedFromALook(t *testing.T) {
	mine := Image{Found: true, State: Preparing, Epoch: 1, Mine: true}
	stored, anothers := mine, mine
	stored.Held = true
	anothers.Epoch, anothers.Mine, anothers.Held = 2, false, true
	for _, doubt := range []Result{NotMatched, Unknown} {
		d := held(t, Applied, Applied)
		d.hears(MarkHeld, Answer{Result: doubt})
		d.hears(LookTransfer, Answer{Result: Applied, Transfer: mine})
		d.hears(MarkHeld, Answer{Result: doubt})
		d.hears(LookTransfer, Answer{Result: Applied, Transfer: stored})
		d.ends(Held, Preparing)

		d = held(t, Applied, Applied)
		d.hears(MarkHeld, Answer{Result: doubt})
		d.hears(LookTransfer, Answer{Result: Applied, Transfer: anothers})
		d.ends(Overtaken, Preparing)
	}
	d := held(t, Applied, Applied)
	d.hears(MarkHeld, Answer{Result: NotSent})
	d.hears(MarkHeld, Answer{Result: Failed})
	d.ends(Stuck, Preparing)
}

// A post reads no fences and prepares nothing: it claims, and settles.
// New fences are set unless the hold was held clean.
func TestPostSettles(t *testing.T) {
	for _, clean := range []bool{true, false} {
		d := begin(t, Start{Claim: Post, Hold: true}, 2)
		image := Image{Found: true, State: Committed, Epoch: 2, Mine: true, Held: true, Clean: clean}
		d.hears(Claim, Answer{Result: Applied, Transfer: image})
		for _, op := range d.hears(Settle, Answer{Result: Applied}, Answer{Result: Applied}) {
			require.Equal(t, !clean, op.ReplaceFence)
		}
		require.Equal(t, Settled, d.x.Progress())
		d.hears(Finish, Answer{Result: Applied})
		d.ends(Finished, Success)
	}
}

// Voiding a hold undoes what is prepared.
// Once it is held that is all of it; before that, the execution looks for it everywhere.
func TestVoidUndoes(t *testing.T) {
	for _, image := range []Image{{Held: true, Clean: true}, {Held: true}, {}} {
		d := begin(t, Start{Claim: Expire, RollBack: Expired, Hold: true}, 2)
		image.Found, image.State, image.Epoch, image.Mine = true, Preparing, 2, true
		d.hears(Claim, Answer{Result: Applied, Transfer: image})
		decision := d.hears(Decide, Answer{Result: Applied})[0]
		require.Equal(t, Refusal{Reason: Expired, Participant: NoParticipant}, decision.Refusal)
		require.Equal(t, image.Clean, decision.Clean)
		for _, op := range d.hears(Undo, Answer{Result: Applied}, Answer{Result: Applied}) {
			require.Equal(t, !image.Clean, op.ReplaceFence)
		}
		d.hears(Finish, Answer{Result: Applied})
		d.ends(Finished, Fail)
	}
}

// A document to which nothing is owed may be gone when it is settled; any other one is
// waited for.
func TestSettleOfADocumentThatIsGone(t *testing.T) {
	for _, mayBeGone := range []bool{true, false} {
		d := begin(t, Start{Claim: Post, Hold: true}, 1)
		d.hears(Claim, Answer{Result: Applied, Transfer: Image{Found: true, State: Committed, Epoch: 2, Mine: true, Held: true, Clean: true}})
		d.hears(Settle, Answer{Result: NotMatched})
		d.hears(Look, Answer{Result: Applied, Facts: Facts{Unmet: true, MayBeGone: mayBeGone}})
		if mayBeGone {
			d.hears(Finish, Answer{Result: Applied})
			d.ends(Finished, Success)
		} else {
			d.ends(Stuck, Committed)
		}
	}
}
