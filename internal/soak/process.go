package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

const (
	// readyLimit is how long a process may take until it reports that it is ready.
	readyLimit = 2 * time.Minute
	// stopLimit is how long a process may take to end in good order, as its pod would
	// allow it.
	stopLimit = time.Minute
	// pollInterval is the pause before a process is asked again if it is ready.
	pollInterval = 50 * time.Millisecond
)

// slot is the place of one process of the service after another, at one address.
type slot struct {
	program, uri, address, admin, webhook string

	mu      sync.Mutex
	process *process
}

// process is one process of the service.
type process struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	ended  chan struct{}
}

func newSlot(ctx context.Context, program, uri, webhook string) (*slot, error) {
	s := &slot{program: program, uri: uri, webhook: webhook}
	for _, address := range []*string{&s.address, &s.admin} {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = listener.Close() }() // The process listens there.
		*address = listener.Addr().String()
	}
	return s, nil
}

// start starts a process and waits until it is ready.
func (s *slot) start(ctx context.Context) error {
	p := &process{cmd: exec.Command(s.program), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), "MONGODB_URI="+s.uri, "ADDR="+s.address, "ADMIN_ADDR="+s.admin, "WEBHOOK_URL="+s.webhook,
		"DATABASE="+database, "STALL_THRESHOLD="+stall.String())
	p.cmd.Stderr = &p.stderr
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go func() {
		_ = p.cmd.Wait() // ProcessState holds how it ended.
		close(p.ended)
	}()
	s.mu.Lock()
	s.process = p
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	for ctx.Err() == nil && !s.ready(ctx) {
		select {
		case <-p.ended:
			return fmt.Errorf("a process did not start: %w", p.ending())
		default:
			pause(ctx, pollInterval)
		}
	}
	return ctx.Err()
}

func (s *slot) ready(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+"/readyz", nil)
	if err != nil {
		return false
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// now returns the slot's process, or nil.
func (s *slot) now() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// kill ends the process without a warning.
func (s *slot) kill() error {
	p := s.now()
	if p == nil {
		return nil
	}
	err := p.cmd.Process.Kill()
	<-p.ended
	if errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("a process had ended: %w", p.ending())
	}
	return err
}

// end asks the process to end, and returns an error if it did not end in good order.
func (s *slot) end() error {
	p := s.now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("a process had ended: %w", p.ending())
	}
	timer := time.NewTimer(stopLimit)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		return errors.Join(errors.New("a process did not end"), s.kill())
	}
	if !p.cmd.ProcessState.Success() {
		return p.ending()
	}
	return nil
}

// revive starts another process if the slot's process has ended, and reports whether it
// had.
func (s *slot) revive(ctx context.Context) (bool, error) {
	select {
	case <-s.now().ended:
		return true, s.start(ctx)
	default:
		return false, nil
	}
}

// ending returns an error that says how a process has ended, with the end of its output.
func (p *process) ending() error {
	<-p.ended
	const most = 4 << 10
	text := p.stderr.Bytes()
	return fmt.Errorf("%s: %s", p.cmd.ProcessState, text[max(0, len(text)-most):])
}
