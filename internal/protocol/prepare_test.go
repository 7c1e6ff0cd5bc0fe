package protocol

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// refusing returns the facts of a participant that refuses for a reason and, if all is
// set, for each later one as well.
func refusing(reason Reason, all bool) Facts {
	facts := able("f")
	for r, flag := range map[Reason]*bool{
		NotFound: &facts.Found, Closed: &facts.Open, Frozen: &facts.Unfrozen, CurrencyMismatch: &facts.Currency,
		AmountKind: &facts.Kind, Busy: &facts.BelowMarkerLimit, InsufficientFunds: &facts.Funds, Overflow: &facts.WithinLimits,
	} {
		if r == reason || all && r > reason {
			*flag = false
		}
	}
	return facts
}

// TestFirstReasonIsTold promises that of several reasons, at one participant or at
// several, the first one in their order is reported.
// If several participants have the same reason, it is reported for the first of them.
// The reason is stored with the decision.
func TestFirstReasonIsTold(t *testing.T) {
	for first := NotFound; first <= Overflow; first++ {
		for second := NotFound; second <= Overflow; second++ {
			d := begin(t, Start{Claim: Insert}, 3)
			d.hears(ReadFence, shows(able("f")), shows(able("f")), shows(able("f")))
			d.hears(Claim, holds(Preparing, 1))
			d.hears(Prepare, yes(), no(), no())
			d.hears(Look, shows(refusing(first, true)), shows(refusing(second, true)))
			expected := Refusal{Reason: min(first, second), Participant: 1}
			if second < first {
				expected.Participant = 2
			}
			decide := d.asks(Decide, 1)[0]
			require.Equal(t, Rollback, decide.To)
			require.Equal(t, expected, decide.Refusal)
			require.Equal(t, Preparing, d.x.State(), "nobody is told before the decision is stored")
			d.x.Observe(decide, yes())
			require.Equal(t, Rollback, d.x.State())
			require.Equal(t, expected, d.x.Refusal())
		}
	}
}

// TestOthersAreLookedAtBeforeARefusal promises that the first reason is reported even if
// its participant had not been asked: its prepare was never sent, or its answer is not
// known.
func TestOthersAreLookedAtBeforeARefusal(t *testing.T) {
	for _, result := range []Result{NotSent, Unknown} {
		d := reached(t)
		d.hears(Prepare, only(result), only(Failed))
		d.hears(Look, shows(refusing(Closed, false)))
		require.Equal(t, Refusal{Reason: Closed, Participant: 0}, d.asks(Decide, 1)[0].Refusal)
	}
	d := reached(t)
	d.hears(Prepare, only(NotSent), only(Failed))
	d.hears(Look, shows(able("f0")))
	require.Equal(t, Refusal{Reason: Unwritable, Participant: 1}, d.asks(Decide, 1)[0].Refusal)
}

// TestReadReasonsAreLookedAt promises that no transfer is refused because of a read that
// may be old.
func TestReadReasonsAreLookedAt(t *testing.T) {
	for reason := NotFound; reason <= Overflow; reason++ {
		d := begin(t, Start{Claim: Insert}, 1)
		d.hears(ReadFence, shows(refusing(reason, false)))
		d.hears(Claim, holds(Preparing, 1))
		d.hears(Look, only(Unknown))
		d.hears(Look, shows(able("f")))
		if reason == NotFound {
			d.hears(Verify, yes()) // no fence was pinned: that one is new
		}
		require.Equal(t, Fence("f"), d.asks(Prepare, 1)[0].Fence)
	}
}

// TestMissingParticipantGetsNoPrepare promises that nothing is sent to an account that is
// not there: it could be opened before the message arrives.
func TestMissingParticipantGetsNoPrepare(t *testing.T) {
	d := begin(t, Start{Claim: Insert}, 2)
	d.hears(ReadFence, shows(able("f0")), shows(Facts{}))
	d.hears(Claim, holds(Preparing, 1))
	// The other one may have a reason that comes first.
	d.hears(Look, shows(able("f0")), shows(Facts{}))
	require.Equal(t, Refusal{Reason: NotFound, Participant: 1}, d.hears(Decide, yes())[0].Refusal)
	d.asks(Finish, 1)
}

// TestShortCount promises that "not matched" for a whole command is not believed of any
// of its writes: where the marker is, the participant is prepared, and only the others
// are asked again.
func TestShortCount(t *testing.T) {
	d := reached(t)
	d.hears(Prepare, no(), no())
	d.hears(Look, shows(marked("f0")), shows(able("f1")))
	again := d.hears(Prepare, yes())
	require.Equal(t, 1, again[0].Participant)
	require.Equal(t, Fence("f1"), again[0].Fence)
	require.True(t, d.hearsAll([]Kind{Pay, Decide})[1].Clean, "every prepare was answered")
}

// TestPatience promises that an execution that may wait claims nothing while an account
// is busy.
// It stops waiting when StopWaiting is called, or when the transfer is on the account
// already.
func TestPatience(t *testing.T) {
	busy := refusing(Busy, false)
	d := begin(t, Start{Claim: Insert, WaitWhileBusy: true}, 2)
	d.hears(ReadFence, shows(able("f")), shows(busy))
	require.Equal(t, 1, d.hears(ReadFence, shows(busy))[0].Participant)
	require.False(t, d.x.Claimed())
	d.x.StopWaiting()
	d.hears(ReadFence, shows(busy))
	d.hears(Claim, holds(Preparing, 1))
	d.hears(Look, shows(able("f")), shows(busy))
	require.Equal(t, Refusal{Reason: Busy, Participant: 1}, d.asks(Decide, 1)[0].Refusal)

	d = begin(t, Start{Claim: Insert, WaitWhileBusy: true}, 1)
	d.hears(ReadFence, shows(busy))
	d.hears(ReadFence, shows(able("f")))
	d.asks(Claim, 1)

	busy.Trace = Reserved
	d = begin(t, Start{Claim: TakeOver, WaitWhileBusy: true}, 1)
	d.hears(ReadFence, shows(busy))
	d.asks(Claim, 1)
}

// TestFenceIsPinnedBeforeTheClaim promises that each prepare, repeats included, names the
// fence that was read before the claim.
func TestFenceIsPinnedBeforeTheClaim(t *testing.T) {
	d := begin(t, Start{Claim: TakeOver}, 2)
	d.hears(ReadFence, only(Unknown), shows(able("f1")))
	require.Equal(t, 0, d.hears(ReadFence, shows(able("")))[0].Participant)
	d.hears(Claim, holds(Preparing, 2))
	d.hears(Prepare, only(Unknown), only(NotSent))
	d.hears(Look, shows(able("")), shows(able("f1")))
	again := d.asks(Prepare, 2)
	require.Equal(t, Fence(""), again[0].Fence)
	require.Equal(t, Fence("f1"), again[1].Fence)
}

// TestNewerFenceIsVerifiedFirst promises the order that keeps a late executor out: read
// the fence, verify the ownership, and prepare with the fence only if that matched.
func TestNewerFenceIsVerifiedFirst(t *testing.T) {
	d := reached(t)
	d.hears(Prepare, yes(), no())
	d.hears(Look, shows(able("newer")))
	require.Equal(t, int64(1), d.hears(Verify, only(Unknown))[0].Epoch)
	d.hears(Verify, only(NotSent))
	d.hears(Verify, no())
	d.hears(LookTransfer, holds(Preparing, 1)) // "not matched" was wrong
	d.hears(Verify, yes())
	require.Equal(t, Fence("newer"), d.hears(Prepare, no())[0].Fence)
	d.hears(Look, shows(able("newest"))) // and the same again
	d.hears(Verify, yes())
	require.Equal(t, Fence("newest"), d.asks(Prepare, 1)[0].Fence)

	d = reached(t)
	d.hears(Prepare, yes(), no())
	d.hears(Look, shows(able("newer")))
	d.hears(Verify, no())
	d.hears(LookTransfer, reads(Image{Found: true, State: Rollback, Epoch: 2}))
	d.ends(Overtaken, Preparing)

	d = reached(t)
	d.hears(Prepare, yes(), no())
	d.hears(Look, shows(able("newer")))
	d.hears(Verify, only(Failed))
	d.ends(Stuck, Preparing)
}

// TestLateAnswersAreIgnored promises that an answer which comes after the execution has
// asked again changes nothing: it may show a time before another executor took over.
func TestLateAnswersAreIgnored(t *testing.T) {
	// A late verify says nothing of a fence that was read after it.
	d := reached(t)
	prepares := d.asks(Prepare, 2)
	d.x.Observe(prepares[1], no())
	d.hears(Look, shows(able("f0")), shows(able("newer")))
	verify := d.asks(Verify, 1)[0]
	again := d.asks(Verify, 1)[0]
	d.x.Observe(prepares[0], yes())
	d.x.Observe(verify, yes())
	require.Equal(t, Verify, d.asks(Verify, 1)[0].Kind)
	d.x.Observe(again, yes())
	d.asks(Verify, 1)

	// A look from before the prepare says nothing of the marker after it.
	d = begin(t, Start{Claim: Insert}, 1)
	d.hears(ReadFence, shows(able("f")))
	d.hears(Claim, holds(Preparing, 1))
	d.hears(Prepare, no())
	late := d.asks(Look, 1)[0]
	d.hears(Look, shows(marked("f")))
	d.hearsAll([]Kind{Pay, Decide}, no(), yes())
	look := d.asks(Look, 1)[0]
	d.x.Observe(late, shows(able("f")))
	require.Equal(t, Decided, d.x.Progress())
	d.x.Observe(look, shows(marked("f")))
	d.asks(Pay, 1)
}

// TestOnlyCertainPreparesAreClean promises that each prepare whose answer isn't known, or
// never came, makes the execution dirty, and that no other one does.
func TestOnlyCertainPreparesAreClean(t *testing.T) {
	for name, c := range map[string]struct {
		first func(d dialogue)
		clean bool
	}{
		"answered":    {func(dialogue) {}, true},
		"not sent":    {func(d dialogue) { d.hears(Prepare, only(NotSent), only(NotSent)) }, true},
		"unknown":     {func(d dialogue) { d.hears(Prepare, only(Unknown), only(NotSent)) }, false},
		"no answer":   {func(d dialogue) { d.asks(Prepare, 2) }, false},
		"late answer": {func(d dialogue) { late(d) }, false},
	} {
		d := reached(t)
		c.first(d)
		if !c.clean {
			// What is not known is looked at first.
			d.hears(Look, shows(able("f0")), shows(able("f1")))
		}
		d.hears(Prepare, yes(), yes())
		require.Equal(t, c.clean, d.hearsAll([]Kind{Pay, Decide}, yes(), yes())[1].Clean, name)
		for _, clearing := range d.hearsAll([]Kind{Settle, Clear}) {
			require.Equal(t, !c.clean, clearing.ReplaceFence, name)
		}
	}
}

func late(d dialogue) {
	prepares := d.asks(Prepare, 2)
	d.asks(Look, 2)
	d.x.Observe(prepares[0], yes())
}

// TestDocumentsAreReservedFirst promises that no money is taken for a document that
// another transfer has.
// The others are prepared once what is to be reserved is, and not at all if that is
// refused.
func TestDocumentsAreReservedFirst(t *testing.T) {
	reserved := func() dialogue {
		d := begin(t, Start{Claim: Insert, Reserve: 2}, 4)
		d.hears(ReadFence, shows(able("f")), shows(able("f")), shows(able("f")), shows(able("f")))
		d.hears(Claim, holds(Preparing, 1))
		return d
	}
	d := reserved()
	require.Equal(t, []int{2, 3}, participants(d.hears(Prepare, yes(), only(NotSent))))
	require.Equal(t, []int{3}, participants(d.hears(Prepare, yes())), "still one of them")
	require.Equal(t, []int{0, 1}, participants(d.hears(Prepare, yes(), yes())))
	require.Equal(t, []int{1, 2, 3, NoParticipant}, participants(d.hearsAll([]Kind{Pay, Pay, Pay, Decide})))

	d = reserved()
	d.hears(Prepare, yes(), no())
	taken := able("f")
	taken.Unmet = true
	require.Equal(t, []int{0, 1, 3}, participants(d.hears(Look, shows(able("f")), shows(able("f")), shows(taken))), "all are looked at")
	require.Equal(t, Refusal{Reason: RequirementFailed, Participant: 3}, d.asks(Decide, 1)[0].Refusal)
}

// participants returns which participants operations are for.
func participants(operations []Operation) (asked []int) {
	for _, op := range operations {
		asked = append(asked, op.Participant)
	}
	return asked
}

// TestAReversalTakesItsTurn promises that a reversal looks at no account and prepares
// none before it has reserved its original: what it sees before says nothing.
// What the original refuses is reported, and nothing else.
func TestAReversalTakesItsTurn(t *testing.T) {
	refused := able("f")
	refused.Exhausted = true
	begun := func(original Facts) dialogue {
		d := begin(t, Start{Claim: Insert, Reserve: 1, Reversal: true, WaitWhileTaken: true}, 2)
		d.hears(ReadFence, shows(refusing(InsufficientFunds, false)), shows(original))
		d.hears(Claim, holds(Preparing, 1))
		return d
	}
	d := begun(able("f"))
	require.Equal(t, []int{1}, participants(d.hears(Prepare, no())))
	require.Equal(t, []int{1}, participants(d.hears(Look, shows(refused))))
	require.Equal(t, Refusal{Reason: AlreadyReversed, Participant: 1}, d.asks(Decide, 1)[0].Refusal)

	d = begun(refused)
	require.Equal(t, []int{1}, participants(d.hears(Look, shows(able("f")))))
	require.Equal(t, []int{1}, participants(d.hears(Prepare, yes())))
	require.Equal(t, []int{0}, participants(d.hears(Look, shows(refusing(InsufficientFunds, false)))))
	require.Equal(t, Refusal{Reason: InsufficientFunds, Participant: 0}, d.asks(Decide, 1)[0].Refusal)

	refused.Exhausted, refused.Exceeded = false, true
	d = begun(refused)
	d.hears(Look, shows(refused))
	require.Equal(t, Refusal{Reason: ReversalExceeds, Participant: 1}, d.asks(Decide, 1)[0].Refusal)
}

// TestAReversalWaits promises that a reversal whose original another one has reserved
// looks again, and again, and verifies its claim each time, as long as it may wait.
// Then it ends, with nothing prepared.
func TestAReversalWaits(t *testing.T) {
	taken := able("f")
	taken.Taken, taken.Outdated = true, true
	begun := func() dialogue {
		d := begin(t, Start{Claim: Insert, Reserve: 1, Reversal: true, WaitWhileTaken: true}, 2)
		d.hears(ReadFence, shows(able("f")), shows(taken))
		d.hears(Claim, holds(Preparing, 1))
		d.hears(Look, shows(taken))
		for range 3 {
			d.hears(Verify, yes())
			require.Equal(t, []int{1}, participants(d.hears(Look, shows(taken))))
		}
		return d
	}
	d := begun()
	d.hears(Verify, yes())
	d.hears(Look, shows(able("f2")))
	d.hears(Verify, yes())
	require.Equal(t, Fence("f2"), d.hears(Prepare, yes())[0].Fence)
	require.Equal(t, []int{0}, participants(d.hears(Prepare, yes())))
	d.asks(Decide, 1)

	d = begun()
	d.hears(Verify, no())
	d.hears(LookTransfer, Answer{Result: Applied, Transfer: Image{Found: true, State: Preparing, Epoch: 2}})
	d.ends(Overtaken, Preparing)

	d = begun()
	d.x.Postpone()
	d.hears(Verify, yes())
	d.hears(Look, shows(taken))
	d.ends(Postponed, Preparing)
}

// TestAnOriginalsTraceIsVerified promises that a trace which a reversal finds at its
// original counts only while the transfer is its own: it may be that of another plan.
func TestAnOriginalsTraceIsVerified(t *testing.T) {
	reserved := able("f")
	reserved.Trace = Reserved
	begun := func() dialogue {
		d := begin(t, Start{Claim: Insert, Reserve: 1, Reversal: true}, 2)
		d.hears(ReadFence, shows(able("f")), shows(able("f")))
		d.hears(Claim, holds(Preparing, 1))
		d.hears(Prepare, no())
		d.hears(Look, shows(reserved))
		return d
	}
	d := begun()
	d.hears(Verify, yes())
	require.Equal(t, []int{0}, participants(d.hears(Prepare, yes())))

	d = begun()
	d.hears(Verify, no())
	d.hears(LookTransfer, Answer{Result: Applied, Transfer: Image{Found: true, State: Preparing, Epoch: 2}})
	d.ends(Overtaken, Preparing)
}

// TestAReversalIsOutdated promises that a reversal of all that is left ends, with nothing
// prepared, when less is left than it was planned to take, and that one that is planned
// anew is taken over, and so dirty.
func TestAReversalIsOutdated(t *testing.T) {
	outdated := able("f")
	outdated.Outdated = true
	d := begin(t, Start{Claim: Insert, Reserve: 1, Reversal: true, WaitWhileTaken: true}, 2)
	d.hears(ReadFence, shows(able("f")), shows(able("f")))
	d.hears(Claim, holds(Preparing, 1))
	d.hears(Prepare, only(Unknown))
	d.hears(Look, shows(outdated))
	d.ends(Outdated, Preparing)

	d = begin(t, Start{Claim: Replan, Reserve: 1, Reversal: true}, 2)
	d.hears(ReadFence, shows(able("f")), shows(able("f")))
	require.Equal(t, Replan, d.hears(Claim, holds(Preparing, 2))[0].Claim)
	d.hears(Prepare, yes())
	d.hears(Prepare, yes())
	require.False(t, d.asks(Decide, 1)[0].Clean)
}
