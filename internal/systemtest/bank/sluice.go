package bank

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Sluice lets some commands of a client through, and holds the others back until it is
// opened: those of a step, or all but the first ones.
type Sluice struct {
	mu       sync.Mutex
	pass     int
	steps    []Step // that are held back
	passed   []string
	values   []any // of the callers' contexts
	written  int   // documents
	open     chan struct{}
	over     chan struct{}         // closed when commands have been held back for long enough
	waiting  bool                  // that is counted
	onRead   func()                // called after each read, which all pass
	together map[int]chan struct{} // closed when as many commands have passed
	notes    sync.Map              // requests by which a process notes that it lives
}

// CallerKey is the key of a value in a caller's context, which [Sluice.SoFar] returns.
type CallerKey struct{}

// NewSluice returns a sluice that is open.
func NewSluice() *Sluice {
	s := &Sluice{}
	s.Reset(1000)
	return s
}

// HoldBack holds back the commands that are one of some steps, and no others.
func (s *Sluice) HoldBack(steps ...Step) {
	s.Reset(math.MaxInt)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = steps
}

// Reset lets n commands through.
// The given pairs of commands, counted from 1, pass together: the first one waits for the
// second.
// It is for a test of how many commands there are.
// On a busy machine a command may be sent again.
// That is one more, and nothing waits for ever: all pass in the end, and the test sees
// it.
func (s *Sluice) Reset(n int, pairs ...int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass, s.steps, s.passed, s.values, s.written, s.open = n, nil, nil, nil, 0, make(chan struct{})
	s.over, s.waiting = make(chan struct{}), false
	s.together = map[int]chan struct{}{}
	for _, second := range pairs {
		s.together[second] = make(chan struct{})
	}
}

// Options returns the options of the client.
func (s *Sluice) Options() *options.ClientOptions {
	return options.Client().SetMonitor(&event.CommandMonitor{Started: s.started, Succeeded: s.succeeded})
}

func (s *Sluice) started(ctx context.Context, e *event.CommandStartedEvent) {
	switch e.CommandName {
	case "insert", "update", "find", "findAndModify":
	default:
		return
	}
	if to, _ := e.Command.Lookup(e.CommandName).StringValueOK(); to == processNotes {
		s.notes.Store(e.RequestID, true)
		return
	}
	s.mu.Lock()
	if s.onRead != nil && e.CommandName == "find" {
		s.mu.Unlock()
		return
	}
	switch {
	case s.holds(e.Command):
		open := s.open
		s.mu.Unlock()
		<-open
		s.mu.Lock()
	case s.pass == 0:
		open, over := s.open, s.wait()
		s.mu.Unlock()
		select {
		case <-open:
		case <-over:
		}
		s.mu.Lock()
	default:
		s.pass--
	}
	s.passed, s.values = append(s.passed, e.CommandName), append(s.values, ctx.Value(CallerKey{}))
	n := len(s.passed)
	first := s.together[n+1]
	if second := s.together[n]; second != nil {
		close(second)
	}
	if first == nil {
		s.mu.Unlock()
		return
	}
	over := s.wait()
	s.mu.Unlock()
	select {
	case <-first:
	case <-over:
	}
}

// patience is how long commands are held back at most where they are counted.
// It is counted from the first one on: each command by itself has to be sent within less,
// or it is begun anew.
const patience = 20 * time.Second

// wait returns what is closed when commands have been held back for long enough.
// The caller holds the lock.
func (s *Sluice) wait() (over chan struct{}) {
	over = s.over
	if !s.waiting {
		s.waiting = true
		time.AfterFunc(patience, func() { close(over) })
	}
	return over
}

// holds reports whether a command is of a step that is held back.
// The caller holds the lock.
func (s *Sluice) holds(command bson.Raw) bool {
	steps, _ := stepsOfCommand(command)
	return slices.ContainsFunc(s.steps, func(held Step) bool { return slices.Contains(steps, held) })
}

func (s *Sluice) succeeded(_ context.Context, e *event.CommandSucceededEvent) {
	s.mu.Lock()
	onRead := s.onRead
	s.mu.Unlock()
	if onRead != nil && e.CommandName == "find" {
		onRead()
	}
	if _, note := s.notes.LoadAndDelete(e.RequestID); note {
		return
	}
	if e.CommandName == "insert" || e.CommandName == "update" {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.written += int(e.Reply.Lookup("n").Int32())
	}
}

// SoFar returns the commands that have passed, and the values of their contexts.
func (s *Sluice) SoFar() (commands []string, values []any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.passed...), append([]any{}, s.values...)
}

// Documents returns how many documents were written.
func (s *Sluice) Documents() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written
}

// Open lets everything through.
func (s *Sluice) Open() { close(s.open) }

// OnRead has a function called after each read, which all pass then.
func (s *Sluice) OnRead(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onRead = do
}
