package processes

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// The environment of a process that works for a test: its database, its name, and what it
// does.
const (
	envDatabase = "TRANSFER_TEST_PROCESS_DATABASE"
	envName     = "TRANSFER_TEST_PROCESS_NAME"
	envDuty     = "TRANSFER_TEST_PROCESS_DUTY"
)

// The duties of a process.
const (
	works = "run"  // it calls Run
	moves = "move" // it moves 1 from a to b, and back, again and again, for many callers
)

// callers is how many callers a process that moves money has.
const callers = 64

// TestProcess is run by the processes of the other tests.
// It ends with its standard input.
func TestProcess(t *testing.T) {
	database := os.Getenv(envDatabase)
	if database == "" {
		return // There is nothing to test: this is not a process that another test has started.
	}
	name := os.Getenv(envName)
	c, err := transfer.NewCoordinator(mongotest.Client(t).Database(database), transfer.WithOwner(name))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin) // It ends when the parent asks for it, or has ended itself.
	}()
	if os.Getenv(envDuty) == works {
		require.NoError(t, c.Run(ctx))
	} else {
		move(ctx, c, name)
	}
	require.NoError(t, c.Close(t.Context()))
}

// move moves 1 from a to b, or back, for each caller again and again.
func move(ctx context.Context, c *transfer.Coordinator, name string) {
	var all sync.WaitGroup
	for i := range callers {
		from, to := "a", "b"
		if i%2 == 1 {
			from, to = to, from
		}
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				_, _ = c.Transfer(context.WithoutCancel(ctx), bank.Move(fmt.Sprint(name, "-", i, "-", n), from, to, 1))
			}
		})
	}
	all.Wait()
}

// process is one that works for a test.
type process struct {
	t     *testing.T
	name  string
	cmd   *exec.Cmd
	stdin io.Closer
}

// start starts a process that works for the bank.
func start(b *bank.Bank, name, duty string) *process {
	b.T.Helper()
	var output bytes.Buffer
	cmd := exec.Command(os.Args[0], "-test.run=^TestProcess$")
	cmd.Env = append(os.Environ(), "MONGODB_URI="+mongotest.URI(), envDatabase+"="+b.DB.Name(), envName+"="+name, envDuty+"="+duty)
	cmd.Stdout, cmd.Stderr = &output, &output
	stdin, err := cmd.StdinPipe()
	require.NoError(b.T, err)
	require.NoError(b.T, cmd.Start())
	b.T.Cleanup(func() {
		_, _ = cmd.Process.Kill(), cmd.Wait() // Both fail if the test went well.
		if b.T.Failed() {
			b.T.Logf("the process %s said: %s", name, output.Bytes())
		}
	})
	return &process{b.T, name, cmd, stdin}
}

// end ends the process, and requires that it ended well.
func (p *process) end() {
	p.t.Helper()
	require.NoError(p.t, p.stdin.Close())
	require.NoError(p.t, p.cmd.Wait(), "the process %s", p.name)
}

// kill kills the process where it is.
func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	require.Error(p.t, p.cmd.Wait())
}

func (p *process) signal(signal syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(signal))
}

// awaitMoves waits until a process has moved money, for a while.
func awaitMoves(b *bank.Bank, n int64) {
	b.T.Helper()
	require.Eventually(b.T, func() bool {
		done, err := b.Count(b.T.Context(), transfer.Query{States: []transfer.State{transfer.StateSuccess}})
		return err == nil && done >= n
	}, eventually, 10*time.Millisecond)
}

// eventually is longer than anything takes here on a busy machine.
const eventually = 2 * time.Minute

// unfinished returns how many transfers are in progress, or left.
func unfinished(b *bank.Bank) int64 {
	b.T.Helper()
	n, err := b.Count(b.T.Context(), transfer.Query{Unfinished: true})
	require.NoError(b.T, err)
	return n
}
