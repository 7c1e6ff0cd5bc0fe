package bank

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
)

// Together calls f from n goroutines at once and returns what each of them got.
func Together(n int, f func(i int) error) []error {
	var (
		all    sync.WaitGroup
		gate   = make(chan struct{})
		errors = make([]error, n)
	)
	for i := range n {
		all.Add(1)
		go func() {
			defer all.Done()
			<-gate
			errors[i] = f(i)
		}()
	}
	close(gate)
	all.Wait()
	return errors
}

// Answer is what a call returned.
type Answer struct {
	// Rec is the record.
	Rec transfer.Record
	// Err is the error.
	Err error
}

// CallAll makes n calls at once, and returns a function that waits for their
// answers.
func CallAll(n int, call func(i int) (transfer.Record, error)) func() []Answer {
	var all sync.WaitGroup
	answers := make([]Answer, n)
	for i := range n {
		all.Go(func() { answers[i].Rec, answers[i].Err = call(i) })
	}
	return func() []Answer {
		all.Wait()
		return answers
	}
}

// InBackground runs a worker and returns a function that ends it and requires that it
// ended well.
func InBackground(t *testing.T, c *transfer.Coordinator) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return func() {
		cancel()
		require.NoError(t, Within(t, done))
	}
}
