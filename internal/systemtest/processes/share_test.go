package processes

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

const (
	// envBacklog is how many transfers the processes share, [fewer] if it is not set.
	envBacklog = "TRANSFER_TEST_BACKLOG"
	fewer      = 1200
	// pairs is how many pairs of accounts they move money between.
	pairs = 400
)

// One, two and four processes share what was submitted, and is due when all of them work.
// Each transfer is done once, by who has claimed it or has rightly taken it over, and
// each process does a part.
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
		var workers []*bank.Process
		for i := range processes {
			workers = append(workers, start(b, worker(i), works))
		}
		all += awaitAll(b, processes)
		begun := time.Now()
		_, err := b.DB.Collection("transfers").UpdateMany(t.Context(), bson.D{{Key: "notBefore", Value: bson.D{{Key: "$exists", Value: true}}}},
			bson.D{{Key: "$unset", Value: bson.D{{Key: "notBefore", Value: ""}}}})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			n, err := countUnfinished(b)
			return err == nil && n == 0
		}, 5*eventually, 200*time.Millisecond)
		took := time.Since(begun)
		for _, worker := range workers {
			worker.End()
		}
		t.Logf("%d processes: %d transfers in %s, %.0f a second; claimed by %v",
			processes, all, took.Round(10*time.Millisecond), float64(all)/took.Seconds(), shares(b, processes))
		requireOnce(b, all)
	}
}

// worker names a process.
func worker(i int) string { return fmt.Sprint("worker", i) }

// awaitAll submits transfers until each process has run one, and returns how many.
func awaitAll(b *bank.Bank, processes int) (submitted int) {
	b.T.Helper()
	for i := range processes {
		bank.Until(b.T, 10*time.Millisecond, func() (bool, error) {
			n, err := b.DB.Collection("transfers").CountDocuments(b.T.Context(), owned(worker(i)))
			if err != nil || n > 0 {
				return n > 0, err
			}
			_, err = b.Submit(b.T.Context(), bank.Move(fmt.Sprint(early, submitted), payer(0), payee(0), 1))
			if err == nil {
				submitted++
			}
			return false, err
		})
	}
	return submitted
}

// early is what the IDs of these begin with.
const early = "early"

// payer and payee name a pair of accounts.
func payer(pair int) string { return fmt.Sprint("payer", pair) }
func payee(pair int) string { return fmt.Sprint("payee", pair) }

// submit submits at least n transfers of 1, as many between each pair of accounts, and
// returns how many. No worker runs them yet.
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
		b.SetField("transfers", id, "notBefore", time.Now().Add(time.Hour))
		submitted += 1 + len(b.Plant(id, n/pairs, nil))
	}
	return submitted
}

// opening is the balance with which each of these accounts begins.
const opening = int64(1_000_000)

// shares returns how many of the transfers that were due at once each process has
// claimed, and requires that each has a part.
func shares(b *bank.Bank, processes int) []int64 {
	b.T.Helper()
	var all []int64
	for i := range processes {
		n, err := b.DB.Collection("transfers").CountDocuments(b.T.Context(), append(owned(worker(i)),
			bson.E{Key: "_id", Value: bson.D{{Key: "$not", Value: bson.Regex{Pattern: "^" + early}}}}))
		require.NoError(b.T, err)
		all = append(all, n)
	}
	require.Positive(b.T, slices.Min(all), "a process did nothing: %v", all)
	return all
}

// requireOnce requires that each transfer was claimed once, but for takeovers from
// processes that others kept from giving signs of life, and that each balance is what all
// of them make of it.
func requireOnce(b *bank.Bank, all int) {
	b.T.Helper()
	claims := bson.D{{Key: "$add", Value: bson.A{1, bson.D{{Key: "$ifNull", Value: bson.A{"$attempts", 0}}}}}}
	once := bson.D{
		{Key: "state", Value: "Success"}, {Key: "$expr", Value: bson.D{{Key: "$eq", Value: bson.A{"$epoch", claims}}}},
	}
	n, err := b.DB.Collection("transfers").CountDocuments(b.T.Context(), once)
	require.NoError(b.T, err)
	require.EqualValues(b.T, all, n, "some were claimed more than once, or failed")
	b.T.Log("taken over: ", takenOver(b))
	initial := map[string]int64{}
	for pair := range pairs {
		initial[payer(pair)], initial[payee(pair)] = opening, opening
	}
	b.CheckBooks(initial)
}

// questions counts the questions for work that a client has sent, and those that were
// answered, or given up.
type questions struct{ asked, over atomic.Int64 }

func (q *questions) client() *options.ClientOptions {
	return options.Client().SetMonitor(&event.CommandMonitor{
		Started:   func(_ context.Context, e *event.CommandStartedEvent) { q.count(&q.asked, e.CommandName) },
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) { q.count(&q.over, e.CommandName) },
		Failed:    func(_ context.Context, e *event.CommandFailedEvent) { q.count(&q.over, e.CommandName) },
	})
}

func (q *questions) count(in *atomic.Int64, command string) {
	if command == "aggregate" {
		in.Add(1)
	}
}

// A worker begins at once with what its own process submits, whatever its question for
// work takes: before that is answered, or given up.
func TestOwnSubmitWakes(t *testing.T) {
	t.Parallel()
	set := startSet(t)
	b := bank.NewReplicated(t, set, "wakes")
	b.OpenAccounts([]int64{100, 0})
	var q questions
	c := b.NewCoordinator(b.Through(q.client().SetAppName("worker")))
	end := bank.InBackground(t, c)
	_, err := c.Transfer(t.Context(), bank.Move("warm", "a", "b", 1))
	require.NoError(t, err)
	_, err = set.FailPoint(t.Context(), 0, "alwaysOn", bson.D{
		{Key: "failCommands", Value: bson.A{"aggregate"}}, {Key: "appName", Value: "worker"},
		{Key: "blockConnection", Value: true}, {Key: "blockTimeMS", Value: 7000},
	})
	require.NoError(t, err)
	for round, woken := 0, false; !woken; round++ { // others keep a test's machine busy
		require.Less(t, round, 10, "it has begun only after its question")
		before := q.asked.Load()
		require.Eventually(t, func() bool { return q.asked.Load() > before }, eventually, time.Millisecond)
		over, id := q.over.Load(), fmt.Sprint("t", round)
		rec, err := c.Submit(t.Context(), bank.Move(id, "a", "b", 1))
		require.NoError(t, err)
		submitted := time.Now()
		for rec.State == transfer.StateInitiated {
			rec, err = b.Get(t.Context(), id)
			require.NoError(t, err)
		}
		woken = q.over.Load() == over
		t.Logf("begun after %s", time.Since(submitted))
	}
	_, err = set.FailPoint(t.Context(), 0, "off", nil)
	require.NoError(t, err)
	end()
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 0))
}

// A worker with nothing to do begins with what its own process submits at once, and with
// what another process submits within a second. A machine that is slow is given what two
// transfers take on it.
func TestWakes(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0).WithIndexes()
	c := b.NewCoordinator(b.DB)
	end := bank.InBackground(t, c)
	for name, row := range map[string]struct {
		by     *transfer.Coordinator
		within time.Duration
	}{
		"its own":   {c, 100 * time.Millisecond},
		"another's": {b.Coordinator, time.Second},
	} {
		best, beside := time.Hour, time.Hour
		for n := 0; n == 0 || best > row.within+2*beside; n++ { // others keep a test's machine busy
			require.Less(t, n, 15, "%s: the soonest was begun after %s, and a transfer takes %s", name, best, beside)
			id := fmt.Sprint(name, n)
			for i := range 5 {
				begun := time.Now()
				b.MustMove(fmt.Sprint(id, " beside ", i), 1)
				beside = min(beside, time.Since(begun))
			}
			idle := time.NewTimer(time.Second)
			<-idle.C
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
	b.CheckBooks(bank.Balances(1000, 0))
}
