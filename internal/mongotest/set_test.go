package mongotest_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/mongotest"
)

// A set fails over when its primary is killed, paused or steps down, and takes the member
// back.
// Each write that a majority has stored and that was answered is there at the end.
// Afterwards nothing is left of the set.
func TestSet(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	set, err := mongotest.StartSet(ctx, 3)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, set.Stop()) })
	// A client notices a member that says nothing after these two times.
	client, err := mongo.Connect(options.Client().ApplyURI(set.URI()).SetConnectTimeout(time.Second).SetHeartbeatInterval(time.Second / 2))
	require.NoError(t, err)
	written := client.Database("set").Collection("written")
	write := func() {
		_, err := written.InsertOne(ctx, bson.D{})
		require.NoError(t, err)
	}
	write()

	hurt := map[string]struct {
		hurt, heal func(primary int) error
	}{
		"killed": {
			func(primary int) error { return set.Kill(ctx, primary) },
			func(primary int) error { return set.Restart(ctx, primary) },
		},
		"paused": {set.Pause, set.Resume},
		"paused, killed": {
			func(primary int) error {
				require.NoError(t, set.Pause(primary))
				return set.Kill(ctx, primary)
			},
			func(primary int) error { return set.Restart(ctx, primary) },
		},
		"stepped down": {
			func(int) error { return set.StepDown(ctx) },
			func(int) error { return nil },
		},
	}
	writes := int64(1)
	folder := tracesOf(t, "mongodb://"+set.Hosts()[0]+"/?directConnection=true").folder
	for name, test := range hurt {
		before, err := set.Primary(ctx)
		require.NoError(t, err)
		require.NoError(t, test.hurt(before), name)
		start := time.Now()
		require.Eventually(t, func() bool {
			now, err := set.Primary(ctx)
			return err == nil && now != before
		}, 20*time.Second, 10*time.Millisecond, "%s: nobody else becomes the primary", name)
		t.Logf("%s: failed over in %v", name, time.Since(start))
		write()
		writes++
		require.NoError(t, test.heal(before), name)
	}
	n, err := written.CountDocuments(ctx, bson.D{})
	require.NoError(t, err)
	require.Equal(t, writes, n)

	require.NoError(t, client.Disconnect(ctx))
	require.NoError(t, set.Stop())
	for _, host := range set.Hosts() {
		require.NoError(t, traces{address: host, folder: folder}.gone())
	}
}

// A test binary that dies leaves nothing of a set, not even a paused member.
func TestNoSetIsLeftBehind(t *testing.T) {
	t.Parallel()
	child := exec.Command(os.Args[0], "-test.run=^TestEndOfSet$")
	child.Env = append(os.Environ(), endVariable+"=set")
	stdout, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	// Both fail if the test went well.
	t.Cleanup(func() { _, _ = child.Process.Kill(), child.Wait() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	hosts := strings.Split(strings.TrimSpace(line), ",")
	require.Len(t, hosts, 2)
	folder := filepath.Dir(filepath.Dir(tracesOf(t, "mongodb://"+hosts[1]+"/?directConnection=true").folder))
	require.DirExists(t, folder)

	require.NoError(t, child.Process.Kill())
	for _, host := range hosts {
		require.Eventually(t, func() bool { return traces{address: host, folder: folder}.gone() == nil }, 30*time.Second, 10*time.Millisecond)
	}
}

// TestEndOfSet is what the child process of TestNoSetIsLeftBehind runs.
func TestEndOfSet(t *testing.T) {
	if os.Getenv(endVariable) != "set" {
		return // There is nothing to test: this is not a child process.
	}
	set, err := mongotest.StartSet(t.Context(), 2)
	require.NoError(t, err)
	require.NoError(t, set.Pause(0))
	fmt.Println(strings.Join(set.Hosts(), ","))
	select {} // The signal is on its way.
}
