package mongostore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/queries"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// committed returns an attempt at a transfer that it has stored as Committed.
func (b *bank) committed(id string) *mongostore.Attempt {
	b.T.Helper()
	a := b.Claimed(id, b.Leg("alice", -60), b.Leg("bob", 60))
	b.Applied(a, storetest.Decide(protocol.Committed, 1))
	return a
}

func (b *bank) note(obstacles ...mongostore.StuckReason) {
	b.T.Helper()
	result, err := b.Store.NoteStuck(b.T.Context(), obstacles)
	require.NoError(b.T, err)
	require.Equal(b.T, protocol.Applied, result)
}

func gone(a *mongostore.Attempt) mongostore.StuckReason {
	return mongostore.StuckReason{Attempt: a, State: a.Transfer.State, Participant: 1}
}

// The obstacle that keeps a transfer from being finished is stored with it, with the
// server's time.
// Nothing else changes, not even the time of its last progress.
// The finish removes it. A reason that is already stored is not sent again.
func TestObstaclesAreStored(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	a, other := b.committed("order"), b.committed("other")
	before := storetest.AsMap(t, b.Raw("transfers", "order"))
	refused := mongostore.StuckReason{Attempt: other, State: protocol.Committed, Participant: protocol.NoParticipant, Cause: errors.New("no")}
	b.Log.Take()
	b.note(gone(a), refused)
	assert.Len(t, b.Log.Take(), 1)
	before["stuck"] = bson.M{"code": "accountNotFound", "ledger": "", "account": "bob", "message": `account "bob" is gone`}
	noted := storetest.AsMap(t, b.Raw("transfers", "order"))
	assert.WithinDuration(t, time.Now(), noted["stuckAt"].(bson.DateTime).Time(), time.Minute)
	before["stuckAt"] = noted["stuckAt"]
	assert.Equal(t, before, noted)
	assert.Equal(t, bson.M{"code": "unwritable", "ledger": "", "account": "", "message": "the transfer's own document can't be written: no"},
		storetest.AsMap(t, b.Raw("transfers", "other"))["stuck"])
	stored, _, err := b.Store.ReadTransfer(t.Context(), "order")
	require.NoError(t, err)
	assert.Equal(t, stored.Stuck, a.Transfer.Stuck)

	b.Log.Take()
	b.note(gone(a))
	assert.Empty(t, b.Log.Take())
	b.Change("transfers", "order", bson.M{"$set": bson.M{"stuckAt": time.UnixMilli(1)}})
	again := gone(a)
	again.Cause = errors.New(strings.Repeat("ä", 5000)) // as from a driver with an unknown message
	b.note(again)
	stored, _, err = b.Store.ReadTransfer(t.Context(), "order")
	require.NoError(t, err)
	assert.Equal(t, "unwritable", stored.Stuck.Code)
	assert.True(t, strings.HasPrefix(stored.Stuck.Message, `account "bob" can't be written: ää`), stored.Stuck.Message)
	assert.Less(t, len(stored.Stuck.Message), 200)
	assert.True(t, stored.StuckAt.After(time.UnixMilli(1)), "another reason begins anew")

	b.Applied(a, storetest.Finish(protocol.Success))
	assert.NotContains(t, storetest.AsMap(t, b.Raw("transfers", "order")), "stuck")
	assert.NotContains(t, storetest.AsMap(t, b.Raw("transfers", "order")), "stuckAt")
	assert.Nil(t, a.Transfer.Stuck)
}

// A late note changes nothing.
// Otherwise a transfer could seem stuck although it is final, belongs to another
// execution by now, or is in another state.
func TestLateNotesChangeNothing(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for name, change := range map[string]bson.M{
		"final":                {"$set": bson.M{"state": "Success"}, "$unset": bson.M{"open": ""}},
		"final, open":          {"$set": bson.M{"state": "Success"}},
		"not open":             {"$unset": bson.M{"open": ""}},
		"taken over":           {"$inc": bson.M{"epoch": 1}},
		"of another execution": {"$set": bson.M{"owner": "another"}},
		"in another life":      {"$set": bson.M{"state": "Preparing"}},
	} {
		a := b.committed(name)
		b.Change("transfers", name, change)
		before := b.Raw("transfers", name)
		b.note(gone(a))
		assert.Equal(t, before, b.Raw("transfers", name), name)
	}
	a := b.committed("purged")
	_, err := b.DB.Collection("transfers").DeleteOne(t.Context(), bson.M{"_id": "purged"})
	require.NoError(t, err)
	b.note(gone(a))
	assert.Nil(t, b.Raw("transfers", "purged"))
}

// If the server refuses the note of one transfer, the notes of others are stored, and the
// refusal is reported.
func TestRefusedNotes(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	first, second := b.committed("first"), b.committed("second")
	validator := bson.D{
		{Key: "collMod", Value: "transfers"},
		{Key: "validator", Value: bson.M{"$or": bson.A{bson.M{"_id": bson.M{"$ne": "first"}}, bson.M{"stuck": nil}}}},
	}
	require.NoError(t, b.DB.RunCommand(t.Context(), validator).Err())
	result, err := b.Store.NoteStuck(t.Context(), []mongostore.StuckReason{gone(first), gone(second)})
	require.ErrorContains(t, err, "121 DocumentValidationFailure")
	require.Equal(t, protocol.Failed, result)
	assert.NotContains(t, storetest.AsMap(t, b.Raw("transfers", "first")), "stuck")
	assert.Contains(t, storetest.AsMap(t, b.Raw("transfers", "second")), "stuck")

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	result, err = b.Store.NoteStuck(ended, []mongostore.StuckReason{gone(b.committed("third"))})
	require.ErrorIs(t, err, context.Canceled)
	require.NotEqual(t, protocol.Failed, result)
}

// Stuck transfers are listed by the index of unfinished work, however many transfers
// there are.
func TestStuckAreListed(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	require.NoError(t, b.Store.Setup(t.Context()))
	stuck, finished := b.committed("stuck"), b.committed("finished")
	b.committed("under way")
	b.note(gone(stuck), gone(finished))
	b.Applied(finished, storetest.Finish(protocol.Success))
	var others []any
	for range 1000 {
		others = append(others, bson.M{"state": "Success", "createdAt": time.Now()})
	}
	_, err := b.DB.Collection("transfers").InsertMany(t.Context(), others)
	require.NoError(t, err)
	for _, q := range []queries.Query{{Stuck: true}, {Stuck: true, Account: "bob"}, {Stuck: true,
		States: []protocol.State{protocol.Committed}}} {
		b.Log.Take()
		var found []string
		for transfer, err := range b.Store.List(t.Context(), q) {
			require.NoError(t, err)
			found = append(found, transfer.ID)
		}
		assert.Equal(t, []string{"stuck"}, found)
		plan := b.Explain(b.Log.Take()[0])
		if q.Account == "" { // the index of an account may serve as well
			assert.Contains(t, plan, `"indexName": "unfinished"`)
		}
		assert.NotContains(t, plan, `"indexName": "created"`)
		assert.NotContains(t, plan, "COLLSCAN")
	}
}
