package bank

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/mongotest"
)

// processLimit is how long a process may work for a test, which has its own limits. It
// keeps one that nobody has ended from living for ever.
const processLimit = 30 * time.Minute

// Process is another process, which works for a test.
type Process struct {
	t     *testing.T
	name  string
	cmd   *exec.Cmd
	stdin io.Closer
}

// StartProcess starts a process that runs one test of this program, with some environment
// more. That test works until [UntilInputEnds].
func StartProcess(t *testing.T, test, name string, environment ...string) *Process {
	t.Helper()
	var output bytes.Buffer
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$", "-test.timeout="+processLimit.String())
	cmd.Env = append(append(os.Environ(), "MONGODB_URI="+mongotest.URI()), environment...)
	cmd.Stdout, cmd.Stderr = &output, &output
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_, _ = cmd.Process.Kill(), cmd.Wait() // Both fail if the test went well.
		if t.Failed() {
			t.Logf("the process %s said: %s", name, output.Bytes())
		}
	})
	return &Process{t, name, cmd, stdin}
}

// UntilInputEnds returns the context of the work that a process does for another one. It
// ends with the standard input: the other one has asked for it, or has ended itself.
func UntilInputEnds(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	return ctx
}

// End ends the process, and requires that it ended well. One that hangs says where.
func (p *Process) End() {
	p.t.Helper()
	require.NoError(p.t, p.stdin.Close())
	hangs := time.AfterFunc(eventually, func() { _ = p.cmd.Process.Signal(syscall.SIGQUIT) })
	defer hangs.Stop()
	require.NoError(p.t, p.cmd.Wait(), "the process %s", p.name)
}

// Kill kills the process where it is.
func (p *Process) Kill() {
	p.t.Helper()
	p.Signal(syscall.SIGKILL)
	require.Error(p.t, p.cmd.Wait())
}

// Signal sends a signal to the process.
func (p *Process) Signal(signal syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(signal))
}
