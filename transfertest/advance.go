package transfertest

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
)

const (
	// advanceLimit is how long an advance may take.
	advanceLimit = 2 * time.Minute
	// stepWidth is how far apart things may be due that are done in one step. A worker on
	// a server looks for them two or three times a second.
	stepWidth = 500 * time.Millisecond
	// repetitions is how many steps of an advance may be for what can go on for ever:
	// events whose handler has failed, and what comes due while a step is done.
	repetitions = 50
)

// Advance lets time pass: it sets the fake's clock ahead, in steps, and does what is due
// at each of them.
// Advance(0) does what is due now.
//
// It first does what is due already.
// Then it sets the clock to the next time at which a hold expires, a submitted transfer
// or an event is due, or a wait for funds ends, and does that.
// So it goes on until the time has passed.
// A salary that is due in an hour thus pays the rent that is due in two, and each record
// has the times that it would have on a server.
// What is due within half a second is done in one step, in any order.
//
// A transfer that waits for funds is looked at after each step that has changed an
// account, and at the end, but not once a minute.
// An event whose handler has failed is tried again after a second, and so on: see
// transfer.WithEvents.
// What a handler submits is done at its time.
// At most 50 steps are for events that are tried again, and for what comes due during a
// step; more of that waits for a step that is for something else, or for the end.
//
// The test fails if one step takes longer than 10 s, or all of them longer than 2 min.
// A step with something to do takes some 10 to 50 ms.
// Calls at once take turns, and their times add up.
// A handler of events must not call Advance.
//
// A ledger from before an advance can still be used.
// So a fake that is used after an advance keeps another coordinator until the test ends,
// which takes some 50 kB and a goroutine.
func (f *Fake) Advance(d time.Duration) {
	f.tb.Helper()
	if d < 0 {
		f.tb.Fatalf("transfertest: time doesn't go back by %s", -d)
	}
	f.advancing.Lock()
	defer f.advancing.Unlock()
	f.mu.Lock()
	closed := f.closed
	f.mu.Unlock()
	if closed {
		f.tb.Fatal("transfertest: the fake is closed, and its worker with it")
	}
	begun := f.server.Now()
	if err := f.advance(begun.Add(d)); err != nil {
		f.tb.Errorf("transfertest: what is due could not be done: Advance(%s) has come to %s: %v",
			d, f.server.Now().Sub(begun).Round(time.Millisecond), err)
	}
}

// advance goes to a time, step by step.
func (f *Fake) advance(target time.Time) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), advanceLimit)
	defer cancel()
	s := steps{target: target}
	if s.worker, err = f.newCoordinator(); err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, s.worker.Close(ctx)) }()
	for {
		begun := f.server.Now()
		if err := f.step(ctx, s.worker); err != nil {
			return err
		}
		due, err := f.nextDue(begun, s)
		if err != nil {
			return err
		}
		now, next := f.server.Now(), target
		if !due.at.IsZero() && (due.at.Before(target) || !due.at.After(now)) {
			next = due.at
		}
		switch {
		case next.After(now):
			err = f.setAhead(ctx, next.Sub(now), &s)
		case next.Equal(due.at): // it has come due meanwhile
			due.repeats = true
		default:
			return nil
		}
		if err != nil {
			return err
		}
		if due.repeats {
			s.repeated++
		}
	}
}

// step does what is due now. While money comes to transfers that wait for it, they are
// looked at again.
func (f *Fake) step(ctx context.Context, worker *transfer.Coordinator) error {
	ctx, cancel := context.WithTimeout(ctx, workLimit)
	defer cancel()
	for before := math.MaxInt; ; {
		if err := f.work(ctx, worker); err != nil {
			return err
		}
		if f.delivers {
			f.awaitFinishes(ctx) // of what a handler has moved
		}
		waiting, err := f.hasten(ctx)
		if err != nil || waiting == 0 || waiting >= before {
			return err
		}
		before = waiting
	}
}

// setAhead sets the clock ahead. The coordinators from before don't know of it, so that
// the worker is replaced.
func (f *Fake) setAhead(ctx context.Context, d time.Duration, s *steps) error {
	f.server.Advance(d)
	f.mu.Lock()
	f.outdated = true
	f.mu.Unlock()
	next, err := f.newCoordinator()
	if err != nil {
		return err
	}
	err = s.worker.Close(ctx)
	s.worker = next
	return err
}

// steps is how far an advance has come.
type steps struct {
	target   time.Time
	worker   *transfer.Coordinator // which nobody else has
	repeated int                   // how many steps were for what can go on for ever
}

// due is when the next step is.
type due struct {
	at      time.Time
	repeats bool // it is for events alone
}

// nextDue returns when something is due next, after a time: of what is due together, the
// last. It is the zero time where nothing is.
func (f *Fake) nextDue(after time.Time, s steps) (due, error) {
	now := f.server.Now()
	if s.repeated >= repetitions {
		after = now
	}
	unfinished, err := f.server.Documents(fakeTransfers, bson.D{{Key: "$or", Value: bson.A{
		bson.D{{Key: "open", Value: true}}, bson.D{{Key: "outbox", Value: bson.D{{Key: "$exists", Value: true}}}},
	}}})
	if err != nil {
		return due{}, err
	}
	var scheduled, events []time.Time
	for _, stored := range unfinished {
		raw, err := bson.Marshal(stored)
		if err != nil {
			return due{}, err
		}
		t, err := document.DecodeTransfer(raw)
		if err != nil {
			continue // nobody can do what can't be read
		}
		scheduled = append(scheduled, dueAt(t, now))
		if f.delivers && s.repeated < repetitions {
			for _, e := range t.Undelivered() {
				events = append(events, e.Due)
			}
		}
	}
	return nearest(after, s.target, scheduled, events), nil
}

// dueAt returns when something is to be done about a transfer. One that waits for funds
// is hastened where it may find any.
func dueAt(t document.Transfer, now time.Time) time.Time {
	switch {
	case t.Stuck != nil:
		return time.Time{}
	case t.State == protocol.Preparing && t.Hold:
		return t.ExpiresAt
	case t.State != protocol.Initiated:
		return time.Time{}
	case t.Postponed == 0 && t.NotBefore.Before(now): // a step has not seen it yet
		return now
	case t.Postponed == 0:
		return t.NotBefore
	}
	return t.FundsUntil
}

// nearest returns the step for what is due after a time, and next to it.
func nearest(after, target time.Time, scheduled, events []time.Time) due {
	var first time.Time
	for _, at := range slices.Concat(scheduled, events) {
		if at.After(after) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	next := due{at: first, repeats: true}
	if first.IsZero() {
		return next
	}
	end := first.Add(stepWidth)
	if end.After(target) {
		end = target
	}
	for _, at := range scheduled {
		if at.After(after) && !at.After(end) {
			next.repeats = false
		}
	}
	for _, at := range slices.Concat(scheduled, events) {
		if at.After(next.at) && !at.After(end) {
			next.at = at
		}
	}
	return next
}
