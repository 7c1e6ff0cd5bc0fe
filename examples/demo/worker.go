package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	// workerVariable is the environment variable that makes this program a worker.
	// It holds the server's URI, which may contain a password and is therefore not an
	// argument.
	workerVariable = "TRANSFER_DEMO_WORKER"
	// workerLimit is how long a worker may take to reach its stop point.
	workerLimit = 30 * time.Second
)

// stopPoint is where a worker stops in the middle of a transfer, in words that the reader
// sees.
type stopPoint string

const (
	prepared stopPoint = "had prepared both accounts"
	recorded stopPoint = "had recorded the commit"
)

// job is what a worker reads from its standard input.
type job struct {
	Database string
	StopAt   stopPoint
	Order    order
}

// killWorker starts this program again as a worker, waits until it has reached its stop
// point, and kills it.
// It returns how the process ended, in the words of the operating system.
func killWorker(ctx context.Context, uri string, j job) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, workerLimit)
	defer cancel()
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	var trouble strings.Builder
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), workerVariable+"="+uri)
	cmd.Stderr = &trouble
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	sent := json.NewEncoder(stdin).Encode(j)
	line, read := bufio.NewReader(stdout).ReadString('\n')
	// This is a SIGKILL, which a process can't see coming.
	killed := cmd.Process.Kill()
	// The error only says that it was killed, which ProcessState says as well.
	_ = cmd.Wait()
	if err := errors.Join(sent, read, killed); err != nil {
		return "", fmt.Errorf("the worker did not get to its stop: %w\n%s", err, trouble.String())
	}
	if line != string(j.StopAt)+"\n" {
		return "", fmt.Errorf("the worker should have stopped when it %s, and says: %s", j.StopAt, line)
	}
	return cmd.ProcessState.String(), nil
}

// workerMain runs the worker.
// The parent kills it before it ends, so it returns an error in any case.
func workerMain() error {
	var j job
	if err := json.NewDecoder(os.Stdin).Decode(&j); err != nil {
		return fmt.Errorf("the worker got no job: %w", err)
	}
	if err := work(context.Background(), os.Getenv(workerVariable), j); err != nil {
		return err
	}
	return errors.New("the transfer came to its end")
}

// work makes the transfer as any user of the library does, with a client that stops the
// process on the way.
func work(ctx context.Context, uri string, j job) error {
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetMonitor(stopper(j.StopAt)))
	if err != nil {
		return err
	}
	coord, err := newCoordinator(database(client, j.Database), "worker")
	if err != nil {
		return err
	}
	_, err = coord.Transfer(ctx, j.Order.request())
	return err
}

// stopper returns a monitor that stops the worker at its stop point.
// The driver calls a monitor in the goroutine that runs the command.
// So the worker stops after the server has performed the command, and before the library
// sees the reply.
// The money is paid in beside the record, and would often be first: the worker holds it
// back.
func stopper(at stopPoint) *event.CommandMonitor {
	// request is the ID of the command that reaches the stop point, once it is sent.
	var request, changes atomic.Int64
	never := make(chan struct{})
	return &event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if reaches(at, e) {
				request.CompareAndSwap(0, e.RequestID)
			}
			if at == recorded && reaches(prepared, e) && changes.Add(1) > 1 {
				<-never
			}
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			if id := request.Load(); id == 0 || e.RequestID != id {
				return
			}
			fmt.Println(at)
			// The kill comes while this waits.
			// If the parent dies instead, the input ends, and so does the worker.
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(1)
		},
	}
}

// reaches reports whether a command brings a transfer to the stop point.
// The first change of the accounts prepares them.
// The first change of the transfer after its insert records the commit.
func reaches(at stopPoint, e *event.CommandStartedEvent) bool {
	if e.CommandName != "update" && e.CommandName != "findAndModify" {
		return false
	}
	collection, _ := e.Command.Lookup(e.CommandName).StringValueOK()
	switch at {
	case prepared:
		return collection == "accounts"
	case recorded:
		return collection == "transfers"
	}
	return false
}
