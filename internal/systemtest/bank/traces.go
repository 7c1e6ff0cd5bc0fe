package bank

import (
	"context"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/document"
)

// Trace is what a transfer has left at one of its participants.
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

// LeaveTraces leaves a transfer from a to b behind as an executor would leave it that
// died. If it is committed by fact, its state is Preparing until the record is stored,
// and Committed from then on. It begins with the transfer's end, and sets that back.
func (b *Bank) LeaveTraces(id string, units int64, state string, payer, payee Trace) {
	b.T.Helper()
	b.finished(b.Coordinator, Move(id, "a", "b", units))
	b.SetBack(id, state)
	b.LeaveTrace(id, "a", -units, payer)
	b.LeaveTrace(id, "b", units, payee)
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

// LeavePayment leaves a transfer behind that pays an unpaid order, with both markers of
// the money, and a trace on the order.
func (b *Bank) LeavePayment(id, order string, units int64, state string, trace Trace) {
	b.T.Helper()
	b.finished(b.NewCoordinator(b.DB, Orders(b.DB)...), Payment(id, order, units))
	b.SetBack(id, state)
	b.LeaveTrace(id, "a", -units, Reserved)
	b.LeaveTrace(id, "b", units, Reserved)
	reserved, done := traceKeys(id)
	switch trace {
	case Cleared:
	case Done:
		b.SetField("orders", order, done, int64(0))
	case Reserved, Unprepared:
		undone := bson.M{"$set": bson.M{"status": "unpaid", reserved: int64(0)}, "$unset": bson.M{"paidBy": ""}}
		if trace == Unprepared {
			undone["$set"] = bson.M{"status": "unpaid"}
		}
		b.Change("orders", order, undone)
	}
}

// finished runs a transfer to its very end.
func (b *Bank) finished(c *transfer.Coordinator, req transfer.Request) {
	b.T.Helper()
	_, err := c.Transfer(b.T.Context(), req)
	require.NoError(b.T, err)
	b.UntilSuccess(c, req.ID)
}

// UntilSuccess waits until nothing is left to be done for a transfer that is committed.
func (b *Bank) UntilSuccess(c *transfer.Coordinator, id string) {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(b.T.Context(), eventually)
	defer cancel()
	rec, err := c.Wait(ctx, id)
	require.NoError(b.T, err)
	require.Equal(b.T, transfer.StateSuccess, rec.State)
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

// LeaveTrace leaves a trace of a transfer that has moved units on an account.
func (b *Bank) LeaveTrace(id, account string, units int64, trace Trace) {
	b.T.Helper()
	if trace != Cleared {
		b.Change("accounts", account, traceUpdate(id, units, trace))
	}
}

// traceUpdate makes an account on which a transfer is over one that has a trace of it.
func traceUpdate(id string, units int64, trace Trace) bson.M {
	reserved, done := traceKeys(id)
	switch trace {
	case Done:
		return bson.M{"$set": bson.M{done: units}}
	case Unprepared:
		return bson.M{"$inc": bson.M{"balance": -units}}
	case Reserved, Cleared:
	}
	return bson.M{"$set": bson.M{reserved: units}, "$inc": bson.M{"balance": min(-units, 0)}}
}

// traceKeys returns the paths of a transfer's marker and of its done mark.
func traceKeys(id string) (reserved, done string) {
	return "pending." + document.MarkerKey(id), "pending." + document.DoneKey(id)
}
