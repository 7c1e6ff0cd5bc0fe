package processes

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

const (
	// envBacklog is how many transfers the processes share, [fewer] if it is not set.
	envBacklog = "TRANSFER_TEST_BACKLOG"
	fewer      = 4000
	// pairs is how many pairs of accounts they move money between.
	pairs = 400
)

// One, two and four processes share what was submitted before they were started.
// Each transfer is claimed once, and done once, and each process does a part.
func TestProcessesShare(t *testing.T) {
	t.Parallel()
	backlog := fewer
	if given := os.Getenv(envBacklog); given != "" {
		var err error
		backlog, err = strconv.Atoi(given)
		require.NoError(t, err)
	}
	b := bank.New(t).WithIndexes()
	for _, processes := range []int{1, 2, 4} {
		b.Renew(t)
		require.NoError(t, b.Setup(t.Context()))
		all := submit(b, backlog)
		var workers []*process
		begun := time.Now()
		for i := range processes {
			workers = append(workers, start(b, fmt.Sprint("worker", i), works))
		}
		require.Eventually(t, func() bool { return unfinished(b) == 0 }, 10*eventually, 200*time.Millisecond)
		took := time.Since(begun)
		for _, worker := range workers {
			worker.end()
		}
		t.Logf("%d processes: %d transfers in %s, %.0f a second; claimed by %v",
			processes, all, took.Round(10*time.Millisecond), float64(all)/took.Seconds(), shares(b, processes))
		requireOnce(b, all)
	}
}

// payer and payee name a pair of accounts.
func payer(pair int) string { return fmt.Sprint("payer", pair) }
func payee(pair int) string { return fmt.Sprint("payee", pair) }

// submit submits at least n transfers of 1, as many between each pair of accounts, and
// returns how many.
func submit(b *bank.Bank, n int) (submitted int) {
	b.T.Helper()
	var accounts []any
	for pair := range pairs {
		accounts = append(accounts, bson.M{"_id": payer(pair), "balance": opening}, bson.M{"_id": payee(pair), "balance": opening})
	}
	b.Insert("accounts", accounts...)
	for pair := range pairs {
		id := fmt.Sprint("t", pair)
		_, err := b.Submit(b.T.Context(), bank.Move(id, payer(pair), payee(pair), 1))
		require.NoError(b.T, err)
		submitted += 1 + len(b.Plant(id, n/pairs, nil))
	}
	return submitted
}

// opening is the balance with which each of these accounts begins.
const opening = int64(1_000_000)

// shares returns how many transfers each process has claimed, and requires that each has
// a part.
func shares(b *bank.Bank, processes int) []int64 {
	b.T.Helper()
	var all []int64
	for i := range processes {
		prefix := fmt.Sprint("worker", i, "-")
		owned := bson.D{{Key: "owner", Value: bson.D{{Key: "$gte", Value: prefix}, {Key: "$lt", Value: strings.TrimSuffix(prefix, "-") + "."}}}}
		n, err := b.DB.Collection("transfers").CountDocuments(b.T.Context(), owned)
		require.NoError(b.T, err)
		all = append(all, n)
	}
	require.Positive(b.T, slices.Min(all), "a process did nothing: %v", all)
	return all
}

// requireOnce requires that each transfer was claimed once, and that each balance is what
// all of them make of it.
func requireOnce(b *bank.Bank, all int) {
	b.T.Helper()
	once := bson.D{{Key: "epoch", Value: 1}, {Key: "state", Value: "Success"}}
	n, err := b.DB.Collection("transfers").CountDocuments(b.T.Context(), once)
	require.NoError(b.T, err)
	require.EqualValues(b.T, all, n, "some were claimed more than once, or failed")
	initial := map[string]int64{}
	for pair := range pairs {
		initial[payer(pair)], initial[payee(pair)] = opening, opening
	}
	b.CheckBooks(initial)
}

// A worker begins at once with what its own process submits, whatever its question for
// work takes.
func TestOwnSubmitWakes(t *testing.T) {
	t.Parallel()
	set := startSet(t)
	b := bank.NewReplicated(t, set, "wakes")
	b.OpenAccounts([]int64{100, 0})
	c := b.NewCoordinator(b.Through(options.Client().SetAppName("worker")))
	end := bank.InBackground(t, c)
	_, err := c.Transfer(t.Context(), bank.Move("warm", "a", "b", 1))
	require.NoError(t, err)
	_, err = set.FailPoint(t.Context(), 0, "alwaysOn", bson.D{
		{Key: "failCommands", Value: bson.A{"aggregate"}}, {Key: "appName", Value: "worker"},
		{Key: "blockConnection", Value: true}, {Key: "blockTimeMS", Value: 4000},
	})
	require.NoError(t, err)
	hangs := time.NewTimer(time.Second)
	<-hangs.C // the question that it asks now is not answered soon
	_, err = c.Submit(t.Context(), bank.Move("t", "a", "b", 1))
	require.NoError(t, err)
	submitted := time.Now()
	require.Eventually(t, func() bool {
		rec, err := b.Get(t.Context(), "t")
		return err == nil && rec.State != transfer.StateInitiated
	}, eventually, time.Millisecond)
	require.Less(t, time.Since(submitted), 2*time.Second)
	_, err = set.FailPoint(t.Context(), 0, "off", nil)
	require.NoError(t, err)
	_, err = b.Wait(t.Context(), "t")
	require.NoError(t, err)
	end()
	b.CheckBooks(bank.Balances(100, 0))
}

// A worker with nothing to do begins with what its own process submits at once, and with
// what another process submits within a second.
func TestWakes(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	c := b.NewCoordinator(b.DB)
	end := bank.InBackground(t, c)
	b.MustMove("warm", 1)
	for name, row := range map[string]struct {
		by     *transfer.Coordinator
		within time.Duration
	}{
		"its own":   {c, 100 * time.Millisecond},
		"another's": {b.Coordinator, time.Second},
	} {
		best := time.Hour
		for n := 0; best > row.within; n++ { // others keep a test's machine busy
			require.Less(t, n, 20, "%s: the soonest was begun after %s", name, best)
			idle := time.NewTimer(time.Second)
			<-idle.C
			id := fmt.Sprint(name, n)
			rec, err := row.by.Submit(t.Context(), bank.Move(id, "a", "b", 1))
			require.NoError(t, err)
			submitted := time.Now()
			for rec.State == transfer.StateInitiated {
				rec, err = b.Get(t.Context(), id)
				require.NoError(t, err)
			}
			best = min(best, time.Since(submitted))
		}
		t.Logf("%s: begun after %s", name, best)
	}
	end()
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 0))
}
