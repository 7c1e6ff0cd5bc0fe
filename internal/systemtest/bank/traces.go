package bank

import (
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/document"
)

// Trace is what a transfer has left at one of its accounts.
type Trace int

const (
	// Cleared means that there is no trace, as everything is done there.
	Cleared Trace = iota
	// Reserved means that the marker is there: nothing is paid in.
	Reserved
	// Done means that the done mark is there: the money is paid in.
	Done
	// Unprepared means that there is no trace, and that nothing has happened there.
	Unprepared
)

// LeaveTraces leaves a transfer from a to b behind that is committed by fact, as its
// executor would leave it: its state is Preparing until the record is stored, and
// Committed from then on. It begins with the transfer's end, and sets that back.
func (b *Bank) LeaveTraces(id string, units int64, state string, payer, payee Trace) {
	b.T.Helper()
	b.MustMove(id, units)
	rec, err := b.Wait(b.T.Context(), id)
	require.NoError(b.T, err)
	require.Equal(b.T, transfer.StateSuccess, rec.State)
	b.SetBack(id, state)
	b.LeaveTrace(id, "a", -units, payer)
	b.LeaveTrace(id, "b", units, payee)
}

// SetBack sets the state of a transfer back to Preparing or Committed.
func (b *Bank) SetBack(id, state string) {
	b.T.Helper()
	change := bson.M{"$set": bson.M{"state": state, "open": true}}
	if state == "Preparing" {
		change["$unset"] = bson.M{"committedAt": ""}
	}
	b.Change("transfers", id, change)
}

// LeavePrepared leaves a transfer from a to b behind that is prepared, and nothing else.
func (b *Bank) LeavePrepared(id string, units int64) {
	b.T.Helper()
	b.LeaveTraces(id, units, "Preparing", Reserved, Reserved)
}

// LeaveRecorded leaves a transfer from a to b behind whose commit is recorded, while all
// markers are there.
func (b *Bank) LeaveRecorded(id string, units int64) {
	b.T.Helper()
	b.LeaveTraces(id, units, "Committed", Reserved, Reserved)
}

// LeaveTrace leaves a trace of a transfer that has moved units on an account.
func (b *Bank) LeaveTrace(id, account string, units int64, trace Trace) {
	b.T.Helper()
	reserved, done := "pending."+document.MarkerKey(id), "pending."+document.DoneKey(id)
	switch {
	case trace == Reserved && units < 0:
		b.SetField("accounts", account, reserved, units)
	case trace == Reserved:
		b.Change("accounts", account, bson.M{"$set": bson.M{reserved: units}, "$inc": bson.M{"balance": -units}})
	case trace == Done:
		b.SetField("accounts", account, done, units)
	case trace == Unprepared:
		b.Change("accounts", account, bson.M{"$inc": bson.M{"balance": -units}})
	}
}
