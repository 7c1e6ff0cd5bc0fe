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

// begin begins an execution of a transfer, of which the first participant loses money if
// there are several.
func begin(t *testing.T, start Start, participants int) dialogue {
	t.Helper()
	if participants < 2 {
		return dialogue{t: t, x: New(start, participants)}
	}
	return dialogue{t: t, x: New(start, participants, 0)}
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

// recorded brings a fresh transfer of two participants up to its fact, and gives these
// answers to its pay and to its record.
func recorded(t *testing.T, pay, record Answer) dialogue {
	t.Helper()
	d := reached(t)
	d.hears(Prepare, yes(), yes())
	d.hearsAll([]Kind{Pay, Decide}, pay, record)
	return d
}

// committed brings a fresh transfer of two participants past its record.
func committed(t *testing.T) dialogue {
	t.Helper()
	return recorded(t, yes(), yes())
}

// hearsAll requires what the execution wants next: one operation of each kind, which are
// answered in order.
func (d dialogue) hearsAll(kinds []Kind, answers ...Answer) []Operation {
	d.t.Helper()
	operations, err := d.x.Next()
	require.NoError(d.t, err)
	var asked []Kind
	for i, op := range operations {
		asked = append(asked, op.Kind)
		if i < len(answers) {
			d.x.Observe(op, answers[i])
		}
	}
	require.Equal(d.t, kinds, asked)
	return operations
}

func yes() Answer                   { return Answer{Result: Applied} }
func no() Answer                    { return Answer{Result: NotMatched} }
func only(result Result) Answer     { return Answer{Result: result} }
func shows(facts Facts) Answer      { return Answer{Result: Applied, Facts: facts} }
func reads(image Image) Answer      { return Answer{Result: Applied, Transfer: image} }
func holds(s State, e int64) Answer { return reads(Image{Found: true, State: s, Epoch: e, Mine: true}) }

// able are the facts of a participant that can be prepared.
func able(fence Fence) Facts {
	return Facts{
		Found: true, Fence: fence, Open: true, Unfrozen: true, Currency: true, Kind: true,
		BelowMarkerLimit: true, Funds: true, WithinLimits: true,
	}
}

// marked are the facts of a participant that is prepared.
func marked(fence Fence) Facts {
	facts := able(fence)
	facts.Trace = Reserved
	return facts
}

// TestCleanTransferWaitsTwice promises what a transfer that meets no other one asks for:
// it is certain after insert and prepare, and settled after one wait more, in which its
// pay and its record go out; then it clears and finishes, and sets no new fences.
func TestCleanTransferWaitsTwice(t *testing.T) {
	d := reached(t)
	require.True(t, d.x.Claimed())
	require.Equal(t, int64(1), d.x.epoch)
	prepares := d.hears(Prepare, yes(), yes())
	require.Equal(t, Fence("f0"), prepares[0].Fence)
	require.Equal(t, Fence("f1"), prepares[1].Fence)
	require.Equal(t, Undecided, d.x.Progress())
	operations := d.hearsAll([]Kind{Pay, Decide})
	require.Equal(t, Decided, d.x.Progress(), "it may be told before anything more is sent")
	require.Equal(t, Preparing, d.x.State())
	pay, record := operations[0], operations[1]
	require.Equal(t, 1, pay.Participant, "nothing is paid to who loses")
	require.Equal(t, Committed, record.To)
	require.Equal(t, int64(1), record.Epoch)
	require.True(t, record.Clean)
	d.x.Observe(pay, yes())
	require.Equal(t, Decided, d.x.Progress(), "nothing shows it without its record")
	d.x.Observe(record, yes())
	require.Equal(t, Settled, d.x.Progress())
	for _, clearing := range d.hearsAll([]Kind{Settle, Clear}, yes(), yes()) {
		require.False(t, clearing.ReplaceFence)
	}
	require.Equal(t, Success, d.hears(Finish, yes())[0].To)
	d.ends(Finished, Success)
	require.Equal(t, Complete, d.x.Progress())
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
	d.hears(LookTransfer, only(Unknown))
	d.hears(LookTransfer, reads(Image{}))
	d.hears(Claim, no())
	d.hears(LookTransfer, holds(Preparing, 1))
	require.Equal(t, Fence("f"), d.asks(Prepare, 1)[0].Fence)
	require.True(t, d.x.Claimed())
}

// TestClaimInDoubtIsNotForgotten promises that no execution leaves a transfer that is its
// own.
// A claim that was not answered may be stored, and a read that may be old doesn't show it
// yet: the transfer would stand still until recovery takes it over.
func TestClaimInDoubtIsNotForgotten(t *testing.T) {
	for _, unanswered := range []func(dialogue){
		func(d dialogue) { d.hears(Claim, only(Unknown)) },
		func(d dialogue) { d.asks(Claim, 1) },
		func(d dialogue) { d.hears(Claim, no()); d.hears(ReadTransfer, reads(Image{})) },
	} {
		d := begin(t, Start{Claim: Insert}, 0)
		unanswered(d)
		d.hears(Claim, no())
		d.hears(LookTransfer, reads(Image{Found: true, State: Preparing, Epoch: 1}))
		d.ends(NotClaimed, "")
	}
	d := begin(t, Start{Claim: TakeOver, RollBack: Stalled}, 1)
	d.hears(Claim, only(Unknown))
	d.hears(Claim, no())
	d.hears(LookTransfer, holds(Preparing, 2))
	d.asks(FenceOnly, 1)
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
	for state, kind := range map[State]Kind{Committed: Clear, Rollback: Undo} {
		d := begin(t, Start{Claim: TakeOver, RollBack: Stalled}, 1)
		d.hears(Claim, holds(state, 2))
		require.True(t, d.hears(kind, yes())[0].ReplaceFence)
		d.asks(Finish, 1)
	}
	d := begin(t, Start{Claim: TakeOver, RollBack: Stalled}, 1)
	d.hears(Claim, holds(Preparing, 7))
	d.hears(FenceOnly, yes())
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

	d = recorded(t, yes(), only(Unknown))
	d.hears(LookTransfer, holds("Frozen", 1))
	d.errs("Frozen")

	d = committed(t)
	d.hearsAll([]Kind{Settle, Clear}, yes(), yes())
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
		"stored":             {Image{Found: true, State: Rollback, Epoch: 1, Mine: true}, Running, Rollback, Undo},
		"not stored":         {Image{Found: true, State: Preparing, Epoch: 1, Mine: true}, Running, Preparing, Decide},
		"overtaken":          {Image{Found: true, State: Preparing, Epoch: 2}, Overtaken, Preparing, 0},
		"the same by others": {Image{Found: true, State: Rollback, Epoch: 2}, Overtaken, Preparing, 0},
		"my late claim":      {Image{Found: true, State: Preparing, Epoch: 2, Mine: true}, Overtaken, Preparing, 0},
		"the opposite":       {Image{Found: true, State: Committed, Epoch: 1, Mine: true}, Overtaken, Preparing, 0},
		"gone":               {Image{}, Gone, Preparing, 0},
	} {
		for _, result := range []Result{Unknown, NotMatched} {
			d := reached(t)
			d.hears(Prepare, yes(), only(Failed))
			d.hears(Decide, only(result))
			require.Equal(t, Preparing, d.x.State(), "nothing is told before the decision is known")
			require.Equal(t, Undecided, d.x.Progress())
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
		d.hearsAll([]Kind{Settle, Clear}, yes(), yes())
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
	d := recorded(t, yes(), only(Failed))
	d.ends(Stuck, Preparing)
	require.Equal(t, NoParticipant, d.x.StuckAt())
	require.Equal(t, Decided, d.x.Progress(), "and nobody can roll it back")

	d = committed(t)
	d.hearsAll([]Kind{Settle, Clear}, yes(), yes())
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
	fork.hearsAll([]Kind{Pay, Decide})
}

// TestOperationsStayAsTheyWereAskedFor promises that an operation which was handed out is
// never written again, neither by a later round nor by a fork.
// A performer may still work on it, and its late answer must not count as another one's.
func TestOperationsStayAsTheyWereAskedFor(t *testing.T) {
	d := reached(t)
	fork := dialogue{t: t, x: d.x.Clone()}
	d.hears(Prepare, yes(), yes())
	asked := d.hearsAll([]Kind{Pay, Decide})
	longer := asked
	// The list is the caller's, and so is what stands behind it.
	longer = append(longer, about(Verify))
	before := slices.Clone(longer)
	fork.hears(Prepare, no(), no())
	fork.asks(Look, 2)
	require.Equal(t, before[:2], asked)
	d.hearsAll([]Kind{Pay, Decide})
	require.Equal(t, before[:2], asked)
	require.Equal(t, before, longer)
}
