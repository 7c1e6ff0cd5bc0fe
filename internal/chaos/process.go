package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// process is a worker as its parent sees it.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr bytes.Buffer
	// ended is closed when the process has ended and its whole report is recorded.
	ended chan struct{}
}

// startProcess starts this program once more as a worker.
func startProcess(j job, journal *journal) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(program), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), workerVariable+"=1")
	p.cmd.Stderr = &p.stderr
	separate(p.cmd)
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		journal.read(output)
		_ = p.cmd.Wait() // ProcessState holds how it ended.
	}()
	if err := json.NewEncoder(p.stdin).Encode(j); err != nil {
		return nil, errors.Join(err, p.kill())
	}
	return p, nil
}

// kill ends the process without a warning, even while it is stopped.
func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	<-p.ended
	if err != nil {
		return fmt.Errorf("a worker had ended with %s: %s", p.cmd.ProcessState, lastOf(p.stderr.Bytes()))
	}
	return nil
}

func (p *process) signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// end asks the process to end, and returns an error if it did not end in good order.
func (p *process) end() error {
	_ = p.stdin.Close() // It fails only if the process is dead, which shows below.
	timer := time.NewTimer(3 * endLimit)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		return errors.Join(errors.New("a worker did not end"), p.kill())
	}
	if !p.cmd.ProcessState.Success() {
		return fmt.Errorf("a worker ended with %s: %s", p.cmd.ProcessState, lastOf(p.stderr.Bytes()))
	}
	return nil
}

// lastOf returns the end of what a process wrote.
func lastOf(text []byte) []byte {
	const most = 16 << 10
	return text[max(0, len(text)-most):]
}

// slot is the place of one worker after another.
type slot struct {
	job     job
	process *process
}

// start starts the slot's next worker, which repeats the requests for which the last one
// got no answer.
func (s *slot) start(journal *journal) error {
	process, err := startProcess(s.job, journal)
	if err != nil {
		return fmt.Errorf("start worker %d: %w", s.job.Slot, err)
	}
	s.process = process
	return nil
}

// replace kills the slot's worker and starts the next one.
func (s *slot) replace(journal *journal) error {
	if err := s.process.kill(); err != nil {
		return err
	}
	s.job.Again = journal.unanswered(fmt.Sprintf("%d-%d-", s.job.Slot, s.job.Life))
	s.job.Life++
	return s.start(journal)
}
