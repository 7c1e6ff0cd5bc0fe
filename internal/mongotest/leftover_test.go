package mongotest_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/mongotest"
)

// endVariable names the end that a child process should come to.
// It is set in child processes only.
const endVariable = "MONGOTEST_END"

// However a test binary ends, it leaves no server and no data.
// Go runs no deferred calls in any of these cases.
func TestNothingIsLeftBehind(t *testing.T) {
	for _, end := range []string{"panic", "exit", "SIGKILL"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			child := exec.Command(os.Args[0], "-test.run=^TestEndOfChild$")
			child.Env = append(os.Environ(), "MONGODB_URI=", endVariable+"="+end)
			stdin, err := child.StdinPipe()
			require.NoError(t, err)
			stdout, err := child.StdoutPipe()
			require.NoError(t, err)
			var stderr bytes.Buffer
			child.Stderr = &stderr
			require.NoError(t, child.Start())
			t.Cleanup(func() {
				// Both fail if the test went well.
				_, _ = child.Process.Kill(), child.Wait()
				if t.Failed() {
					t.Logf("the child said: %s", stderr.Bytes())
				}
			})

			uri, err := bufio.NewReader(stdout).ReadString('\n')
			require.NoError(t, err)
			traces := tracesOf(t, strings.TrimSpace(uri))
			require.Error(t, traces.gone(), "the server has to be there before the end")
			if end == "SIGKILL" {
				require.NoError(t, child.Process.Kill())
			}
			require.NoError(t, stdin.Close()) // The child comes to its end now.
			require.Error(t, child.Wait())
			require.Eventually(t, func() bool { return traces.gone() == nil }, 30*time.Second, 10*time.Millisecond)
		})
	}
}

// TestEndOfChild is what the child processes of TestNothingIsLeftBehind run.
func TestEndOfChild(*testing.T) {
	end := os.Getenv(endVariable)
	if end == "" {
		return // There is nothing to test: this is not a child process.
	}
	fmt.Println(mongotest.URI())
	_, _ = bufio.NewReader(os.Stdin).ReadByte() // It fails when the parent wants the end.
	switch end {
	case "panic":
		panic("as the parent wants it")
	case "exit":
		os.Exit(3)
	case "SIGKILL":
		select {} // The signal is on its way.
	}
}

// traces are what a server leaves on a machine if no process cleans up.
type traces struct {
	address string // where it listens
	folder  string // where its data is; on another machine, if it runs in a container
}

// tracesOf asks a running server for its traces.
func tracesOf(t *testing.T, uri string) traces {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Disconnect(t.Context())) }()
	var reply struct {
		Parsed struct {
			Storage struct {
				DBPath string `bson:"dbPath"`
			} `bson:"storage"`
		} `bson:"parsed"`
	}
	require.NoError(t, client.Database("admin").RunCommand(t.Context(), bson.D{{Key: "getCmdLineOpts", Value: 1}}).Decode(&reply))
	return traces{
		address: options.Client().ApplyURI(uri).Hosts[0],
		folder:  reply.Parsed.Storage.DBPath,
	}
}

// gone returns an error if anything is still there.
// A process that is killed listens until it is dead.
func (t traces) gone() error {
	if conn, err := net.Dial("tcp", t.address); err == nil {
		return errors.Join(errors.New("something still listens on "+t.address), conn.Close())
	}
	if _, err := os.Stat(t.folder); err == nil {
		return errors.New(t.folder + " is still there")
	}
	return nil
}
