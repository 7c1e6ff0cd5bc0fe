package outbox_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/queries"
	"github.com/mongotransfer/transfer/internal/storetest"
	"github.com/mongotransfer/transfer/internal/transition"
	"github.com/mongotransfer/transfer/internal/wire"
)

// all returns all kinds of events.
func all() document.Events { return document.Events{Failed: true, Held: true, Succeeded: true} }

// withEvents configures a bank whose transfers leave events.
func withEvents(c *storetest.Config) { c.Events = all() }

// put stores a transfer with an outbox, an hour old.
func put(b *storetest.Bank, id string, outbox any, more bson.M) {
	b.T.Helper()
	stored := bson.M{"_id": id, "state": "Success", "createdAt": time.Now().Add(-time.Hour), "outbox": outbox}
	for key, value := range more {
		stored[key] = value
	}
	b.PutIn("transfers", stored)
}

// stored reads a transfer.
func stored(b *storetest.Bank, id string) bson.M {
	b.T.Helper()
	var found bson.M
	require.NoError(b.T, b.DB.Collection("transfers").FindOne(b.T.Context(), bson.M{"_id": id}).Decode(&found))
	return found
}

// entries returns the events that are stored with a transfer.
func entries(b *storetest.Bank, id string) []document.Undelivered {
	b.T.Helper()
	raw, err := b.DB.Collection("transfers").FindOne(b.T.Context(), bson.M{"_id": id}).Raw()
	require.NoError(b.T, err)
	return document.Transfer{Outbox: raw.Lookup("outbox")}.Undelivered()
}

// perform performs changes of outboxes, and requires that the server can.
func perform(b *storetest.Bank, deliveries ...transition.Delivery) wire.Updated {
	b.T.Helper()
	done := wire.UpdateAll(b.T.Context(), b.Store.Transfers, deliveries)
	for _, verdict := range done.Verdicts {
		require.NoError(b.T, verdict.Err)
	}
	return done
}

func event(kind document.EventKind, due time.Time, by any, attempts int) bson.M {
	e := bson.M{"kind": kind, "at": time.Now(), "due": due, "attempts": int64(attempts)}
	if by != nil {
		e["by"] = by
	}
	return e
}

// A mark that comes late, when another worker has the event in hand, or of another kind,
// changes nothing.
func TestLateMarksChangeNothing(t *testing.T) {
	t.Parallel()
	b := storetest.New(t, withEvents)
	mine, theirs := bson.NewObjectID(), bson.NewObjectID()
	put(b, "t", bson.A{
		event("held", time.Now().Add(time.Minute), mine, 1), event("succeeded", time.Now().Add(time.Minute), theirs, 2),
	}, nil)
	before := stored(b, "t")
	ids, leases := []string{"t", "none"}, []bson.ObjectID{mine}
	for _, late := range []transition.Delivery{
		transition.Delivered(ids, "succeeded", leases),
		transition.Failed(ids, "succeeded", leases, 3),
		transition.Undone(ids, "succeeded", leases),
		transition.Delivered(ids, "failed", leases),
		transition.Delivered(ids, "held", []bson.ObjectID{bson.NewObjectID()}),
		transition.Take(ids, bson.NewObjectID(), 20),
	} {
		perform(b, late)
		require.Equal(t, before, stored(b, "t"))
	}
	perform(b, transition.Delivered(ids, "held", leases))
	require.Len(t, entries(b, "t"), 1)
	perform(b, transition.Delivered(ids, "succeeded", []bson.ObjectID{mine, theirs}))
	require.NotContains(t, stored(b, "t"), "outbox")
}

// An outbox that somebody has changed keeps no worker from the others: no statement
// fails on it.
func TestOddOutboxes(t *testing.T) {
	t.Parallel()
	b := storetest.New(t, withEvents)
	past, by := time.Now().Add(-time.Second), bson.NewObjectID()
	ids := []string{"sound"}
	put(b, "sound", bson.A{event("succeeded", past, nil, 0)}, nil)
	for i, odd := range []any{
		nil, 1, "text", past, bson.M{}, bson.M{"due": past, "by": by}, bson.A{}, bson.A{1, "text", nil, past}, bson.A{bson.A{past}},
		bson.A{bson.M{"due": past}}, bson.A{bson.M{"due": past, "attempts": "three"}, 7},
		bson.A{bson.M{"kind": "succeeded", "due": past, "by": by, "attempts": bson.M{}}, event("failed", past, by, 1), "x"},
		bson.A{event("moved", past, by, 1)}, bson.A{event("succeeded", past, by, 1<<40)},
	} {
		ids = append(ids, fmt.Sprint("odd", i))
		put(b, ids[len(ids)-1], odd, bson.M{"keepUntil": "never"})
	}
	leases := []bson.ObjectID{by}
	for _, kind := range document.EventKinds() {
		perform(b, transition.Failed(ids, kind, leases, 2))
		perform(b, transition.Undone(ids, kind, leases))
	}
	for _, id := range ids {
		perform(b, transition.Redeliver(id))
	}
	perform(b, transition.Take(ids, by, 20))
	got := entries(b, "sound")
	require.Len(t, got, 1)
	require.Equal(t, by, got[0].By)
	require.EqualValues(t, 1, got[0].Attempts)
	for _, kind := range document.EventKinds() {
		perform(b, transition.Delivered(ids, kind, leases))
	}
	require.NotContains(t, stored(b, "sound"), "outbox")
}

// What has failed waits as long as the process thinks it does, up to five minutes, and is
// given up after as many attempts as are allowed: then nothing keeps the transfer.
func TestFailuresWait(t *testing.T) {
	t.Parallel()
	b := storetest.New(t, withEvents)
	const most = 40
	by, kept := bson.NewObjectID(), time.Now().Add(time.Hour).Truncate(time.Millisecond)
	for attempts := 1; attempts <= most; attempts++ {
		id := fmt.Sprint(attempts)
		put(b, id, bson.A{event("succeeded", time.Now().Add(time.Minute), by, attempts)}, bson.M{"keepUntil": kept})
		perform(b, transition.Failed([]string{id}, "succeeded", []bson.ObjectID{by}, most))
		got := entries(b, id)[0]
		require.True(t, got.By.IsZero())
		require.EqualValues(t, attempts, got.Attempts)
		if attempts == most {
			require.True(t, got.GivenUp)
			require.Equal(t, bson.NewDateTimeFromTime(kept), stored(b, id)["purgeAt"])
			require.NotContains(t, stored(b, id), "keepUntil")
			continue
		}
		require.WithinDuration(t, time.Now().Add(transition.RetryAfter(int64(attempts))), got.Due, 10*time.Second)
		require.NotContains(t, stored(b, id), "purgeAt")
		require.Equal(t, bson.NewDateTimeFromTime(kept), stored(b, id)["keepUntil"], "the purge waits")
	}
	for attempts, wait := range map[int64]time.Duration{
		1: time.Second, 2: 2 * time.Second, 9: 256 * time.Second, 10: 5 * time.Minute, 1 << 40: 5 * time.Minute,
	} {
		require.Equal(t, wait, transition.RetryAfter(attempts))
	}
}

// No lease and no retry is as far ahead as ten minutes. What is was stored while the
// server's clock was ahead: it is found and taken, after all that is due, and asking for
// it has it tried anew. What was given up is not found, and what is nearer is left alone.
func TestFarAheadIsDue(t *testing.T) {
	t.Parallel()
	require.Greater(t, document.FarDue, transition.RetryAfter(1<<40)+transition.EventLease)
	b := storetest.New(t, withEvents)
	require.NoError(t, b.Store.Setup(t.Context()))
	now := time.Now()
	for id, due := range map[string]time.Duration{
		"due": -time.Minute, "retry": 5 * time.Minute, "near": 9 * time.Minute, "ahead": 11 * time.Minute, "far": 1 << 62,
	} {
		put(b, id, bson.A{event("succeeded", now.Add(due), bson.NewObjectID(), 3)}, nil)
	}
	put(b, "given up", bson.A{bson.M{"kind": "succeeded", "at": now, "due": bson.MaxKey{}, "attempts": 20}}, nil)
	b.Log.Take()
	ids, err := b.Store.Deliverable(t.Context(), now, 0, 10)
	require.NoError(t, err)
	require.Equal(t, []string{"due", "ahead", "far"}, ids)
	find := b.Log.Take()[0]
	assert.NotContains(t, b.Explain(find), `"stage": "SORT"`)
	assert.LessOrEqual(t, b.Examined(find), int64(5))

	attempts := func(write func(id string) transition.Delivery) map[string]int64 {
		all := map[string]int64{}
		for _, id := range []string{"due", "retry", "near", "ahead", "far"} {
			perform(b, write(id))
			all[id] = entries(b, id)[0].Attempts
		}
		return all
	}
	require.Equal(t, map[string]int64{"due": 3, "retry": 3, "near": 3, "ahead": 0, "far": 0}, attempts(transition.Redeliver))
	for _, id := range []string{"ahead", "far"} {
		b.Change("transfers", id, bson.M{"$set": bson.M{"outbox.0.due": now.Add(time.Hour), "outbox.0.by": bson.NewObjectID()}})
	}
	by := bson.NewObjectID()
	require.Equal(t, map[string]int64{"due": 4, "retry": 3, "near": 3, "ahead": 1, "far": 1}, attempts(func(id string) transition.Delivery {
		return transition.Take([]string{id}, by, 20)
	}))
	require.WithinDuration(t, time.Now().Add(transition.EventLease), entries(b, "far")[0].Due, 10*time.Second)
}

// Who takes an event for the last time and does not come back has it given up by the next
// one who looks.
func TestLastAttemptDidNotComeBack(t *testing.T) {
	t.Parallel()
	b := storetest.New(t, withEvents)
	put(b, "t", bson.A{event("succeeded", time.Now().Add(-time.Second), bson.NewObjectID(), 3)}, nil)
	by := bson.NewObjectID()
	perform(b, transition.Take([]string{"t"}, by, 3))
	got := entries(b, "t")[0]
	require.True(t, got.GivenUp)
	require.Equal(t, by, got.By, "who has given it up finds it, and tells")
	perform(b, transition.Take([]string{"t"}, bson.NewObjectID(), 4))
	require.Equal(t, got, entries(b, "t")[0], "nobody takes it any more")
	perform(b, transition.Redeliver("t"))
	require.Zero(t, entries(b, "t")[0].Attempts)
	perform(b, transition.Take([]string{"t"}, bson.NewObjectID(), 3))
	require.EqualValues(t, 1, entries(b, "t")[0].Attempts)
}

// What was taken in hand and could not be read is put back: events of all kinds, and no
// attempt is counted. What was given up by the same write stays so, and what others have
// in hand.
func TestUnreadIsPutBack(t *testing.T) {
	t.Parallel()
	b := storetest.New(t, withEvents)
	past, theirs := time.Now().Add(-time.Second), bson.NewObjectID()
	put(b, "both", bson.A{event("held", past, nil, 1), event("succeeded", past, nil, 0)}, nil)
	put(b, "lost", bson.A{event("held", past, nil, 3), event("failed", past, nil, 2)}, nil)
	put(b, "theirs", bson.A{event("succeeded", time.Now().Add(time.Minute), theirs, 1)}, nil)
	by, ids := bson.NewObjectID(), []string{"both", "lost", "theirs"}
	perform(b, transition.Take(ids, by, 3))
	perform(b, transition.Undone(ids, "", []bson.ObjectID{by}))
	for _, id := range ids {
		for _, e := range entries(b, id) {
			switch {
			case id == "theirs":
				require.Equal(t, theirs, e.By)
				require.EqualValues(t, 1, e.Attempts)
			case id == "lost" && e.Kind == "held":
				require.True(t, e.GivenUp)
				require.EqualValues(t, 3, e.Attempts)
			default:
				require.True(t, e.By.IsZero(), "%s %s", id, e.Kind)
				require.WithinDuration(t, time.Now(), e.Due, 10*time.Second)
				require.EqualValues(t, map[document.EventKind]int{"held": 1, "succeeded": 0, "failed": 2}[e.Kind], e.Attempts)
			}
		}
	}
}

// The search for events that are due, and the list of what is undelivered, read as much
// of an index as they find, however many transfers there are.
func TestSearchReadsWhatIsUndelivered(t *testing.T) {
	t.Parallel()
	b := storetest.New(t, withEvents)
	require.NoError(t, b.Store.Setup(t.Context()))
	var done []any
	for i := range 2000 {
		done = append(done, bson.M{"_id": fmt.Sprint(i), "state": "Success", "createdAt": time.Now()})
	}
	_, err := b.DB.Collection("transfers").InsertMany(t.Context(), done)
	require.NoError(t, err)
	put(b, "due", bson.A{event("succeeded", time.Now().Add(-time.Second), nil, 0)}, nil)
	for i := range 50 {
		put(b, fmt.Sprint("later", i), bson.A{event("succeeded", time.Now().Add(5*time.Minute), nil, 1)}, nil)
		put(b, fmt.Sprint("given up", i), bson.A{bson.M{"kind": "succeeded", "at": time.Now(), "due": bson.MaxKey{}, "attempts": 20}}, nil)
	}
	b.Log.Take()
	ids, err := b.Store.Deliverable(t.Context(), time.Now(), 0, 10)
	require.NoError(t, err)
	require.Equal(t, []string{"due"}, ids)
	find := b.Log.Take()[0]
	assert.Contains(t, b.Explain(find), `"indexName": "undelivered"`)
	assert.NotContains(t, b.Explain(find), `"stage": "SORT"`)
	assert.LessOrEqual(t, b.Examined(find), int64(3))
	for i := range 100 {
		put(b, fmt.Sprint("more", i), bson.A{event("succeeded", time.Now().Add(-time.Minute), nil, 0)}, nil)
	}
	ids, err = b.Store.Deliverable(t.Context(), time.Now(), 0, 10)
	require.NoError(t, err)
	require.Len(t, ids, 10)
	require.NotContains(t, ids, "due", "those that have been due for longest come first")
	assert.LessOrEqual(t, b.Examined(b.Log.Take()[0]), int64(11), "no more is read than is asked for")
	for _, err := range b.Store.List(t.Context(), queries.Query{Undelivered: true, Limit: 5}) {
		require.NoError(t, err)
	}
	list := b.Log.Take()[0]
	assert.Contains(t, b.Explain(list), `"indexName": "undelivered"`)
	assert.LessOrEqual(t, b.Examined(list), int64(202))
	stats := bson.M{}
	require.NoError(t, b.DB.RunCommand(t.Context(), bson.D{{Key: "validate", Value: "transfers"}}).Decode(&stats))
	keys := stats["keysPerIndex"].(bson.D)
	for _, e := range keys {
		if e.Key == "undelivered" {
			assert.EqualValues(t, 201, e.Value, "the index has only what is undelivered")
		}
	}
}

// A finish leaves the event of its state with any worker where this process delivers
// none, and the mark of a hold that of the hold: each in the same update as the state.
func TestEventsAreLeftWithTheState(t *testing.T) {
	t.Parallel()
	for _, events := range []document.Events{all(), {Succeeded: true}, {Failed: true}, {}} {
		for before, to := range map[protocol.State]protocol.State{protocol.Committed: protocol.Success, protocol.Rollback: protocol.Fail} {
			t.Run(fmt.Sprint(events.Names(), to), func(t *testing.T) {
				t.Parallel()
				b := storetest.New(t, func(c *storetest.Config) { c.Events = events })
				b.Put(storetest.Account("alice", nil), storetest.Account("bob", nil))
				a := b.Claimed("t", b.Leg("alice", -60), b.Leg("bob", 60))
				b.Change("transfers", "t", bson.M{"$set": bson.M{"state": before}})
				b.Log.Take()
				b.Applied(a, storetest.Finish(to))
				var writes int
				for _, command := range b.Log.Take() {
					if command.Name == "update" {
						writes++
					}
				}
				require.Equal(t, 1, writes)
				kind := events.Of(protocol.Operation{Kind: protocol.Finish, To: to})
				if kind == "" {
					require.NotContains(t, stored(b, "t"), "outbox")
					return
				}
				got := entries(b, "t")
				require.Len(t, got, 1)
				require.Equal(t, kind, got[0].Kind)
				require.Equal(t, got[0].At, got[0].Due)
				require.Equal(t, bson.NewDateTimeFromTime(got[0].At), stored(b, "t")["lastModified"])
			})
		}
	}
}
