package conformance

import (
	"testing"

	"pgregory.net/rapid"
)

// mongostore and the World of the simulator perform the same operations on the same
// documents.
// Whatever is asked of them, in whatever order, they give the same answers and have
// stored the same.
// -rapid.checks sets how many sequences are tried.
//
// What is rare may not come in one round: there are more of them until it has.
func TestConformance(t *testing.T) {
	seen := &tally{counts: map[string]int{}}
	for range mostRounds {
		if sequences(t, seen); t.Failed() || !seen.lacksRows() {
			break
		}
	}
	if !t.Failed() {
		seen.complete(t)
	}
}

// mostRounds is how often the sequences are played at most.
const mostRounds = 4

// sequences plays sequences of each kind.
func sequences(t *testing.T, seen *tally) {
	t.Run("sequences of", func(t *testing.T) {
		// One operation at a time.
		property(t, "operations", seen, false, func(c *check) actions {
			return actions{
				"transfer": c.onTransfer, "transfer again": c.onTransfer, "participant": c.onParticipant, "participant again": c.onParticipant,
				"execution": c.execution, "outside": c.outside, "another life": c.anotherLife, "unseen": c.unseen, "elapse": c.elapse,
				"hold": c.onHold, "hold again": c.onHold, "and again": c.onHold, "part": c.part, "document": c.onDocument,
			}
		})
		// Several operations in one command.
		property(t, "batches", seen, false, func(c *check) actions {
			return actions{
				"participants": c.onParticipants, "participants again": c.onParticipants, "transfer": c.onTransfer,
				"execution": c.execution, "outside": c.outside, "elapse": c.elapse, "document": c.onDocument,
			}
		})
		// Operations of several transfers in one command, merged where they can be.
		property(t, "coalesced", seen, false, func(c *check) actions {
			return actions{
				"crowd": c.onCrowd, "crowd again": c.onCrowd, "transfers": c.onTransfers, "executions": c.executions,
				"edge": c.edge, "edge again": c.edge, "outside": c.outside, "elapse": c.elapse, "hold": c.onHold, "part": c.part,
				"traces": c.traces, "traces again": c.traces, "spend": c.spend, "spend again": c.spend, "part again": c.part,
			}
		})
		// A store may remember an old fence, since another process has replaced it.
		// Then the account had it once.
		property(t, "remembered fences", seen, true, func(c *check) actions {
			return actions{
				"participants": c.onParticipants, "participant": c.onParticipant, "transfer": c.onTransfer,
				"execution": c.execution, "outside": c.outside,
			}
		})
	})
}

// actions are what can happen next in a sequence.
type actions = map[string]func(*rapid.T)

// property requires that sequences of some actions have the same results in mongostore
// and the World.
func property(t *testing.T, name string, seen *tally, remembers bool, next func(*check) actions) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		on := newServer(t)
		rapid.Check(t, func(rt *rapid.T) {
			on.remembers = false // it begins with fresh reads
			c := newCheck(rt, on, seen)
			c.remembers, on.remembers = remembers, remembers
			rt.Repeat(next(c))
		})
		seen.tried()
	})
}
