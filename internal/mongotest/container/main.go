// Command container runs a mongod in a Docker container until its standard input ends.
//
//	container image command [argument ...]
//
// It prints the mongod's URI on one line.
// The process that reads it has to initiate the replica set.
// However that process ends, the operating system closes the pipe to the standard input,
// and the container is removed.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

const (
	// readyLimit is how long the mongod may take to start, once its image is there.
	readyLimit = time.Minute
	// endLimit is how long the rest may take once the reader is gone.
	// It also ends a client that hangs.
	endLimit = 20 * time.Second
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: container image command [argument ...]")
		os.Exit(2)
	}
	// If the reader is gone, no process reads what the removal logs.
	// Without this, the first line would end the program.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // An error ends the input as well.
		stop()
	}()
	context.AfterFunc(ctx, func() {
		time.AfterFunc(endLimit, func() {
			fmt.Fprintln(os.Stderr, "the engine does not answer")
			os.Exit(1)
		})
	})
	if err := run(ctx, os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run keeps a container running until the context ends.
func run(ctx context.Context, image string, command []string) (err error) {
	container, err := testcontainers.Run(ctx, image,
		testcontainers.WithCmd(command...),
		testcontainers.WithExposedPorts("27017/tcp"),
		testcontainers.WithWaitStrategy(wait.ForLog("Waiting for connections").WithStartupTimeout(readyLimit)),
	)
	// There may be a container even after an error, and ctx may have ended.
	// The container must be removed all the same.
	defer func() {
		err = errors.Join(err, testcontainers.TerminateContainer(container, testcontainers.StopTimeout(0)))
	}()
	if err != nil {
		return err
	}
	address, err := container.PortEndpoint(ctx, "27017/tcp", "")
	if err != nil {
		return err
	}
	// The address that the member has for itself means nothing outside: a client must not
	// follow it.
	if _, err := fmt.Fprintf(os.Stdout, "mongodb://%s/?directConnection=true\n", address); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
