package collections

import (
	"context"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// MaxAsking is how many ask a server for hello at once.
// It is more than one, so that one lost answer doesn't hold up the others, and less than
// all that start together.
const MaxAsking = 4

// FailureMemory is for how long a server that has not answered hello is not asked again.
const FailureMemory = time.Second

// Turns let a few at once do something.
type Turns chan struct{}

// Acquire waits for a turn; ctx ends the wait.
// Every call that returns nil is followed by Release.
func (t Turns) Acquire(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Release gives a turn back.
func (t Turns) Release() { <-t }

// Failures remembers the latest failure for a while, so that what has just failed is not
// tried again.
type Failures struct {
	// Span is for how long a failure is remembered.
	Span time.Duration

	mu    sync.Mutex
	cause error
	at    time.Time
}

// Record remembers a failure.
func (f *Failures) Record(now time.Time, cause error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cause, f.at = cause, now
}

// Recent returns the latest failure, nil if there is none, or if it is old.
func (f *Failures) Recent(now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if age := now.Sub(f.at); age < 0 || age >= f.Span {
		return nil
	}
	return f.cause
}

// SharedCheck is a question that many may ask a server at once, until it is answered.
// Those who have waited for a turn while it failed get the same error: hundreds of
// transfers to a cluster that is away would otherwise ask it one after the other, and
// hold up those to other clusters for minutes.
type SharedCheck struct {
	// Turns are those of the callers who ask.
	Turns Turns
	// Failures has the latest one.
	Failures Failures
}

// NewSharedCheck returns a check that nobody has made yet.
func NewSharedCheck() *SharedCheck {
	return &SharedCheck{Turns: make(Turns, MaxAsking), Failures: Failures{Span: FailureMemory}}
}

// Once asks, unless another caller has passed the check meanwhile, or has failed a moment
// ago. The question itself records the failures that say something to others.
func (s *SharedCheck) Once(
	ctx context.Context, now func() time.Time, passed func() bool, ask func() error,
) error {
	if err := s.Turns.Acquire(ctx); err != nil {
		return err
	}
	defer s.Turns.Release()
	if passed() {
		return nil
	}
	if err := s.Failures.Recent(now()); err != nil {
		return err
	}
	return ask()
}

// CheckServer makes sure, once, that a collection's server can be used.
func (c *Catalog) CheckServer(ctx context.Context, handle *mongo.Collection) error {
	client := handle.Database().Client()
	if _, known := c.CheckedClients.Load(client); known {
		return nil
	}
	// Each client has turns of its own: a server that hangs keeps nobody from the others.
	own, _ := c.ServerChecks.LoadOrStore(client, NewSharedCheck())
	check, _ := own.(*SharedCheck)
	passed := func() bool {
		_, known := c.CheckedClients.Load(client)
		return known
	}
	return check.Once(ctx, c.Clock.Now, passed, func() error {
		answer, err := Hello(ctx, handle)
		if err != nil {
			if ctx.Err() == nil { // else it says nothing of the server
				check.Failures.Record(c.Clock.Now(), err)
			}
			return err
		}
		if err := answer.Supported(); err != nil {
			return err
		}
		c.CheckedClients.Store(client, answer.Routed())
		return nil
	})
}

// Routed reports whether a collection is reached through a mongos.
// Its server was checked before: see [Catalog.CheckServer].
func (c *Catalog) Routed(handle *mongo.Collection) bool {
	routed, known := c.CheckedClients.Load(handle.Database().Client())
	return known && routed == true
}
