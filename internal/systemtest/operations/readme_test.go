package operations

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/outside"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// firstProgram builds the program of the README, as a user does who copies it.
func firstProgram(t *testing.T) (program string) {
	t.Helper()
	root, err := outside.Root()
	require.NoError(t, err)
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	_, after, found := strings.Cut(string(readme), "```go\npackage main\n")
	require.True(t, found, "the README has no program")
	source, _, found := strings.Cut(after, "```\n")
	require.True(t, found)
	folder := t.TempDir()
	main := filepath.Join(folder, "main.go")
	require.NoError(t, os.WriteFile(main, []byte("package main\n"+source), 0o600))
	program, err = outside.Build(t.Context(), folder)
	require.NoError(t, err)
	return program
}

// begin starts the program and returns its output, line by line.
// The returned function ends it as Kubernetes does, and requires that it ends well.
func begin(t *testing.T, program, uri string) (says *bufio.Scanner, end func()) {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "MONGODB_URI="+uri)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	hangs := time.AfterFunc(5*time.Minute, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) }) // it says where
	t.Cleanup(func() { _ = hangs.Stop(); _ = cmd.Process.Kill() })
	return bufio.NewScanner(stderr), func() {
		t.Helper()
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		rest, err := io.ReadAll(stderr)
		require.NoError(t, err)
		require.NoError(t, cmd.Wait(), "%s", rest)
	}
}

// The README's first program does what a service has to do.
// It moves money from an account, once, however often it is started.
// It finishes what other processes have left, voids holds that expire, and ends on
// request.
func TestFirstProgram(t *testing.T) {
	t.Parallel()
	program, server := firstProgram(t), bank.StartServer(t)
	db := mongotest.Client(t, options.Client().ApplyURI(server.URI())).Database("bank")
	b := bank.Over(t, db)
	orders := []string{"deposit-1: done", "order-17: done", "order-18: refused, nothing moved"}
	run := func() (end func()) {
		says, end := begin(t, program, server.URI())
		for _, want := range orders {
			require.True(t, says.Scan())
			require.True(t, strings.HasSuffix(says.Text(), want), says.Text())
		}
		return end
	}
	run()()
	bare := func() map[string]int64 { return bare(b, "accounts") }
	require.Equal(t, map[string]int64{"world": -10_000, "alice": 4_000, "bob": 6_000}, bare())

	rec, err := b.Get(t.Context(), "order-17")
	require.NoError(t, err)
	leaveUnfinished(b, rec)
	b.Silence("order-17", time.Hour)
	end := run()
	_, err = b.Hold(t.Context(), bank.Move("forgotten", "alice", "bob", 1_000), 5*time.Second)
	require.NoError(t, err)
	require.Equal(t, int64(3_000), bare()["alice"])
	require.Eventually(t, func() bool { return b.Unfinished() == 0 }, time.Minute, 10*time.Millisecond)
	end()
	require.Equal(t, map[string]int64{"world": -10_000, "alice": 4_000, "bob": 6_000}, bare())
	for id, want := range map[string]string{
		"deposit-1": "Success", "order-17": "Success", "order-18": "Fail", "forgotten": "Fail",
	} {
		var stored bson.M
		byID := bson.D{{Key: "_id", Value: id}}
		require.NoError(t, db.Collection("transfers").FindOne(t.Context(), byID).Decode(&stored))
		assert.Equal(t, want, stored["state"], id)
	}
	report, err := b.Audit(t.Context())
	require.NoError(t, err)
	require.Empty(t, report.Findings)
}

// bare reads the balances of a collection with the driver.
func bare(b *bank.Bank, collection string) map[string]int64 {
	b.T.Helper()
	cursor, err := b.DB.Collection(collection).Find(b.T.Context(), bson.D{})
	require.NoError(b.T, err)
	var documents []struct {
		ID      string `bson:"_id"`
		Balance int64  `bson:"balance"`
	}
	require.NoError(b.T, cursor.All(b.T.Context(), &documents))
	found := map[string]int64{}
	for _, d := range documents {
		found[d.ID] = d.Balance
	}
	return found
}
