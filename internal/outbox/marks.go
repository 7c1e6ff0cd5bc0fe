package outbox

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/transition"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

const (
	// gatherTime is how long what became of events gathers before it is stored, so that
	// one command stores that of many. Nobody waits for it.
	gatherTime = 20 * time.Millisecond
	// storePause is how long a command that has failed is put off.
	storePause = 200 * time.Millisecond
	// maxMarked is how many transfers one statement marks.
	maxMarked = 512
)

// outcome is what became of an event.
type outcome uint8

const (
	delivered outcome = iota + 1
	failed            // it is tried later
	undone            // it was not begun with
)

// mark is what became of one event.
type mark struct {
	id      string
	kind    document.EventKind // "": whatever is in hand of the transfer
	by      bson.ObjectID
	since   time.Time
	outcome outcome
	alone   bool // the server has refused a statement that it was in
}

// marks are what became of events, and is not stored yet.
type marks struct {
	run    *run
	wake   chan struct{}
	closed chan struct{}
	stored sync.WaitGroup

	mu   sync.Mutex
	list []mark
}

func (m *marks) begin(r *run) {
	m.run, m.wake, m.closed = r, make(chan struct{}, 1), make(chan struct{})
	m.stored.Go(m.storeAll)
}

// end stores the rest.
func (m *marks) end() {
	close(m.closed)
	m.stored.Wait()
}

// add has it stored what became of an event.
func (m *marks) add(e item, how outcome) {
	m.put(mark{id: e.Transfer.ID, kind: e.Kind, by: e.by, since: e.since, outcome: how})
}

// giveBack has it stored that nothing of a batch was begun with.
func (m *marks) giveBack(b batch) {
	all := make([]mark, len(b.ids))
	for i, id := range b.ids {
		all[i] = mark{id: id, by: b.by, since: b.since, outcome: undone}
	}
	m.put(all...)
}

func (m *marks) put(all ...mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = append(m.list, all...)
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// storeAll stores marks until the end.
func (m *marks) storeAll() {
	for pause := gatherTime; ; {
		select {
		case <-m.wake:
		case <-m.closed:
			for m.store() && m.wait(storePause) {
			}
			return
		}
		m.wait(pause)
		pause = gatherTime
		if m.store() {
			pause = storePause
		}
	}
}

// wait waits for a while, and reports whether storing goes on.
func (m *marks) wait(pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-m.run.storing.Done():
		return false
	}
}

// store stores the marks that have gathered, and reports whether some have to be stored
// again.
func (m *marks) store() (again bool) {
	m.mu.Lock()
	list := m.list
	m.list = nil
	m.mu.Unlock()
	if len(list) == 0 {
		return false
	}
	groups := m.run.grouped(list)
	statements := make([]transition.Delivery, len(groups))
	for i, group := range groups {
		statements[i] = m.run.statement(group)
	}
	limited, cancel := context.WithTimeout(m.run.storing, wire.CommandLimit)
	defer cancel()
	done := wire.UpdateAll(limited, m.run.Catalog.Transfers, statements)
	for i, verdict := range done.Verdicts {
		group := groups[i]
		if verdict.Err == nil {
			continue
		}
		m.run.trouble(m.run.storing, "what became of events can't be stored: they may be delivered again",
			slog.Any(words.KeyCause, verdict.Err))
		for j := range group {
			group[j].alone = group[j].alone || isStatementError(verdict.Err)
		}
		if len(group) > 1 || !isStatementError(verdict.Err) {
			group = m.inTime(group)
			m.put(group...)
			again = again || len(group) > 0
		}
	}
	return again
}

// inTime returns the marks whose leases have not run out.
func (m *marks) inTime(list []mark) []mark {
	now := m.run.Now()
	var left []mark
	for _, k := range list {
		if now.Sub(k.since) < transition.EventLease {
			left = append(left, k)
		}
	}
	return left
}

// grouped puts marks together that one statement can store.
func (o *Outbox) grouped(list []mark) [][]mark {
	type alike struct {
		kind    document.EventKind
		outcome outcome
	}
	var groups [][]mark
	open := map[alike]int{}
	routed := o.Catalog.Routed(o.Catalog.Transfers)
	for _, k := range list {
		key := alike{k.kind, k.outcome}
		if i, known := open[key]; known && !k.alone && !routed && len(groups[i]) < maxMarked {
			groups[i] = append(groups[i], k)
			continue
		}
		if !k.alone {
			open[key] = len(groups)
		}
		groups = append(groups, []mark{k})
	}
	return groups
}

// statement returns the statement that stores marks of one kind.
func (o *Outbox) statement(group []mark) transition.Delivery {
	ids := make([]string, len(group))
	var leases []bson.ObjectID
	known := map[bson.ObjectID]bool{}
	for i, k := range group {
		ids[i] = k.id
		if !known[k.by] {
			known[k.by] = true
			leases = append(leases, k.by)
		}
	}
	switch first := group[0]; first.outcome {
	case delivered:
		return transition.Delivered(ids, first.kind, leases)
	case failed:
		return transition.Failed(ids, first.kind, leases, o.MaxAttempts)
	default:
		return transition.Undone(ids, first.kind, leases)
	}
}

// isStatementError reports whether the server has refused a statement, and not the whole
// command: one document may be the reason.
func isStatementError(err error) bool {
	var refused wire.StatementError
	return errors.As(err, &refused)
}

// refusedByOne reports whether one of several documents may be why a statement was
// refused.
func refusedByOne(v wire.Verdict, ids []string) bool { return len(ids) > 1 && isStatementError(v.Err) }
