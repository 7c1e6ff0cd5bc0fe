// Command withmongo runs another command with a MongoDB server.
// It starts a server, sets MONGODB_URI to its connection string, runs the command and
// stops the server.
// It ends with the command's exit code.
//
//	go run ./internal/mongotest/withmongo go test ./...
//
// So all test binaries share one server, instead of one each.
// If MONGODB_URI is already set, that server is used.
// The documentation of package mongotest says where else the server comes from, and how
// to ask for a version.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/mongotransfer/transfer/internal/mongotest"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: withmongo command [argument ...]")
		os.Exit(2)
	}
	os.Exit(withServer(os.Args[1], os.Args[2:]...))
}

// withServer runs the command with a server, and returns the command's exit code.
// It returns 1 if there is no server, or if the command did not run or a signal ended it.
func withServer(name string, args ...string) int {
	return mongotest.WithServer(context.Background(), "withmongo", func(server *mongotest.Server) int {
		return runWith(server, name, args...)
	})
}

func runWith(server *mongotest.Server, name string, args ...string) int {
	cmd := exec.Command(name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "MONGODB_URI="+server.URI())
	if err := run(cmd); cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if code := cmd.ProcessState.ExitCode(); code >= 0 {
		return code
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, cmd.ProcessState)
	return 1
}

// run runs the command to its end, even when this process is asked to end, because the
// command needs the server until then.
// Ctrl-C in a terminal reaches the command as well.
// A SIGTERM does not, and is passed on.
func run(cmd *exec.Cmd) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			return err
		case received := <-signals:
			if received == syscall.SIGTERM {
				// It fails only if the command has just ended.
				_ = cmd.Process.Signal(received)
			}
		}
	}
}
