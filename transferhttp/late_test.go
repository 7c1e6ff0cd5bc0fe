package transferhttp_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
	"github.com/mongotransfer/transfer/transferhttp"
)

// turnBack moves times of a transfer back, as if that much time had passed.
func turnBack(b *bank.Bank, id string, d time.Duration, fields ...string) {
	b.T.Helper()
	earlier := bson.D{}
	for _, field := range fields {
		value := bson.D{{Key: "$subtract", Value: bson.A{"$" + field, d.Milliseconds()}}}
		earlier = append(earlier, bson.E{Key: field, Value: value})
	}
	result, err := b.DB.Collection("transfers").UpdateByID(b.T.Context(), id, mongo.Pipeline{{{Key: "$set", Value: earlier}}})
	require.NoError(b.T, err)
	require.EqualValues(b.T, 1, result.ModifiedCount)
}

// late returns the IDs that the list of what is late has.
func (p pane) late() []string { return p.walk("transfers?show=late", "transfer") }

// What waits for funds is late where nobody has looked again for a while.
func TestWaiterThatNobodyLooksAt(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0).WithIndexes()
	_, err := b.Submit(t.Context(), transfer.Request{
		ID: "waiter", From: "b", To: "a", Amount: transfer.Units(10), AwaitFundsUntil: time.Now().Add(10 * time.Second),
	})
	require.NoError(t, err)
	end := bank.InBackground(t, b.NewCoordinator(b.DB))
	require.Eventually(t, func() bool {
		rec, err := b.Get(t.Context(), "waiter")
		return err == nil && rec.Waiting != nil
	}, time.Minute, time.Millisecond)
	end()
	require.Contains(t, open(t, b.Coordinator).get("./").section("attention"), "Nothing is stuck or late.")
	require.Empty(t, open(t, b.Coordinator).late())
	turnBack(b, "waiter", 10*time.Minute, "createdAt", "lastModified", "notBefore", "fundsUntil")
	p := open(t, b.Coordinator)
	require.Regexp(t, `Late 1 .*waiter`, p.get("./").section("attention"))
	require.Equal(t, []string{"waiter"}, p.late())
	require.Contains(t, p.get("transfer?id=waiter").section("explained"), "See that some process calls Run.")
	b.CancelWaiting()
	b.CheckBooks(bank.Balances(1000, 0))
}

// A hold whose process died before everything was held is not late, on the overview or in
// the list, until it has expired: its caller may ask again.
func TestHoldThatIsNotHeldIsNotLate(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0).WithIndexes()
	b.StallHold("half held", bank.HeldMark)
	b.MustHold("held", 1, time.Hour)
	_, err := b.Submit(t.Context(), bank.Later("scheduled", 1))
	require.NoError(t, err)
	for _, id := range []string{"half held", "held", "scheduled"} {
		turnBack(b, id, time.Hour, "createdAt", "lastModified")
	}
	p := open(t, b.Coordinator)
	require.Contains(t, p.get("./").section("attention"), "Nothing is stuck or late.")
	require.Empty(t, p.late())
	b.Expire("half held")
	p = open(t, b.Coordinator)
	require.Regexp(t, `Late 1 .*half held`, p.get("./").section("attention"))
	require.Equal(t, []string{"half held"}, p.late())
	_, err = b.Void(t.Context(), "held")
	require.NoError(t, err)
	b.CancelWaiting()
	b.RecoverAll()
	b.CheckBooks(bank.Balances(1000, 0))
}

// The overview and the list agree about what is late.
func TestLateIsTheSameEverywhere(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0).WithIndexes()
	b.MustHold("overdue", 1, time.Hour)
	b.Expire("overdue")
	b.StallAt("stuck", bank.Clears, bank.Lost, 1)
	b.SetField("transfers", "stuck", "stuck", bson.M{"code": "accountNotFound", "ledger": "", "account": "x", "message": "it is gone"})
	b.StallHalf("half", 1)
	b.StallAt("committed", bank.Clears, bank.Lost, 1)
	b.MustSubmit("due")
	for _, id := range []string{"overdue", "stuck", "half", "committed", "due"} {
		b.Silence(id, time.Hour)
	}
	p := open(t, b.Coordinator)
	require.Regexp(t, `Late 3 .*committed .*half .*due `, p.get("./").section("attention"))
	require.Equal(t, []string{"committed", "due", "half"}, slices.Sorted(slices.Values(p.late())))
	b.Change("transfers", "stuck", bson.M{"$unset": bson.M{"stuck": ""}})
	_, err := b.Void(t.Context(), "overdue")
	require.NoError(t, err)
	b.CancelWaiting()
	b.RecoverAll()
	b.CheckBooks(bank.Balances(1000, 0))
}

// The list finds what is late behind however much that is not, page by page.
func TestLateBehindWhatIsNot(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0).WithIndexes()
	b.StallHalf("late", 1)
	turnBack(b, "late", time.Hour, "createdAt", "lastModified")
	b.MustHold("held", 1, time.Hour)
	b.Silence("held", 30*time.Minute)
	held := b.Plant("held", 220, bson.M{})
	p := open(t, b.Coordinator)
	first := p.get("transfers?show=late").text()
	require.Contains(t, first, "None of the 200 that this page has looked at is late. Go on with the next one.")
	require.NotContains(t, first, "There are none.")
	require.Equal(t, []string{"late"}, p.late())
	b.Remove("transfers", held...)
	require.NotContains(t, p.get("transfers?show=late").text(), "None of the 200")

	late := b.Plant("late", transferhttp.ListPage+3, bson.M{})
	require.ElementsMatch(t, append(late, "late"), p.late())
	b.Remove("transfers", late...)
	_, err := b.Void(t.Context(), "held")
	require.NoError(t, err)
	b.RecoverAll()
	b.CheckBooks(bank.Balances(1000, 0))
}

// Where the oldest should have come to its end a while ago the overview isn't calm,
// though something has happened to it just now.
func TestOldestIsNotCalm(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0).WithIndexes()
	b.StallHalf("old", 1)
	attention := func() string { return open(t, b.Coordinator).get("./").section("attention") }
	require.Equal(t, "Needs attention Nothing is stuck or late.", attention())
	turnBack(b, "old", 2*time.Minute, "createdAt")
	require.Regexp(t, "^Needs attention Late, and under way 1 or more .* Show all$", attention())
	b.Silence("old", 2*time.Minute)
	require.Regexp(t, "^Needs attention Late 1 .* old ", attention())
	b.RecoverAll()
	b.CheckBooks(bank.Balances(1000, 0))
}
