package transfer_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// sluice lets the first commands of a client through, and holds the others back until it
// is opened.
type sluice struct {
	mu       sync.Mutex
	pass     int
	passed   []string
	values   []any // of the callers' contexts
	written  int   // documents
	open     chan struct{}
	onRead   func()                // called after each read, which all pass
	together map[int]chan struct{} // closed when as many commands have passed
}

type callerKey struct{}

// newSluice returns a sluice that is open.
func newSluice() *sluice {
	s := &sluice{}
	s.reset(1000)
	return s
}

// reset lets n commands through.
// The given pairs of commands, counted from 1, pass only together.
func (s *sluice) reset(n int, pairs ...int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass, s.passed, s.values, s.written, s.open = n, nil, nil, 0, make(chan struct{})
	s.together = map[int]chan struct{}{}
	for _, second := range pairs {
		s.together[second] = make(chan struct{})
	}
}

func (s *sluice) options() *options.ClientOptions {
	return options.Client().SetMonitor(&event.CommandMonitor{Started: s.started, Succeeded: s.succeeded})
}

func (s *sluice) started(ctx context.Context, e *event.CommandStartedEvent) {
	switch e.CommandName {
	case "insert", "update", "find", "findAndModify":
	default:
		return
	}
	s.mu.Lock()
	if s.onRead != nil && e.CommandName == "find" {
		s.mu.Unlock()
		return
	}
	if s.pass == 0 {
		open := s.open
		s.mu.Unlock()
		<-open
		s.mu.Lock()
	} else {
		s.pass--
	}
	s.passed, s.values = append(s.passed, e.CommandName), append(s.values, ctx.Value(callerKey{}))
	n := len(s.passed)
	first := s.together[n+1]
	if second := s.together[n]; second != nil {
		close(second)
	}
	s.mu.Unlock()
	if first != nil {
		<-first
	}
}

func (s *sluice) succeeded(_ context.Context, e *event.CommandSucceededEvent) {
	s.mu.Lock()
	onRead := s.onRead
	s.mu.Unlock()
	if onRead != nil && e.CommandName == "find" {
		onRead()
	}
	if e.CommandName == "insert" || e.CommandName == "update" {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.written += int(e.Reply.Lookup("n").Int32())
	}
}

// soFar returns the commands that have passed, and the values of their contexts.
func (s *sluice) soFar() (commands []string, values []any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.passed...), append([]any{}, s.values...)
}

// documents returns how many documents were written.
func (s *sluice) documents() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written
}

// A transfer alone costs six commands, and one more where its fences are read first:
// claim, prepares, pays and record side by side, clears, finish.
// They write eight documents.
// An answer at the commit needs two of them, the default one four, which are three waits.
func TestTransferCostsSixCommands(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	writes := []string{"insert", "update", "update", "update", "update", "update"}
	for name, row := range map[string]struct {
		at       []transfer.Option
		answered int // commands before the answer
		awaited  int // documents written by then
	}{
		"at the commit":  {[]transfer.Option{transfer.WithReturnAt(transfer.AtCommit)}, 2, 3},
		"when settled":   {[]transfer.Option{transfer.WithReturnAt(transfer.AtSettled)}, 4, 5},
		"at the success": {[]transfer.Option{transfer.WithReturnAt(transfer.AtSuccess)}, 6, 8},
	} {
		s := newSluice()
		db := b.Through(s.options())
		remembers, forgets := b.NewCoordinator(db, row.at...), b.NewCoordinator(db, append(row.at, transfer.WithFenceCache(0))...)
		for _, c := range []*transfer.Coordinator{remembers, forgets} {
			require.NoError(t, c.Setup(t.Context())) // it learns about the deployment
		}
		for i, c := range []*transfer.Coordinator{remembers, remembers, forgets, forgets} {
			reads := 1
			if i == 1 {
				reads = 0 // the first one has read the fences
			}
			s.reset(reads+row.answered, reads+4) // the record comes before the pays are answered, or the other way round
			id := fmt.Sprint(name, " ", i)
			rec, err := c.Transfer(context.WithValue(t.Context(), callerKey{}, "me"), bank.Move(id, "a", "b", 1))
			require.NoError(t, err)
			require.True(t, rec.State.Decided())
			want := slices.Concat([]string{"find"}[:reads], writes)
			commands, values := s.soFar()
			require.Equal(t, want[:reads+row.answered], commands, name)
			for _, value := range values {
				require.Equal(t, "me", value, "whoever traces a command finds the caller's values")
			}
			require.Equal(t, row.awaited, s.documents(), name)
			close(s.open)
			_, err = c.Wait(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, 8, s.documents())
			_, values = s.soFar()
			for _, value := range values[reads+row.answered:] {
				require.Nil(t, value, "the call is over")
			}
		}
	}
	b.CheckBooks(bank.Balances(100, 0))
}
