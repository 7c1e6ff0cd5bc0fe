package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
)

// accountDocument is an account as it is stored.
// The IDs of the transfers are also the names of their markers, and with a percent sign
// those of their done marks.
type accountDocument struct {
	ID      string           `bson:"_id"`
	Balance int64            `bson:"balance"`
	Floor   int64            `bson:"floor"`
	Pending map[string]int64 `bson:"pending"`
	Closed  bool             `bson:"closed"`
	Frozen  bool             `bson:"frozen"`
	Fence   any              `bson:"fence"`
}

func (a accountDocument) String() string {
	return fmt.Sprintf("{_id: %s, balance: %d, floor: %d, pending: %v, closed: %t, frozen: %t, fence: %v}",
		a.ID, a.Balance, a.Floor, a.Pending, a.Closed, a.Frozen, a.Fence)
}

// transferDocument is a transfer as it is stored.
type transferDocument struct {
	ID     string         `bson:"_id"`
	State  transfer.State `bson:"state"`
	Epoch  int64          `bson:"epoch"`
	Owner  string         `bson:"owner"`
	Legs   []legDocument  `bson:"legs"`
	Hold   bool           `bson:"hold"`
	Held   bool           `bson:"held"`
	Posted int64          `bson:"posted"` // 0: all of it

	ExpiresAt    time.Time `bson:"expiresAt"`
	LastModified time.Time `bson:"lastModified"`

	// Outbox has the events that are to be delivered, and KeepUntil the time of a purge
	// that waits for that.
	Outbox    []bson.M  `bson:"outbox"`
	KeepUntil time.Time `bson:"keepUntil"`

	Reverses   string           `bson:"reverses"`
	Part       bool             `bson:"part"`
	ReversedBy string           `bson:"reversedBy"`
	Reversed   map[string]int64 `bson:"reversed"`
	Pending    map[string]int64 `bson:"pending"`

	Failure struct {
		Code string `bson:"code"`
	} `bson:"failure"`
	Metadata struct {
		Call string `bson:"call"`
	} `bson:"metadata"`
}

type legDocument struct {
	Account string `bson:"account"`
	Amount  int64  `bson:"amount"`
}

func (t transferDocument) String() string {
	return fmt.Sprintf("{_id: %s, state: %s, epoch: %d, owner: %s, legs: %v, hold: %t, held: %t, posted: %d, reverses: %s, reversedBy: %s, "+
		"reversed: %v, pending: %v, failure: %s, stored by call: %s}", t.ID, t.State, t.Epoch, t.Owner, t.Legs, t.Hold, t.Held, t.Posted,
		t.Reverses, t.ReversedBy, t.Reversed, t.Pending, t.Failure.Code, t.Metadata.Call)
}

// moved returns what the transfer moves if it goes forward: its legs, or the part of them
// that was posted.
func (t transferDocument) moved() []legDocument {
	moved := slices.Clone(t.Legs)
	for i := range moved {
		switch {
		case t.Posted == 0:
		case moved[i].Amount < 0:
			moved[i].Amount = -t.Posted
		default:
			moved[i].Amount = t.Posted
		}
	}
	return moved
}

// waiting returns how much of the transfer's money is behind a marker.
// Until the decision, that is what was taken, behind the marker of the debit.
// After it, that is what was taken, behind the marker of the credit; the part of a hold
// that was not posted remains behind the marker of the debit.
func (t transferDocument) waiting(marker int64) int64 {
	switch {
	case !t.forward():
		return max(0, -marker)
	case t.Posted == 0:
		return max(0, marker)
	case marker < 0:
		return -marker - t.Posted
	}
	return min(marker, t.Posted)
}

// paidIn returns how much of the transfer's money a done mark shows to be on the balance
// that still counts as taken elsewhere: until the decision is stored, all of it.
func (t transferDocument) paidIn(amount int64) int64 {
	if t.forward() {
		return 0
	}
	return amount
}

// traceOf returns the transfer of an entry of a map of markers, and whether that is a
// done mark: what it reserved is paid.
func traceOf(key string) (id string, done bool) { return strings.CutSuffix(key, "%") }

// reservations counts the markers in a map, without the done marks.
func reservations(pending map[string]int64) int {
	n := 0
	for key := range pending {
		if _, done := traceOf(key); !done {
			n++
		}
	}
	return n
}

// live reports whether the transfer may have markers.
func (t transferDocument) live() bool {
	return t.State == transfer.StatePreparing || t.State == transfer.StateCommitted || t.State == transfer.StateRollback
}

// forward reports whether the transfer's money goes to where it was meant to go.
func (t transferDocument) forward() bool {
	return t.State == transfer.StateCommitted || t.State == transfer.StateSuccess
}

// story prints the documents that a finding is about.
func story(accounts map[string]accountDocument, transfers map[string]transferDocument) string {
	var lines []string
	for _, id := range slices.Sorted(maps.Keys(transfers)) {
		lines = append(lines, "    transfer "+transfers[id].String())
	}
	for _, id := range slices.Sorted(maps.Keys(accounts)) {
		lines = append(lines, "    account "+accounts[id].String())
	}
	return strings.Join(lines, "\n")
}
