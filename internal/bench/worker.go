package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// workerVariable is the environment variable that makes this program a worker.
const workerVariable = "TRANSFER_BENCH_WORKER"

// job is what a worker reads first from its standard input.
// The worker answers when it is ready.
// Then it reads rounds, plays each, and answers it.
// When the input ends, so does the worker.
type job struct {
	Number            int // of the worker, from 1 on
	URI, Database     string
	Contender         string
	Accounts          int
	Touched           int    // see deployment
	Account, Transfer []byte // the patterns
}

// answer is what a worker reports about a round.
type answer struct {
	Samples samples
	Failure string
}

// work runs a worker, from its start to its end.
func work(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	input, output := json.NewDecoder(in), json.NewEncoder(out)
	var j job
	if err := input.Decode(&j); err != nil {
		return fmt.Errorf("a worker got no job: %w", err)
	}
	d := &deployment{uri: j.URI, touched: j.Touched, patterns: patterns{newPattern(bson.Raw(j.Account)), newPattern(bson.Raw(j.Transfer))}}
	s, err := join(ctx, d, j, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.mover.close(ctx), s.bank.client.Disconnect(ctx)) }()
	if err := s.warmUp(ctx, j.Number); err != nil {
		return err
	}
	if err := output.Encode(answer{}); err != nil {
		return err
	}
	for {
		var r round
		if err := input.Decode(&r); err != nil {
			return notEnd(err)
		}
		var a answer
		if a.Samples, err = s.play(ctx, r); err != nil {
			a.Failure = err.Error()
		}
		if err := output.Encode(a); err != nil {
			return err
		}
	}
}

// notEnd drops the error that says that everything was read.
func notEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// worker is another process that plays, as this process sees it.
type worker struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	input  *json.Encoder
	output *json.Decoder
	stderr bytes.Buffer
	end    func() error
}

func startWorker(program string, j job) (_ *worker, err error) {
	w := &worker{cmd: exec.Command(program)}
	w.end = sync.OnceValue(w.ended)
	w.cmd.Env = append(os.Environ(), workerVariable+"=1")
	w.cmd.Stderr = &w.stderr
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.input, w.output = json.NewEncoder(w.stdin), json.NewDecoder(stdout)
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	err = w.input.Encode(j)
	if err == nil {
		err = w.output.Decode(&answer{})
	}
	if err != nil {
		return nil, fmt.Errorf("a worker does not get ready: %w", errors.Join(err, w.end()))
	}
	return w, nil
}

func (w *worker) pid() int { return w.cmd.Process.Pid }

// play makes the worker play its part of a round.
// A worker whose round is cut off is of no more use.
func (w *worker) play(ctx context.Context, r round) (samples, error) {
	// It fails only if the worker has ended.
	kill := context.AfterFunc(ctx, func() { _ = w.cmd.Process.Kill() })
	defer kill()
	var a answer
	err := w.input.Encode(r)
	if err == nil {
		err = w.output.Decode(&a)
	}
	switch {
	case ctx.Err() != nil:
		return samples{}, ctx.Err()
	case err != nil:
		return samples{}, fmt.Errorf("a worker gives no answer: %w", errors.Join(err, w.end()))
	case a.Failure != "":
		return samples{}, fmt.Errorf("a worker: %s", a.Failure)
	}
	return a.Samples, nil
}

// ended asks the worker to end, and returns an error if it did not end in good order.
func (w *worker) ended() error {
	_ = w.stdin.Close() // It fails only if the worker is dead, which shows below.
	if err := w.cmd.Wait(); err != nil {
		return fmt.Errorf("a worker ended badly: %w: %s", err, w.stderr.Bytes())
	}
	return nil
}
