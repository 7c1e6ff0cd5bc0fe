package simulate

import (
	"strconv"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// situation is a way in which an executor comes to know the outcome of its transfer, or
// loses the transfer after that.
type situation uint8

const (
	factOfTheFirst        situation = iota
	factOfATakeover                 // by one who is to resume
	factOfARollBack                 // by one who is to roll back
	overtakenAfterTheFact           // the caller was told, and the record is another's
	settledByFact                   // the record is stored, and all is paid
	rollBackAtOnce                  // at epoch 1
	rollBackOfAHold                 // or of a reversal, at a later epoch
	rollBackAfterAFence             // at a later epoch
	rollBackOfMissing               // at a later epoch, refused since an account is missing
	commitByDecision                // of a hold or a reversal
	situations
)

// String names the situation.
func (s situation) String() string {
	return [...]string{
		"the first executor knows the fact", "one who takes over knows the fact", "one who is to roll back knows the fact",
		"overtaken after the fact", "settled by fact", "rolled back at once", "a hold or a reversal is rolled back later",
		"rolled back after a fence", "rolled back since an account is missing", "committed by a decision",
	}[s]
}

// stand is what an executor knows of the outcome.
type stand struct {
	progress protocol.Progress
	state    protocol.State
	outcome  protocol.Outcome
}

func standing(x *protocol.Execution) stand {
	return stand{progress: x.Progress(), state: x.State(), outcome: x.Outcome()}
}

// countSituation counts what an executor has come to know.
func (c *Coverage) countSituation(e *executor, before stand) {
	now := standing(e.x)
	if c == nil || now == before {
		return
	}
	switch byFact := before.progress == protocol.Decided && before.state == protocol.Preparing; {
	case now.outcome == protocol.Overtaken && byFact:
		c.situations[overtakenAfterTheFact]++
	case now.progress == protocol.Settled && now.state == protocol.Committed && e.fact:
		c.situations[settledByFact]++
	case before.progress == protocol.Undecided && now.progress == protocol.Decided:
		c.countDecided(e, now.state)
	}
}

func (c *Coverage) countDecided(e *executor, state protocol.State) {
	refused := e.x.Refusal().Reason
	switch {
	case state == protocol.Preparing:
		e.fact = true
		c.situations[factOf(e.start)]++
	case state == protocol.Committed && e.epoch > 0: // of its own decision
		c.situations[commitByDecision]++
	case refused == 0 || e.start.Claim == protocol.CancelInitiated:
	case e.epoch == 1:
		c.situations[rollBackAtOnce]++
	case e.byDecision:
		c.situations[rollBackOfAHold]++
	case refused == protocol.NotFound:
		c.situations[rollBackOfMissing]++
	default:
		c.situations[rollBackAfterAFence]++
	}
}

// factOf returns the situation in which an executor with this start knows the fact.
func factOf(start protocol.Start) situation {
	switch {
	case start.RollBack != 0:
		return factOfARollBack
	case start.Claim == protocol.TakeOver:
		return factOfATakeover
	}
	return factOfTheFirst
}

// Situations returns how often executors came to know the outcome in each situation.
func (c *Coverage) Situations() [][]string {
	var rows [][]string
	for s, count := range c.situations {
		rows = append(rows, []string{situation(s).String(), strconv.Itoa(count)})
	}
	return rows
}
