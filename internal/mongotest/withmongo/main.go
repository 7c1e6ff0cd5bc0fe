// Command withmongo runs a command with a MongoDB server: it starts one, sets MONGODB_URI to its connection string, runs the
// command, stops the server, and ends with the command's exit code.
//
//	go run ./internal/mongotest/withmongo go test ./...
//
// So all test binaries share one server, instead of one each. If MONGODB_URI is set already, that server is used. Package
// mongotest tells where else the server comes from, and how to ask for a version.
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

// withServer runs the command with a server and returns its exit code, or 1 if there is none.
func withServer(name string, args ...string) (code int) {
	server, err := mongotest.Start(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}()
	fmt.Fprintln(os.Stderr, "withmongo: MongoDB", server.Version())
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

// run runs the command to its end, also when this process is asked to end: the server has to be there until then. Ctrl-C in
// a terminal reaches the command as well, a SIGTERM doesn't and is passed on.
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
				_ = cmd.Process.Signal(received) // It fails only if the command has just ended.
			}
		}
	}
}
