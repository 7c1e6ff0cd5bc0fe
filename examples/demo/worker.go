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
	// workerVariable is the environment variable that makes this program a worker. It holds the server's URI, which
	// may have a password in it and so is no argument.
	workerVariable = "TRANSFER_DEMO_WORKER"
	// workerLimit is how long a worker may take to come to its stop.
	workerLimit = 30 * time.Second
)

// stopPoint is where a worker stops in the middle of a transfer, in words for the reader.
type stopPoint string

const (
	prepared  stopPoint = "had prepared both accounts"
	committed stopPoint = "had committed"
)

// job is what a worker is told on its standard input.
type job struct {
	Database string
	StopAt   stopPoint
	Order    order
}

// killWorker starts this program once more as a worker, waits until it has stopped where it should, and kills it. It returns
// how the operating system says that the process ended.
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
	killed := cmd.Process.Kill() // SIGKILL, which a process can't see coming.
	_ = cmd.Wait()               // The error says that it was killed, which is no news: ProcessState has it.
	if err := errors.Join(sent, read, killed); err != nil {
		return "", fmt.Errorf("the worker did not get to its stop: %w\n%s", err, trouble.String())
	}
	if line != string(j.StopAt)+"\n" {
		return "", fmt.Errorf("the worker should have stopped when it %s, and says: %s", j.StopAt, line)
	}
	return cmd.ProcessState.String(), nil
}

// workerMain is the worker. It never gets to the end of its transfer, and returns what went wrong if it does.
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

// work runs the transfer as any user of the library would, on a client that stops the process on the way.
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

// stopper returns a monitor that stops the worker when the server has answered the command that the stop point names, before
// the library sees the answer: the driver calls a monitor in the goroutine that runs the command.
func stopper(at stopPoint) *event.CommandMonitor {
	var request atomic.Int64 // the command's, once it was sent
	return &event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if reaches(at, e) {
				request.CompareAndSwap(0, e.RequestID)
			}
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			if id := request.Load(); id == 0 || e.RequestID != id {
				return
			}
			fmt.Println(at)
			// The kill comes while this waits. If it is the parent that dies, the input ends, and so does the worker.
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(1)
		},
	}
}

// reaches reports whether a command is the one that brings a transfer to the stop point: the first change of accounts prepares
// them, and the first change of the transfer after its insert commits it.
func reaches(at stopPoint, e *event.CommandStartedEvent) bool {
	if e.CommandName != "update" && e.CommandName != "findAndModify" {
		return false
	}
	collection, _ := e.Command.Lookup(e.CommandName).StringValueOK()
	switch at {
	case prepared:
		return collection == "accounts"
	case committed:
		return collection == "transfers"
	}
	return false
}
