package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

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
		assert.Contains(t, out.String(), c.promise)
	}
	for _, c := range claims() {
		assert.Contains(t, out.String(), c.text)
	}
	for _, name := range []string{cellsFile, claimsFile, conditionsFile} {
		assert.FileExists(t, filepath.Join(folder, name))
	}
}

// A round counts exactly the commands that the server got and the documents that it
// wrote.
// The naive contender needs eight of each for its eight steps.
// A floor of sixteen callers needs two commands a batch and three documents a transfer.
func TestWhatIsCounted(t *testing.T) {
	var s settings
	require.NoError(t, s.parse([]string{"-only", "naive/uniform/4,floor-1/zipf/16,optimistic/uniform/1", "-for", "100ms", "-rounds", "1"}))
	groups, err := s.groups()
	require.NoError(t, err)
	r := report{groups: groups, results: map[string]results{}}
	require.NoError(t, r.measure(t.Context(), &s, &bytes.Buffer{}))
	for i, want := range []figures{{Commands: 8, Writes: 8}, {Commands: 2.0 / 16, Writes: 3}, {Commands: 4, Writes: 3}} {
		c := groups[0].Cells[i]
		rounds := r.results[chosen][c]
		require.Len(t, rounds, 1)
		assert.InDelta(t, want.Commands, rounds[0].Commands, 1e-9, c.String())
		// No other process writes to a server of our own.
		if os.Getenv("MONGODB_URI") == "" {
			assert.InDelta(t, want.Writes, rounds[0].Writes, 1e-9, c.String())
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
