package main

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// killedAt names the write at which a process kills itself that runs a conversion.
const killedAt = "TRANSFERCTL_KILLED_AT"

// convertAndDie runs a conversion in this process, which ends in the middle.
func convertAndDie(at string) int {
	n, err := strconv.Atoi(at)
	if err != nil {
		return exitUsage
	}
	s := &stopper{at: n, answered: true, stop: func() {
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Kill()
		}
		if err != nil {
			os.Exit(exitUsage)
		}
		select {} // until the signal is there
	}}
	return run(context.Background(), []string{"convert", "--yes"}, surroundings{
		in: os.Stdin, out: os.Stdout, err: os.Stderr, lookup: os.Getenv, now: time.Now, monitor: s.monitor(),
	})
}

// A process that is killed in the middle says goodbye to nobody, and leaves transactions
// open at the server. The next run waits for them, and finishes, to the unit.
func TestConvertIsKilled(t *testing.T) {
	t.Parallel()
	server, err := mongotest.StartOwn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	client, err := mongo.Connect(options.Client().ApplyURI(server.URI()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	require.NoError(t, client.Database("admin").RunCommand(t.Context(), bson.D{
		{Key: "setParameter", Value: 1}, {Key: "transactionLifetimeLimitSeconds", Value: 1},
	}).Err())
	b := bank.Over(t, client.Database("bank")).WithIndexes()
	d := atDesk(t, b.DB)
	d.env["MONGODB_URI"] = server.URI()
	killed := 0
	for _, at := range []int{1, 3, 4, 5, 6, 9, 14, 20, 27, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42} {
		b.Clear()
		oldBooks(t, b.DB)
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
		child.Env = append(os.Environ(), killedAt+"="+strconv.Itoa(at), "MONGODB_URI="+inDatabase(t, server.URI(), "bank"))
		told, err := child.CombinedOutput()
		require.NotContains(t, []int{exitUsage, exitNotFound, exitFindings, exitAway}, child.ProcessState.ExitCode(), "%s", told)
		if err != nil {
			killed++
		}
		d.run("convert", "--yes", "--stall-threshold", "0s").done()
		requireConverted(t, b)
	}
	require.Greater(t, killed, 10)
}

// inDatabase returns a URI with a database in its path.
func inDatabase(t *testing.T, uri, database string) string {
	t.Helper()
	u := mustParse(t, uri)
	u.Path = "/" + database
	return u.String()
}
