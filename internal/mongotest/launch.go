package mongotest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// launch is one way to start a mongod of the caller's own.
type launch struct {
	// flags returns mongod's flags for a given host, besides those for its folder and its
	// address.
	flags func(host string) ([]string, error)
	// ready waits until the mongod can be used. It fails early if the process ends.
	ready func(ctx context.Context, m member, ended <-chan struct{}) error
}

// start starts a mongod on a free port, and returns once it can be used.
func (l launch) start(ctx context.Context, path string) (m member, process *child, err error) {
	err = errPortTaken
	for attempt := 0; attempt < mongodAttempts && errors.Is(err, errPortTaken); attempt++ {
		m, process, err = l.startOnce(ctx, path)
	}
	return m, process, err
}

func (l launch) startOnce(ctx context.Context, path string) (member, *child, error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return member{}, nil, err
	}
	m := memberAt(address, filepath.Join(os.TempDir(), "mongotest-"+rand.Text()))
	flags, err := l.flags(m.hostname())
	if err != nil {
		return member{}, nil, err
	}
	var output bytes.Buffer
	process, err := startChild(supervised(supervisor, path, m, flags, &output))
	if err != nil {
		return member{}, nil, fmt.Errorf("start %s: %w", path, err)
	}
	err = process.awaitReady(path, &output, func() error {
		ctx, cancel := context.WithTimeout(ctx, mongodLimit)
		defer cancel()
		return l.ready(ctx, m, process.ended)
	})
	return m, process, err
}

// awaitReady waits until the mongod that the child runs is ready.
// Otherwise it ends the child, and returns an error that says why the mongod does not
// run.
func (c *child) awaitReady(path string, output *bytes.Buffer, ready func() error) error {
	err := ready()
	if err == nil {
		return nil
	}
	stopErr := c.stop()
	if c.cmd.ProcessState.ExitCode() == exitPortTaken {
		err = errPortTaken
	}
	return fmt.Errorf("%s does not run: %w (%v)\n%s",
		path, errors.Join(err, stopErr), c.cmd.ProcessState, output.Bytes())
}
