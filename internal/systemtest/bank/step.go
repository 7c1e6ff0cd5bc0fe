package bank

import (
	"slices"
	"strings"

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
	// Decision stores that the transfer is committed, or rolled back. A transfer that is
	// committed by what was prepared pays at the same time: that is the step, too, as
	// either may come first.
	Decision
	// Settles pays in, or gives back, in the first collection.
	Settles
	// Clears removes the done marks in the first collection.
	Clears
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
	// MoreClears is [Clears] in the second collection.
	MoreClears
	// Record is a [Decision] that is no pay: it stores the state.
	Record
)

// String names the step in a failure.
func (s Step) String() string {
	return map[Step]string{
		Fences: "the read of the fences", Claim: "the claim", Prepares: "the prepares", Decision: "the decision",
		Settles: "the settles", Clears: "the clears", Finish: "the finish", HeldMark: "the mark of a hold",
		MorePrepares: "the prepares of the second collection", MoreSettles: "the settles of the second collection",
		MoreClears: "the clears of the second collection", Record: "the record",
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
	if s == MoreClears {
		sought = Clears
	}
	return func(message []byte) bool {
		steps, collection := stepsOf(message)
		if !slices.Contains(steps, sought) {
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

// stepsOf returns which steps a message is, and in which collection. One that is none of
// them may be a look at what became of another one.
func stepsOf(message []byte) (steps []Step, collection string) {
	command, err := opmsg.Message(message).Body()
	if err != nil {
		return nil, ""
	}
	return stepsOfCommand(command)
}

// stepsOfCommand returns which steps a command is, and in which collection.
func stepsOfCommand(command bson.Raw) (steps []Step, collection string) {
	name, err := command.IndexErr(0)
	if err != nil {
		return nil, ""
	}
	collection, _ = name.Value().StringValueOK()
	switch name.Key() {
	case "find":
		if _, err := command.LookupErr("projection", "fence"); err == nil {
			return []Step{Fences}, collection
		}
	case "insert", "findAndModify":
		return []Step{Claim}, collection
	case "update":
		if collection == processNotes {
			return nil, collection
		}
		return stepsOfUpdate(command), collection
	}
	return nil, collection
}

// processNotes is the collection in which processes note that they live, whenever they
// like: that is no step of a transfer.
const processNotes = "transfers.processes"

// stepsOfUpdate returns which steps an update command is.
func stepsOfUpdate(command bson.Raw) []Step {
	change, _ := command.Lookup("updates", "0", "u").DocumentOK()
	switch state, _ := change.Lookup("$set", "state").StringValueOK(); state {
	case "Committed", "Rollback":
		return []Step{Decision, Record}
	case "Success", "Fail":
		return []Step{Finish}
	}
	if _, err := change.LookupErr("$set", "held"); err == nil {
		return []Step{HeldMark}
	}
	if _, err := change.LookupErr("$inc", "verified"); err == nil {
		return nil
	}
	switch {
	case hasTrace(command, "$set", true):
		return []Step{Decision, Settles}
	case hasTrace(command, "$unset", true):
		return []Step{Clears}
	case hasTrace(command, "$unset", false):
		return []Step{Settles}
	}
	return []Step{Prepares}
}

// hasTrace reports whether a statement of a command sets or removes a done mark, or a
// marker.
func hasTrace(command bson.Raw, operator string, done bool) bool {
	updates, _ := command.Lookup("updates").ArrayOK()
	statements, _ := updates.Values()
	for _, statement := range statements {
		change, _ := statement.Document().Lookup("u", operator).DocumentOK()
		fields, _ := change.Elements()
		for _, field := range fields {
			if strings.HasPrefix(field.Key(), "pending.") && strings.HasSuffix(field.Key(), "%") == done {
				return true
			}
		}
	}
	return false
}
