package patience

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
)

// owe notes a transfer of some units from an account, whose pause ends at a given time.
func owe(a *arrears, id, account string, units int64, until time.Time) {
	a.add(document.Transfer{ID: id, NotBefore: until}, document.Leg{Account: account, Amount: money.Units(-units)})
}

// payableNow returns what an account can pay with a balance.
func payableNow(t *testing.T, a *arrears, account string, balance int64) (ids []string) {
	t.Helper()
	raw, err := bson.Marshal(bson.M{"balance": balance})
	require.NoError(t, err)
	for _, n := range a.payable(account, document.Fields{Balance: "balance"}.View(raw)) {
		ids = append(ids, n.transfer.ID)
	}
	return ids
}

func sorted(accounts []string) []string {
	slices.Sort(accounts)
	return accounts
}

// As many transfers are found as an account can pay together, each once.
// Those whose pauses are over are forgotten, and nothing is kept for ever.
func TestArrears(t *testing.T) {
	t.Parallel()
	a := &arrears{}
	now := time.Now()
	later, soon := now.Add(time.Minute), now.Add(time.Second)
	require.True(t, a.empty())
	for i, units := range []int64{60, 50, 40, 30} {
		owe(a, fmt.Sprint("a", i), "a", units, later)
	}
	owe(a, "b0", "b", 1, soon)
	require.False(t, a.empty())
	require.ElementsMatch(t, []string{"a", "b"}, a.next(now))
	require.Empty(t, payableNow(t, a, "a", 29))
	require.Equal(t, []string{"a0", "a2"}, payableNow(t, a, "a", 100), "60 and 40 of the 100")
	require.Equal(t, []string{"a1"}, payableNow(t, a, "a", 79), "the others were found")
	require.Empty(t, a.payable("a", document.Fields{Balance: "balance"}.View(nil)), "an account that is gone")
	require.Equal(t, []string{"a"}, a.next(soon), "the pause of b0 is over")
	require.Empty(t, payableNow(t, a, "b", 100))
	require.Empty(t, a.next(later))
	require.True(t, a.empty())
	require.Empty(t, a.notes)
	require.Empty(t, a.turns)
}

// An account is read once, however often it has got money and lacked some again.
func TestArrearsThatComeAgain(t *testing.T) {
	t.Parallel()
	a := &arrears{}
	now := time.Now()
	later := now.Add(time.Minute)
	require.Empty(t, payableNow(t, a, "a", 100), "before anything is noted")
	owe(a, "first", "a", 60, later)
	owe(a, "other", "b", 60, later)
	require.Equal(t, []string{"a", "b"}, sorted(a.next(now)))
	for n := range 5 {
		require.Len(t, payableNow(t, a, "a", 100), 1)
		require.Empty(t, payableNow(t, a, "a", 100), "it was found")
		owe(a, fmt.Sprint("t", n), "a", 60, later)
	}
	require.Equal(t, []string{"a", "b"}, sorted(a.next(now)), "each once")
	require.Equal(t, []string{"t4"}, payableNow(t, a, "a", 100))
	require.Equal(t, []string{"b"}, a.next(now))
	require.Len(t, a.notes, 1)
}

// Notes are bounded, and accounts beyond those that are read at once take turns.
func TestArrearsAreBounded(t *testing.T) {
	t.Parallel()
	a := &arrears{}
	now := time.Now()
	later := now.Add(time.Minute)
	const accounts = watchedAccounts + 500
	for i := range watchedTransfers + 100 {
		owe(a, fmt.Sprint("t", i), fmt.Sprint("a", i%accounts), 1, later)
	}
	require.Equal(t, watchedTransfers, a.count)
	read := map[string]int{}
	for range 3 {
		turn := a.next(now)
		require.Len(t, turn, watchedAccounts)
		for _, account := range turn {
			read[account]++
		}
	}
	require.Len(t, read, accounts)
	for account, times := range read {
		require.Equal(t, 2, times, account)
	}
}
