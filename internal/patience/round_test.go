package patience

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Those who ask while a round is under way share the next one, and each gets its own
// answer.
func TestRounds(t *testing.T) {
	t.Parallel()
	const many = 100
	var (
		performed atomic.Int64
		asking    sync.WaitGroup
		gate      = make(chan struct{})
		begun     = make(chan struct{})
	)
	r := &rounds[int, int]{perform: func(_ context.Context, asked []int) ([]int, error) {
		if performed.Add(1) == 1 {
			close(begun)
			<-gate
		}
		answers := make([]int, len(asked))
		for i, n := range asked {
			answers[i] = n * n
		}
		return answers, nil
	}}
	ask := func(n int) {
		answer, err := r.ask(t.Context(), n)
		if assert.NoError(t, err) {
			assert.Equal(t, n*n, answer)
		}
	}
	asking.Go(func() { ask(0) })
	<-begun
	joined := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.next == nil {
			return 0
		}
		return len(r.next.asked)
	}
	for n := range many {
		asking.Go(func() { ask(n) })
	}
	require.Eventually(t, func() bool { return joined() == many }, time.Minute, time.Millisecond)
	close(gate)
	asking.Wait()
	require.EqualValues(t, 2, performed.Load())
	require.Nil(t, r.next)
}

// All who share a round get its error.
// Who no longer waits gets that of its context, and the others their answers.
func TestRoundFails(t *testing.T) {
	t.Parallel()
	failure := errors.New("away")
	r := &rounds[int, int]{perform: func(context.Context, []int) ([]int, error) { return nil, failure }}
	_, err := r.ask(t.Context(), 1)
	require.ErrorIs(t, err, failure)

	begun, gate := make(chan struct{}), make(chan struct{})
	r.perform = func(_ context.Context, asked []int) ([]int, error) {
		close(begun)
		<-gate
		return asked, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	var first sync.WaitGroup
	first.Go(func() {
		answer, err := r.ask(ctx, 7)
		if err == nil { // it has performed the round, and may have the answer
			assert.Equal(t, 7, answer)
			return
		}
		assert.ErrorIs(t, err, context.Canceled)
	})
	<-begun
	cancel()
	r.mu.Lock()
	r.next = &round[int, int]{asked: []int{0}, done: make(chan struct{})} // somebody else's, who never begins it
	r.mu.Unlock()
	_, err = r.ask(ctx, 8)
	require.ErrorIs(t, err, context.Canceled)
	close(gate)
	first.Wait()
}
