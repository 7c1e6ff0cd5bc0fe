package bank

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/mongotest/opmsg"
)

// Step is what a command does for a transfer. A wire finds it by what the command says,
// and not by how many commands came before it: on a busy machine a command that is not
// answered in time is sent again, or is followed by a read of what became of it.
type Step int

// The steps of a transfer, in their order.
const (
	// Fences is the first read of the participants.
	Fences Step = iota
	// Claim stores the transfer, or takes over one that is stored.
	Claim
	// Prepares reserves what the transfer needs, in the first collection.
	Prepares
	// Decision stores that the transfer is committed, or rolled back.
	Decision
	// Settles pays in, or gives back, in the first collection.
	Settles
	// Finish makes the transfer final.
	Finish
)

// Steps of some transfers.
const (
	// HeldMark stores that all of a hold is prepared.
	HeldMark Step = iota + 10
	// MorePrepares is [Prepares] in the second collection.
	MorePrepares
	// MoreSettles is [Settles] in the second collection.
	MoreSettles
)

// String names the step in a failure.
func (s Step) String() string {
	return map[Step]string{
		Fences: "the read of the fences", Claim: "the claim", Prepares: "the prepares", Decision: "the decision",
		Settles: "the settles", Finish: "the finish", HeldMark: "the mark of a hold",
		MorePrepares: "the prepares of the second collection", MoreSettles: "the settles of the second collection",
	}[s]
}

// Selector returns a function that reports whether a message is this step. It is called
// with all messages in their order.
func (s Step) Selector() func(message []byte) bool {
	sought, first := s, ""
	if s == MorePrepares {
		sought = Prepares
	}
	if s == MoreSettles {
		sought = Settles
	}
	return func(message []byte) bool {
		step, collection := stepOf(message)
		if step != sought {
			return false
		}
		if s == sought {
			return true
		}
		if first == "" {
			first = collection
		}
		return collection != first
	}
}

// noStep is a command that is none of the steps, such as a look at what became of
// another one.
const noStep Step = -1

// stepOf returns which step a message is, and in which collection.
func stepOf(message []byte) (step Step, collection string) {
	command, err := opmsg.Message(message).Body()
	if err != nil {
		return noStep, ""
	}
	name, err := command.IndexErr(0)
	if err != nil {
		return noStep, ""
	}
	collection, _ = name.Value().StringValueOK()
	switch name.Key() {
	case "find":
		if _, err := command.LookupErr("projection", "fence"); err == nil {
			return Fences, collection
		}
	case "insert", "findAndModify":
		return Claim, collection
	case "update":
		return stepOfUpdate(command), collection
	}
	return noStep, collection
}

// stepOfUpdate returns which step an update command is, by its first statement.
func stepOfUpdate(command bson.Raw) Step {
	change, _ := command.Lookup("updates", "0", "u").DocumentOK()
	switch state, _ := change.Lookup("$set", "state").StringValueOK(); state {
	case "Committed", "Rollback":
		return Decision
	case "Success", "Fail":
		return Finish
	}
	if _, err := change.LookupErr("$set", "held"); err == nil {
		return HeldMark
	}
	if _, err := change.LookupErr("$inc", "verified"); err == nil {
		return noStep
	}
	if _, err := change.LookupErr("$unset"); err == nil {
		return Settles
	}
	return Prepares
}
