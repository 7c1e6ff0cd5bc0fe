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
	ended  chan struct{} // closed when it has ended and all that it reported is taken down
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
		_ = p.cmd.Wait() // ProcessState has how it ended.
	}()
	if err := json.NewEncoder(p.stdin).Encode(j); err != nil {
		return nil, errors.Join(err, p.kill())
	}
	return p, nil
}

// kill ends the process without a warning, also when it is stopped.
func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	<-p.ended
	if err != nil {
		return fmt.Errorf("a worker had ended with %s: %s", p.cmd.ProcessState, lastOf(p.stderr.Bytes()))
	}
	return nil
}

func (p *process) signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// end tells the process to end, and says how it ended if that was not well.
func (p *process) end() error {
	_ = p.stdin.Close() // It fails only if the process is dead, and that shows below.
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

// lastOf returns the end of what a process said.
func lastOf(text []byte) []byte {
	const most = 16 << 10
	return text[max(0, len(text)-most):]
}

// slot is a place for one worker after another.
type slot struct {
	job     job
	process *process
}

// start starts the slot's next worker, which asks again what the last one was not answered.
func (s *slot) start(journal *journal) error {
	process, err := startProcess(s.job, journal)
	if err != nil {
		return fmt.Errorf("start worker %d: %w", s.job.Slot, err)
	}
	s.process = process
	return nil
}

// replace starts another worker in the place of one that was killed.
func (s *slot) replace(journal *journal) error {
	if err := s.process.kill(); err != nil {
		return err
	}
	s.job.Again = journal.unanswered(fmt.Sprintf("%d-%d-", s.job.Slot, s.job.Life))
	s.job.Life++
	return s.start(journal)
}
