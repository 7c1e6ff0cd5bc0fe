package protocol

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// dialogue is a conversation with one execution, to which the test gives the answers.
type dialogue struct {
	t *testing.T
	x *Execution
}

func begin(t *testing.T, start Start, participants int) dialogue {
	t.Helper()
	return dialogue{t: t, x: New(start, participants)}
}

// asks requires what the execution wants next: a number of operations of one kind.
func (d dialogue) asks(kind Kind, count int) []Operation {
	d.t.Helper()
	operations, err := d.x.Next()
	require.NoError(d.t, err)
	require.Len(d.t, operations, count, "%s is expected, there is %v", kind, operations)
	for _, op := range operations {
		require.Equal(d.t, kind, op.Kind)
	}
	return operations
}

// hears requires what the execution wants next, and answers the operations in order.
func (d dialogue) hears(kind Kind, answers ...Answer) []Operation {
	d.t.Helper()
	operations := d.asks(kind, len(answers))
	for i, op := range operations {
		d.x.Observe(op, answers[i])
	}
	return operations
}

// ends requires that the execution wants nothing more.
func (d dialogue) ends(outcome Outcome, state State) {
	d.t.Helper()
	d.asks(ReadFence, 0)
	require.Equal(d.t, outcome, d.x.Outcome())
	require.Equal(d.t, state, d.x.State())
}

// errs requires that the execution fails.
func (d dialogue) errs(text string) {
	d.t.Helper()
	_, err := d.x.Next()
	require.ErrorContains(d.t, err, text)
	require.NotEqual(d.t, Running, d.x.Outcome())
}

// reached brings a fresh transfer of two participants to the point where it prepares
// them.
func reached(t *testing.T) dialogue {
	t.Helper()
	d := begin(t, Start{Claim: Insert}, 2)
	d.hears(ReadFence, shows(able("f0")), shows(able("f1")))
	d.hears(Claim, holds(Preparing, 1))
	return d
}

// committed brings a fresh transfer of two participants past its decision.
func committed(t *testing.T) dialogue {
	t.Helper()
	d := reached(t)
	d.hears(Prepare, yes(), yes())
	require.Equal(t, Committed, d.hears(Decide, yes())[0].To)
	return d
}

func yes() Answer                   { return Answer{Result: Applied} }
func no() Answer                    { return Answer{Result: NotMatched} }
func only(result Result) Answer     { return Answer{Result: result} }
func shows(facts Facts) Answer      { return Answer{Result: Applied, Facts: facts} }
func reads(image Image) Answer      { return Answer{Result: Applied, Transfer: image} }
func holds(s State, e int64) Answer { return reads(Image{Found: true, State: s, Epoch: e, Mine: true}) }

// able are the facts of a participant that can be prepared.
func able(fence Fence) Facts {
	return Facts{Found: true, Fence: fence, Open: true, Currency: true, Kind: true, BelowMarkerLimit: true, Funds: true, WithinLimits: true}
}

// marked are the facts of a participant that is prepared.
func marked(fence Fence) Facts {
	facts := able(fence)
	facts.Marker = true
	return facts
}

// TestCleanTransferCostsFiveWrites promises the cost of a transfer that meets no other
// one: insert, prepare, commit, settle and finish, and no new fences.
func TestCleanTransferCostsFiveWrites(t *testing.T) {
	d := reached(t)
	require.True(t, d.x.Claimed())
	require.Equal(t, int64(1), d.x.epoch)
	prepares := d.hears(Prepare, yes(), yes())
	require.Equal(t, Fence("f0"), prepares[0].Fence)
	require.Equal(t, Fence("f1"), prepares[1].Fence)
	decide := d.hears(Decide, yes())[0]
	require.Equal(t, Committed, decide.To)
	require.Equal(t, int64(1), decide.Epoch)
	require.True(t, decide.Clean)
	for _, settle := range d.hears(Settle, yes(), yes()) {
		require.False(t, settle.ReplaceFence)
	}
	require.Equal(t, Success, d.hears(Finish, yes())[0].To)
	d.ends(Finished, Success)
}

// TestClaimInDoubtFoundMine promises that a lost answer to a claim costs nothing.
// The owner's nonce shows whose claim it was, and a look-up that finds nothing does not
// mean that the claim never arrives.
func TestClaimInDoubtFoundMine(t *testing.T) {
	d := begin(t, Start{Claim: Insert}, 1)
	d.hears(ReadFence, shows(able("f")))
	d.hears(Claim, only(Unknown))
	require.True(t, d.x.ClaimInDoubt())
	d.hears(Claim, no())
	d.hears(ReadTransfer, only(Unknown))
	d.hears(ReadTransfer, reads(Image{}))
	d.hears(Claim, no())
	d.hears(ReadTransfer, holds(Preparing, 1))
	require.Equal(t, Fence("f"), d.asks(Prepare, 1)[0].Fence)
	require.True(t, d.x.Claimed())
}

// TestRefusedClaimAfterOneInDoubt promises that no caller hears that nothing is stored
// while an earlier claim may be stored, or may yet be.
func TestRefusedClaimAfterOneInDoubt(t *testing.T) {
	for name, unheard := range map[string]bool{"lost answer": false, "no answer": true} {
		d := begin(t, Start{Claim: Insert}, 0)
		if unheard {
			d.asks(Claim, 1)
		} else {
			d.hears(Claim, only(Unknown))
		}
		d.hears(Claim, only(Failed))
		d.ends(Unclaimable, "")
		require.True(t, d.x.ClaimInDoubt(), name)
	}
	d := begin(t, Start{Claim: Insert}, 0)
	d.hears(Claim, only(NotSent))
	d.hears(Claim, only(Failed))
	d.ends(Unclaimable, "")
	require.False(t, d.x.ClaimInDoubt(), "nothing was ever sent")
	require.False(t, d.x.Claimed())
}

// TestClaimThatIsAnothers promises that an execution writes nothing for a transfer that
// it does not own.
func TestClaimThatIsAnothers(t *testing.T) {
	for claiming := Insert; claiming <= CancelInitiated; claiming++ {
		d := begin(t, Start{Claim: claiming}, 0)
		require.Equal(t, claiming, d.hears(Claim, no())[0].Claim)
		d.hears(ReadTransfer, reads(Image{Found: true, State: Preparing, Epoch: 3}))
		d.ends(NotClaimed, "")
		require.False(t, d.x.Claimed())
	}
}

// TestWithdrawnTransferIsNeverPrepared promises that cancelling a transfer that waits for
// its worker stores the reason with the claim, so that no recovery can run it, and
// touches no participant.
func TestWithdrawnTransferIsNeverPrepared(t *testing.T) {
	d := begin(t, Start{Claim: CancelInitiated, RollBack: Cancelled}, 2)
	claim := d.hears(Claim, holds(Rollback, 1))[0]
	require.Equal(t, Refusal{Reason: Cancelled, Participant: NoParticipant}, claim.Refusal)
	require.Equal(t, Fail, d.hears(Finish, yes())[0].To)
	d.ends(Finished, Fail)
	require.Equal(t, Cancelled, d.x.Refusal().Reason)
}

// TestTakeoverGoesByTheImageAfterIt promises that a takeover goes on from the state that
// the claim left, under the epoch that it made, and dirty.
func TestTakeoverGoesByTheImageAfterIt(t *testing.T) {
	for state, kind := range map[State]Kind{Committed: Settle, Rollback: Undo} {
		d := begin(t, Start{Claim: TakeOver, RollBack: Stalled}, 1)
		d.hears(Claim, holds(state, 2))
		require.True(t, d.hears(kind, yes())[0].ReplaceFence)
		d.asks(Finish, 1)
	}
	d := begin(t, Start{Claim: TakeOver, RollBack: Stalled}, 1)
	d.hears(Claim, holds(Preparing, 7))
	decide := d.hears(Decide, yes())[0]
	require.Equal(t, int64(7), decide.Epoch)
	require.Equal(t, Rollback, decide.To)
	require.False(t, decide.Clean)
	require.Equal(t, Refusal{Reason: Stalled, Participant: NoParticipant}, decide.Refusal)
	for _, final := range []State{Success, Fail} {
		d := begin(t, Start{Claim: TakeOver}, 0)
		d.hears(Claim, no())
		d.hears(ReadTransfer, holds(final, 2))
		d.ends(Finished, final)
	}
}

// TestUnknownStateIsAnError promises that a state which a newer version has stored stops
// the execution, wherever it shows up.
func TestUnknownStateIsAnError(t *testing.T) {
	d := begin(t, Start{Claim: TakeOver}, 0)
	d.hears(Claim, holds("Frozen", 2))
	d.errs(`unknown transfer state "Frozen"`)

	d = begin(t, Start{Claim: FromInitiated}, 0)
	d.hears(Claim, holds(Initiated, 1))
	d.errs("still Initiated")

	d = reached(t)
	d.hears(Prepare, yes(), yes())
	d.hears(Decide, only(Unknown))
	d.hears(LookTransfer, holds("Frozen", 1))
	d.errs("Frozen")

	d = committed(t)
	d.hears(Settle, yes(), yes())
	d.hears(Finish, no())
	d.hears(ReadTransfer, holds("Frozen", 1))
	d.errs("Frozen")
}

// TestDecisionIsLearnedFromALook promises that neither a lost answer to a decision nor a
// "not matched" is believed.
// A deciding read shows whether the decision is stored, whether it is this execution's,
// and whether to ask again.
func TestDecisionIsLearnedFromALook(t *testing.T) {
	for name, c := range map[string]struct {
		image   Image
		outcome Outcome
		state   State
		next    Kind
	}{
		"stored":             {Image{Found: true, State: Committed, Epoch: 1, Mine: true}, Running, Committed, Settle},
		"not stored":         {Image{Found: true, State: Preparing, Epoch: 1, Mine: true}, Running, Preparing, Decide},
		"overtaken":          {Image{Found: true, State: Preparing, Epoch: 2}, Overtaken, Preparing, 0},
		"the same by others": {Image{Found: true, State: Committed, Epoch: 2}, Overtaken, Preparing, 0},
		"my late claim":      {Image{Found: true, State: Preparing, Epoch: 2, Mine: true}, Overtaken, Preparing, 0},
		"the opposite":       {Image{Found: true, State: Rollback, Epoch: 1, Mine: true}, Overtaken, Preparing, 0},
		"gone":               {Image{}, Gone, Preparing, 0},
	} {
		for _, result := range []Result{Unknown, NotMatched} {
			d := reached(t)
			d.hears(Prepare, yes(), yes())
			d.hears(Decide, only(result))
			require.Equal(t, Preparing, d.x.State(), "nothing is told before the decision is known")
			d.hears(LookTransfer, only(Unknown))
			d.hears(LookTransfer, reads(c.image))
			operations, err := d.x.Next()
			require.NoError(t, err)
			require.Equal(t, c.outcome, d.x.Outcome(), name)
			require.Equal(t, c.state, d.x.State(), name)
			if c.next == 0 {
				require.Empty(t, operations, name)
				continue
			}
			require.Equal(t, c.next, operations[0].Kind, name)
		}
	}
}

// TestFinishThatDidNotMatch promises that an execution ends well when another one, or its
// own earlier message, was first.
func TestFinishThatDidNotMatch(t *testing.T) {
	unfinished := func() dialogue {
		d := committed(t)
		d.hears(Settle, yes(), yes())
		d.hears(Finish, only(Unknown))
		d.hears(Finish, no())
		return d
	}
	d := unfinished()
	d.hears(ReadTransfer, reads(Image{Found: true, State: Success, Epoch: 4}))
	d.ends(Finished, Success)

	d = unfinished()
	d.hears(ReadTransfer, holds(Preparing, 1)) // an old one
	d.hears(Finish, yes())
	d.ends(Finished, Success)

	d = unfinished()
	d.hears(ReadTransfer, reads(Image{})) // a very old one, or it is gone
	d.hears(LookTransfer, holds(Success, 1))
	d.ends(Finished, Success)

	d = unfinished()
	d.hears(ReadTransfer, reads(Image{}))
	d.hears(LookTransfer, reads(Image{}))
	d.ends(Gone, Committed)

	d = unfinished()
	d.hears(ReadTransfer, reads(Image{Found: true, State: Fail, Epoch: 1}))
	d.errs("was Committed and is now")
}

// TestTransferItselfIsStuck promises that a transfer is stuck at itself if the server
// refuses to change its own document.
func TestTransferItselfIsStuck(t *testing.T) {
	d := reached(t)
	d.hears(Prepare, yes(), yes())
	d.hears(Decide, only(Failed))
	d.ends(Stuck, Preparing)
	require.Equal(t, NoParticipant, d.x.StuckAt())

	d = committed(t)
	d.hears(Settle, yes(), yes())
	d.hears(Finish, only(Failed))
	d.ends(Stuck, Committed)
	require.Equal(t, NoParticipant, d.x.StuckAt())
}

// TestClonesGoTheirOwnWay promises that a search can fork an execution.
func TestClonesGoTheirOwnWay(t *testing.T) {
	d := reached(t)
	fork := dialogue{t: t, x: d.x.Clone()}
	d.hears(Prepare, yes(), no())
	fork.hears(Prepare, yes(), yes())
	d.asks(Look, 1)
	fork.asks(Decide, 1)
}

// TestOperationsStayAsTheyWereAskedFor promises that an operation which was handed out is
// never written again, neither by a later round nor by a fork.
// A performer may still work on it, and its late answer must not count as another one's.
func TestOperationsStayAsTheyWereAskedFor(t *testing.T) {
	d := reached(t)
	fork := dialogue{t: t, x: d.x.Clone()}
	d.hears(Prepare, yes(), yes())
	asked := d.asks(Decide, 1)
	longer := asked
	// The list is the caller's, and so is what stands behind it.
	longer = append(longer, about(Verify))
	before := slices.Clone(longer)
	fork.hears(Prepare, no(), no())
	fork.asks(Look, 2)
	require.Equal(t, before[:1], asked)
	d.asks(Decide, 1)
	require.Equal(t, before[:1], asked)
	require.Equal(t, before, longer)
}
