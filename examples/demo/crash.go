package main

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
)

const (
	// recoveryLimit is how long the demo waits until recovery finds the stalled transfer.
	recoveryLimit = 20 * time.Second
	// sweepPeriod is the time between two sweeps.
	sweepPeriod = 100 * time.Millisecond
)

// crashBeforeRecord kills a worker once both accounts are prepared, which commits the
// transfer, and before that is stored with it.
// The balance already lacks the debit, and the markers show to which transfer it belongs.
func (s *story) crashBeforeRecord(ctx context.Context) error {
	s.out.heading("A process is killed at the commit, before it is recorded")
	return s.crash(ctx, job{StopAt: prepared, Order: order{ID: "crash-1", From: buyer, To: shop, Units: 70}}, transfer.StatePreparing)
}

// crashAfterRecord kills a worker after the commit is recorded and before the shop has
// its money.
func (s *story) crashAfterRecord(ctx context.Context) error {
	s.out.heading("A process is killed after the record, before the money has arrived")
	return s.crash(ctx, job{StopAt: recorded, Order: order{ID: "crash-2", From: buyer, To: shop, Units: 80}}, transfer.StateCommitted)
}

// crash kills a worker in the middle of a transfer, recovers the transfer, and repeats
// the request.
func (s *story) crash(ctx context.Context, j job, want transfer.State) error {
	o := j.Order
	j.Database = s.db.Name()
	ending, err := killWorker(ctx, s.uri, j)
	if err != nil {
		return err
	}
	s.out.say("A worker was moving %d from %s to %s. It was stopped when it %s, and ended by %q.", o.Units, o.From, o.To, j.StopAt, ending)
	if err := s.show(ctx, o, want, true); err != nil {
		return err
	}
	report, err := s.recover(ctx)
	if err != nil {
		return err
	}
	s.out.say("Recover, in this process, once the transfer had stalled for %s:", stallThreshold)
	s.out.say("  report    found %d  succeeded %d  failed %d  stuck %d", report.Found, report.Succeeded, report.Failed, report.Stuck)
	if report != (transfer.RecoveryReport{Found: 1, Succeeded: 1}) {
		return fmt.Errorf("the recovery should have found one transfer and brought it to its end: %+v", report)
	}
	if err := s.show(ctx, o, transfer.StateSuccess, false); err != nil {
		return err
	}
	return s.askAgain(ctx, o)
}

// recover sweeps until a sweep finds something.
// A transfer has stalled once the server's clock has passed the threshold.
func (s *story) recover(ctx context.Context) (transfer.RecoveryReport, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, recoveryLimit,
		fmt.Errorf("no sweep has found the stalled transfer within %s", recoveryLimit))
	defer cancel()
	sweeps := time.NewTicker(sweepPeriod)
	defer sweeps.Stop()
	for {
		report, err := s.coord.Recover(ctx)
		if err != nil || report.Found > 0 {
			return report, err
		}
		select {
		case <-sweeps.C:
		case <-ctx.Done():
			return report, context.Cause(ctx)
		}
	}
}

// askAgain repeats the request, as the client of the dead worker does, which never got an
// answer.
func (s *story) askAgain(ctx context.Context, o order) error {
	before, err := s.accounts(ctx)
	if err != nil {
		return err
	}
	rec, err := s.transfer(ctx, o)
	if err != nil {
		return fmt.Errorf("asked again: %w", err)
	}
	after, err := s.accounts(ctx)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(before, after) {
		return fmt.Errorf("asking for %s again has changed the accounts from %v to %v", o.ID, before, after)
	}
	s.out.say("The client asks again with the same ID: %s, and nothing moved twice.", s.out.good(string(rec.State)))
	return nil
}

// show prints the documents of a transfer.
// It returns an error if they are not as expected.
func (s *story) show(ctx context.Context, o order, want transfer.State, marked bool) error {
	var t transferDocument
	if err := s.db.Collection("transfers").FindOne(ctx, bson.D{{Key: "_id", Value: o.ID}}).Decode(&t); err != nil {
		return fmt.Errorf("look at transfer %s: %w", o.ID, err)
	}
	accounts, err := s.accounts(ctx, o.From, o.To)
	if err != nil {
		return err
	}
	s.out.say("  transfer  %-9s state %-10s epoch %d  owner %s", t.ID, t.State, t.Epoch, t.Owner)
	for _, account := range accounts {
		s.out.say("  account   %-9s balance %-8d pending %s", account.ID, account.Balance, markersOf(account))
	}
	return judge(t, accounts, want, marked)
}

// judge returns an error if a transfer is not in the given state, or if its markers are
// missing or left over.
func judge(t transferDocument, accounts []accountDocument, want transfer.State, marked bool) error {
	if t.State != want {
		return fmt.Errorf("transfer %s should be in state %s and is in %s", t.ID, want, t.State)
	}
	if len(accounts) != 2 {
		return fmt.Errorf("transfer %s should have two accounts and has %d", t.ID, len(accounts))
	}
	for _, account := range accounts {
		_, found := account.Pending[t.ID]
		switch {
		case marked && !found:
			return fmt.Errorf("account %s has lost its marker of transfer %s", account.ID, t.ID)
		case found && !marked:
			return fmt.Errorf("account %s still has its marker of transfer %s", account.ID, t.ID)
		}
	}
	return nil
}

// markersOf returns an account's markers as text.
func markersOf(account accountDocument) string {
	if len(account.Pending) == 0 {
		return "none"
	}
	var markers []string
	for _, id := range slices.Sorted(maps.Keys(account.Pending)) {
		markers = append(markers, fmt.Sprintf("%s: %+d", id, account.Pending[id]))
	}
	return strings.Join(markers, ", ")
}
