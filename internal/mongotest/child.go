package mongotest

import (
	"fmt"
	"io"
	"os/exec"
	"time"
)

// stopLimit is how long a child may take to clean up after its standard input is closed.
const stopLimit = 30 * time.Second

// child is a process that cleans up and ends when its standard input ends.
// Only this process holds the other end of that pipe.
// The operating system closes the pipe however this process ends, so nothing is left
// behind after a SIGKILL either.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	ended chan struct{} // closed once the process has ended and its output is complete
}

func startChild(cmd *exec.Cmd) (*child, error) {
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	return runChild(cmd, stdin)
}

// runChild starts a child whose standard input is already set.
// Closing stdin ends that input.
func runChild(cmd *exec.Cmd, stdin io.Closer) (*child, error) {
	detach(cmd)
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, stdin: stdin, ended: make(chan struct{})}
	go func() {
		// The error says that the status isn't 0, which ProcessState says as well.
		_ = cmd.Wait()
		close(c.ended)
	}()
	return c, nil
}

// stop makes the child clean up, and waits for its end.
// It can be called after the child has ended.
func (c *child) stop() error {
	_ = c.stdin.Close() // It fails only if it is already closed.
	select {
	case <-c.ended:
		return nil
	case <-time.After(stopLimit):
	}
	kill(c.cmd)
	<-c.ended
	return fmt.Errorf("%s did not end within %v and was killed", c.cmd.Path, stopLimit)
}
