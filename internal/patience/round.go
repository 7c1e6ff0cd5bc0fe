package patience

import (
	"context"
	"sync"

	"github.com/mongotransfer/transfer/internal/wire"
)

// rounds gather what many ask at once. One round is under way at a time, and those who
// ask meanwhile share the next one. The workers bound how many ask.
type rounds[Q, A any] struct {
	// perform answers each question, in their order, or none.
	perform func(ctx context.Context, asked []Q) ([]A, error)

	turn sync.Mutex // held by the round that is under way
	mu   sync.Mutex
	next *round[Q, A] // nil while nobody waits
}

// round is one of them.
type round[Q, A any] struct {
	asked   []Q
	answers []A
	err     error
	done    chan struct{} // closed when it is answered
}

// ask asks in the next round. It waits no longer than ctx lets it, except that the caller
// who has begun the round, and performs it for the others, waits for its commands.
func (r *rounds[Q, A]) ask(ctx context.Context, question Q) (answer A, err error) {
	shared, place := r.join(question)
	if place == 0 {
		r.run(ctx, shared)
	}
	select {
	case <-shared.done:
	case <-ctx.Done():
		return answer, ctx.Err()
	}
	if shared.err != nil {
		return answer, shared.err
	}
	return shared.answers[place], nil
}

// join adds a question to the next round, and returns its place there.
func (r *rounds[Q, A]) join(question Q) (shared *round[Q, A], place int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = &round[Q, A]{done: make(chan struct{})}
	}
	r.next.asked = append(r.next.asked, question)
	return r.next, len(r.next.asked) - 1
}

// run performs a round when its turn has come.
func (r *rounds[Q, A]) run(ctx context.Context, shared *round[Q, A]) {
	r.turn.Lock()
	defer r.turn.Unlock()
	r.mu.Lock()
	r.next = nil
	r.mu.Unlock()
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), wire.CommandLimit)
	defer cancel()
	shared.answers, shared.err = r.perform(limited, shared.asked)
	close(shared.done)
}
