package insight

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// Stats counts each unfinished transfer once, by where it stands, and says since when the
// oldest is due.
// What waits for its time or for a decision is not old.
func TestStats(t *testing.T) {
	t.Parallel()
	b := newSeen(t, 1000, 0)
	b.MustMove("done", 1)
	_, err := b.Transfer(t.Context(), bank.Move("refused", "b", "a", 500))
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	require.Zero(t, b.mustStats())

	_, err = b.Submit(t.Context(), bank.Later("scheduled", 1))
	require.NoError(t, err)
	b.MustHold("held", 2, time.Hour)
	require.Zero(t, b.mustStats().Oldest, "nothing is due")

	b.MustSubmit("due")
	b.MustHold("overdue", 3, time.Hour)
	b.Expire("overdue")
	b.StallAt("preparing", bank.Prepares, bank.Lost, 10)
	b.StallAt("committed", bank.Clears, bank.Lost, 10)
	b.StallAt("stuck", bank.Clears, bank.Lost, 10)
	b.SetField("transfers", "stuck", "stuck", bson.M{"code": "accountNotFound", "ledger": "", "account": "x", "message": "gone"})
	b.rollBack("rollback")
	want := transfer.Stats{
		Scheduled: 1, Due: 1, Preparing: 1, Held: 2, Overdue: 1, Committed: 2, Rollback: 1, Stuck: 1,
	}
	want.Oldest = b.field("overdue", "expiresAt").Time()
	got := b.mustStats()
	require.WithinDuration(t, want.Oldest, got.Oldest, 0, "the oldest that is due")
	got.Oldest = want.Oldest
	require.Equal(t, want, got)

	b.requireAges(got)
	_, err = b.Void(t.Context(), "overdue")
	require.NoError(t, err)
	_, err = b.Void(t.Context(), "held")
	require.NoError(t, err)
	b.CancelWaiting()
	b.RecoverAll()
	require.Zero(t, b.mustStats())
	b.CheckBooks(bank.Balances(1000, 0))
}

// requireAges requires that what is due counts from the time since when it is due, and
// nothing else.
func (b seen) requireAges(got transfer.Stats) {
	b.T.Helper()
	long := time.Now().Add(-72 * time.Hour).Truncate(time.Millisecond).UTC()
	for id, field := range map[string]string{
		"held": "createdAt", "scheduled": "createdAt", "overdue": "createdAt", "done": "createdAt", "committed": "createdAt",
	} {
		b.Change("transfers", id, bson.M{"$set": bson.M{field: long}})
	}
	b.requireStats(got, "none of these has been due since then")
	for id, field := range map[string]string{
		"overdue": "expiresAt", "committed": "committedAt", "preparing": "createdAt", "due": "createdAt", "rollback": "createdAt",
	} {
		before := b.field(id, field)
		b.Change("transfers", id, bson.M{"$set": bson.M{field: long}})
		require.Equal(b.T, long, b.mustStats().Oldest.UTC(), "%s of %s", field, id)
		b.Change("transfers", id, bson.M{"$set": bson.M{field: before}})
	}
	b.requireStats(got, "all is as before")
}

// A hold whose process died before everything was held waits for its caller to ask again,
// as recovery leaves it alone until it expires. It is due from then on.
func TestStatsOfAHoldThatIsNotHeld(t *testing.T) {
	t.Parallel()
	b := newSeen(t, 1000, 0)
	b.StallHold("t", bank.HeldMark)
	b.SetField("transfers", "t", "createdAt", time.Now().Add(-72*time.Hour))
	b.requireStats(transfer.Stats{Preparing: 1}, "its caller may ask again")
	report, err := b.NewRecoverer().Recover(t.Context())
	require.NoError(t, err)
	require.Zero(t, report.Found, "recovery leaves it alone")
	b.Expire("t")
	b.requireStats(transfer.Stats{Preparing: 1, Oldest: b.field("t", "expiresAt").Time()}, "since it has expired")
	b.RecoverAll()
	require.Zero(t, b.mustStats())
	b.CheckBooks(bank.Balances(1000, 0))
}

// A hold that is given back is as old as that, and not as the hold, and a stuck one is as
// old as its first try.
func TestStatsOfAHoldThatIsGivenBack(t *testing.T) {
	t.Parallel()
	b := newSeen(t, 1000, 0)
	b.MustHold("t", 10, time.Hour)
	failure := bson.M{"code": "voided", "ledger": "", "account": "", "message": "voided"}
	b.Change("transfers", "t", bson.M{"$set": bson.M{
		"state": "Rollback", "failure": failure, "createdAt": time.Now().Add(-72 * time.Hour),
	}})
	written := b.field("t", "lastModified").Time()
	b.requireStats(transfer.Stats{Rollback: 1, Oldest: written}, "since it was written")
	tried := written.Add(-time.Hour)
	b.SetField("transfers", "t", "stuckAt", tried)
	b.requireStats(transfer.Stats{Rollback: 1, Oldest: tried}, "since it was first tried")
	b.RecoverAll()
	b.CheckBooks(bank.Balances(1000, 0))
}

// Documents that somebody has changed don't keep Stats from counting the others.
func TestStatsOfGarbage(t *testing.T) {
	t.Parallel()
	b := newSeen(t, 1000, 0)
	b.MustSubmit("due")
	since := b.mustStats().Oldest
	for i, changes := range []bson.M{
		{"createdAt": "yesterday"}, {"notBefore": 17}, {"state": "Lost"}, {"state": 3}, {"stuck": bson.A{}}, {"expiresAt": true, "hold": "yes"},
		{"state": "Committed", "committedAt": bson.M{}},
	} {
		b.Plant("due", 1, changes)
		b.Change("transfers", "due-0", bson.M{"$set": bson.M{"lastModified": nil}})
		got := b.mustStats()
		require.Equal(t, since, got.Oldest, i)
		require.GreaterOrEqual(t, got.Due+got.Committed, int64(1))
		b.Remove("transfers", "due-0")
	}
	b.CancelWaiting()
	b.CheckBooks(bank.Balances(1000, 0))
}

const (
	// envStored is how many final transfers are stored while the server counts, [fewer]
	// if it is not set.
	envStored = "TRANSFER_TEST_STORED"
	fewer     = 20_000
)

// stored returns how many final transfers are to be stored.
func stored(t *testing.T) int {
	t.Helper()
	given := os.Getenv(envStored)
	if given == "" {
		return fewer
	}
	n, err := strconv.Atoi(given)
	require.NoError(t, err)
	return n
}

// However many final transfers are stored, Stats examines those that are unfinished and
// those with an event that was not delivered, Explain the documents of its transfer, and
// the lists of what needs attention what they list.
func TestWhatTheServerExamines(t *testing.T) {
	t.Parallel()
	withEvents := transfer.WithEvents(transfer.EventHandler{})
	b := seen{bank.NewWith(t, []transfer.Option{withEvents}, 1000, 0).WithIndexes()}
	b.MustMove("success", 1)
	_, err := b.Transfer(t.Context(), bank.Move("fail", "b", "a", 500))
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	n := stored(t)
	b.Plant("success", n*9/10, nil, "outbox")
	b.Plant("fail", n/10, nil, "outbox")
	_, err = b.Submit(t.Context(), bank.Later("scheduled", 1))
	require.NoError(t, err)
	b.MustSubmit("due")
	b.MustHold("held", 2, time.Hour)
	b.Dying(bank.Prepares, bank.Lost, func(ctx context.Context, c *transfer.Coordinator) error {
		_, err := c.Transfer(ctx, bank.Move("preparing", "a", "b", 10))
		return err
	}, func(*mongo.Database) []transfer.Option { return []transfer.Option{withEvents} })
	want := b.mustStats()
	require.EqualValues(t, 3, want.Undelivered, "success, fail and held")

	begun := time.Now()
	examined := b.examinedBy(func() { b.requireStats(want, "the same as before") })
	t.Logf("%d transfers are stored: Stats took %s, and the server examined %+v", n, time.Since(begun), examined)
	require.Len(t, examined, 2, "one command for what is unfinished, and one for events")
	requireFew(t, examined, 4, 8)

	examined = b.examinedBy(func() {
		_, err := b.Explain(t.Context(), "preparing")
		require.NoError(t, err)
	})
	requireFew(t, examined, 3, 3)
	for _, q := range []transfer.Query{{Unfinished: true}, {Undelivered: true}, {Stuck: true}, {IdleFor: time.Minute}} {
		examined = b.examinedBy(func() {
			for _, err := range b.List(t.Context(), q) {
				require.NoError(t, err)
			}
		})
		require.NotEmpty(t, examined)
		requireFew(t, examined, 4, 8)
	}
	_, err = b.Void(t.Context(), "held")
	require.NoError(t, err)
	b.CancelWaiting()
	b.RecoverAll(withEvents)
	require.Equal(t, transfer.Stats{Undelivered: 6}, b.mustStats())
}

// requireFew requires that each of the reads has examined no more than so many documents
// and keys, by an index.
func requireFew(t *testing.T, reads []examined, documents, keys int64) {
	t.Helper()
	for _, e := range reads {
		require.LessOrEqual(t, e.Documents, documents, "%+v", e)
		require.LessOrEqual(t, e.Keys, keys, "%+v", e)
		require.NotContains(t, e.Plan, "COLLSCAN", "%+v", e)
	}
}

// seen is a bank with what these tests look at.
type seen struct{ *bank.Bank }

func newSeen(t *testing.T, balances ...int64) seen {
	t.Helper()
	return seen{bank.New(t, balances...).WithIndexes()}
}

func (b seen) mustStats() transfer.Stats {
	b.T.Helper()
	stats, err := b.Stats(b.T.Context())
	require.NoError(b.T, err)
	return stats
}

func (b seen) requireStats(want transfer.Stats, why string) {
	b.T.Helper()
	got := b.mustStats()
	require.WithinDuration(b.T, want.Oldest, got.Oldest, 0, why)
	got.Oldest = want.Oldest
	require.Equal(b.T, want, got, why)
}

// field returns a field of a stored transfer.
func (b seen) field(id, field string) bson.RawValue {
	b.T.Helper()
	document, err := b.DB.Collection("transfers").FindOne(b.T.Context(), bson.D{{Key: "_id", Value: id}}).Raw()
	require.NoError(b.T, err)
	return document.Lookup(field)
}

// rollBack leaves a transfer behind that is to be rolled back, with nothing reserved.
func (b seen) rollBack(id string) {
	b.T.Helper()
	b.StallAt(id, bank.Prepares, bank.Lost, 10)
	failure := bson.M{"code": "cancelled", "ledger": "", "account": "", "message": "no longer wanted"}
	b.Change("transfers", id, bson.M{"$set": bson.M{"state": "Rollback", "failure": failure}})
}

// examined is what the server has examined for one command.
type examined struct {
	Documents int64  `bson:"docsExamined"`
	Keys      int64  `bson:"keysExamined"`
	Plan      string `bson:"planSummary"`
}

// examinedBy returns what the server has examined for each read of a function.
func (b seen) examinedBy(f func()) []examined {
	b.T.Helper()
	profile := func(level int) {
		command := bson.D{{Key: "profile", Value: level}, {Key: "slowms", Value: 100}}
		require.NoError(b.T, b.DB.RunCommand(b.T.Context(), command).Err())
	}
	profile(2)
	f()
	profile(0)
	reads := bson.M{"op": bson.M{"$in": bson.A{"query", "command"}}, "planSummary": bson.M{"$exists": true}}
	cursor, err := b.DB.Collection("system.profile").Find(b.T.Context(), reads)
	require.NoError(b.T, err)
	var all []examined
	require.NoError(b.T, cursor.All(b.T.Context(), &all))
	require.NoError(b.T, b.DB.Collection("system.profile").Drop(b.T.Context()))
	return all
}
