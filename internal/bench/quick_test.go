package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// TestMain lets the test's program be a worker, as the benchmark's own is.
func TestMain(m *testing.M) {
	if os.Getenv(workerVariable) != "" {
		exitIf(work(context.Background(), os.Stdin, os.Stdout))
		return
	}
	os.Exit(m.Run())
}

// The quick run does a little of everything on real servers.
// Every contender keeps the money together, nothing is left behind, all claims are judged
// and all files written.
func TestQuick(t *testing.T) {
	var s settings
	folder := t.TempDir()
	require.NoError(t, s.parse([]string{"-quick", "-out", folder}))
	var out bytes.Buffer
	require.NoError(t, measureAll(t.Context(), &s, &out))
	for _, c := range contenders() {
		if c.apart == "" { // TestBaseline has the others.
			assert.Contains(t, out.String(), c.promise)
		}
	}
	for _, c := range goals() {
		assert.Contains(t, out.String(), c.text)
	}
	for _, name := range []string{cellsFile, claimsFile, conditionsFile} {
		assert.FileExists(t, filepath.Join(folder, name))
	}
}

// A baseline plays beside the current version, each in another process, and is judged by
// the same rounds.
func TestBaseline(t *testing.T) {
	program, err := os.Executable()
	require.NoError(t, err)
	var s settings
	folder := t.TempDir()
	// On a busy machine nothing ends in the few milliseconds of a quick round.
	flags := []string{"-quick", "-for", "500ms", "-rounds", "2", "-baseline", program, "-only", "uniform-16,hot-1024", "-out", folder}
	require.NoError(t, s.parse(flags))
	var out bytes.Buffer
	require.NoError(t, measureAll(t.Context(), &s, &out))
	for _, text := range []string{"current/uniform/16", "baseline/uniform/16", "hot, 1024 callers: transfers/s against the baseline"} {
		assert.Contains(t, out.String(), text)
	}
	lines := readCSV(t, folder, baselineFile)
	require.Len(t, lines, 1+2*2)
	assert.NotEmpty(t, lines[1][4], "what was reached")

	d, err := deploy(t.Context(), 1)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.close(context.Background())) })
	_, err = openStand(t.Context(), d, d.prefix+"none", plainCell("baseline", "hot", 1))
	require.ErrorContains(t, err, "wants a program")
}

// A round counts exactly the commands that the server got, the documents that it wrote,
// and the waits of a caller who is alone.
// The naive contender needs eight of each for its eight steps.
// A floor of sixteen callers needs two commands a batch and three documents a transfer.
// Of the four commands of a native transaction, the commit alone waits for a majority.
// The library's six to the very end are the claim, the prepares, the pay and the record
// side by side, the clears and the finish.
// By default a caller waits for the first three of these waits, and for two at the
// commit.
func TestWhatIsCounted(t *testing.T) {
	var s settings
	list := "naive/uniform/4,naive/uniform/1,floor-1/zipf/16,optimistic/uniform/1,native/uniform/1," +
		"transfer-at-success/uniform/1,transfer/uniform/1,transfer-at-commit/uniform/1"
	require.NoError(t, s.parse([]string{"-only", list, "-for", "100ms", "-rounds", "3"}))
	groups, err := s.chosen()
	require.NoError(t, err)
	r := report{groups: groups, results: map[string]results{}}
	require.NoError(t, r.measure(t.Context(), &s, &bytes.Buffer{}))
	unknown := math.NaN()
	for i, want := range []figures{
		{Commands: 8, Writes: 8, Waits: unknown}, {Commands: 8, Writes: 8, Waits: 8}, {Commands: 2.0 / 16, Writes: 3, Waits: unknown},
		{Commands: 4, Writes: 3, Waits: 3}, {Commands: 4, Writes: 3, Waits: 1},
		{Commands: 6, Writes: 8, Waits: 5},
	} {
		c := groups[0].Cells[i]
		got := calmest(r.results[chosen][c])
		delta := 1e-9
		if strings.HasPrefix(c.String(), "transfer") {
			delta = 0.5 // now and then the process notes that it lives
		}
		assert.InDelta(t, want.Commands, got.Commands, delta, c.String())
		assert.Equal(t, number(want.Waits), number(got.Waits), c.String())
		// No other process writes to a server of our own.
		if os.Getenv("MONGODB_URI") == "" {
			assert.InDelta(t, want.Writes, got.Writes, delta, c.String())
		}
	}
	for i, waits := range map[int]float64{6: 3, 7: 2} {
		us := calmest(r.results[chosen][groups[0].Cells[i]])
		assert.InDelta(t, waits, us.Waits, 0, groups[0].Cells[i].String())
		assert.LessOrEqual(t, us.Commands, 6.0, "what is put off has no more commands")
		assert.Greater(t, us.Commands, waits, "and is counted")
	}
}

// calmest returns the round with the fewest waits, if those are known of any. On a busy
// machine, pay and record may go out one after the other.
func calmest(rounds []figures) figures {
	return slices.MaxFunc(rounds, func(a, b figures) int { return cmp.Compare(-a.Waits, -b.Waits) })
}

// A round ends when nothing is left to be done, so that the figures have all of it.
func TestRoundsEndAtRest(t *testing.T) {
	d, err := deploy(t.Context(), 1)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.close(context.Background())) })
	s, err := openStand(t.Context(), d, d.prefix+"rest", plainCell("transfer-at-commit", "uniform", 256))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.close(context.Background())) })
	for n := range 3 {
		short := timing{Window: 100 * time.Millisecond, Grace: grace}
		_, err := s.play(t.Context(), round{Load: "uniform", Callers: 256, Number: n, Timing: short})
		require.NoError(t, err)
		for _, state := range []string{"Preparing", "Committed"} {
			n, err := s.bank.transfers.CountDocuments(t.Context(), bson.D{{Key: "state", Value: state}})
			require.NoError(t, err)
			assert.Zero(t, n, state)
		}
	}
}

// The check after each round finds money from nowhere, and what a transfer has left
// behind.
func TestCheckFinds(t *testing.T) {
	d, err := deploy(t.Context(), 1)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.close(context.Background())) })
	s, err := openStand(t.Context(), d, d.prefix+"check", cell{Size: size{Accounts: 10, Stored: 3}, Processes: 1, Contender: "transfer"})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.close(context.Background())) })
	require.NoError(t, s.check(t.Context()))
	n, err := s.bank.transfers.CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	require.EqualValues(t, 3+5, n, "those stored from the outset, and one for each pair of accounts")

	_, err = s.bank.accounts.UpdateByID(t.Context(), s.bank.names[3], add(1))
	require.NoError(t, err)
	require.ErrorContains(t, s.check(t.Context()), fmt.Sprint("should add up to ", 10*firstBalance))
	_, err = s.bank.accounts.DeleteOne(t.Context(), bson.D{{Key: "_id", Value: s.bank.names[3]}})
	require.NoError(t, err)
	require.ErrorContains(t, s.check(t.Context()), "should add up")
}

// A document over the pattern is the library's own with other values, and the same for
// each transfer.
func TestPatterns(t *testing.T) {
	d, err := deploy(t.Context(), 1)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.close(context.Background())) })
	s, err := openStand(t.Context(), d, d.prefix+"pattern", cell{Size: size{Accounts: 4, Stored: 1}, Processes: 1, Contender: "transfer"})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.close(context.Background())) })

	coord := s.mover.(*library).coord
	old, err := newStream("uniform", 4, 0, 'o', 0, 0)
	require.NoError(t, err)
	orders := make([]order, 1)
	old.fill(orders)
	rec, err := coord.Get(t.Context(), orders[0].id)
	require.NoError(t, err)
	require.Equal(t, "Success", string(rec.State))
	require.Len(t, rec.Legs, 2)
	for _, leg := range rec.Legs {
		switch leg.Amount.String() {
		case fmt.Sprint(orders[0].amount):
			assert.Equal(t, s.bank.names[orders[0].to], leg.Account)
		case fmt.Sprint(-orders[0].amount):
			assert.Equal(t, s.bank.names[orders[0].from], leg.Account)
		default:
			t.Errorf("a leg of %s", leg.Amount)
		}
	}
	account, err := coord.GetAccount(t.Context(), s.bank.names[0])
	require.NoError(t, err)
	require.Equal(t, s.bank.names[0], account.ID)
}

// Three nodes wait for as long as a server does by default before they elect another
// primary: a busy machine must not have an election in a round.
func TestThreeNodesAreCalm(t *testing.T) {
	d, err := deploy(t.Context(), 3)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.close(context.Background())) })
	var reply struct{ Config bson.M }
	ask := bson.D{{Key: "replSetGetConfig", Value: 1}}
	require.NoError(t, d.client.Database("admin").RunCommand(t.Context(), ask).Decode(&reply))
	assert.Len(t, reply.Config["members"], 3)
	settings, err := bson.Marshal(reply.Config["settings"])
	require.NoError(t, err)
	assert.EqualValues(t, 10_000, bson.Raw(settings).Lookup("electionTimeoutMillis").AsInt64())
	assert.EqualValues(t, 2_000, bson.Raw(settings).Lookup("heartbeatIntervalMillis").AsInt64())
}
