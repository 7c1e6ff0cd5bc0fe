package transfertest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/memory"
	"github.com/mongotransfer/transfer/internal/words"
)

const (
	// fakeDatabase is the name of a fake's database.
	fakeDatabase = "fake"
	// fakeTransfers is the namespace of its transfers.
	fakeTransfers = fakeDatabase + ".transfers"
)

// Fake is a coordinator in memory.
// It has the methods of a *transfer.Coordinator, but for those that a service's main
// function calls, and those of operators: Setup, Check, Adopt and Run; Audit and the
// repairs.
// It is safe for many goroutines.
//
// What it answers is what a coordinator on a server answers: see the documentation of
// each method there.
// Its worker is not always at work: it runs what was submitted, voids the holds that have
// expired, and delivers events, while [Fake.Wait] or [Fake.Advance] is called.
// So a test sees each step, and what it has submitted can be cancelled for sure.
type Fake struct {
	tb     testing.TB
	server *memory.Server
	client *mongo.Client
	opts   []transfer.Option
	// delivers says that the fake has a handler of events, and kinds which those are.
	delivers bool
	kinds    []transfer.EventKind
	// documents are the names of WithDocuments.
	documents []string
	orders    orders

	advancing sync.Mutex // one advance at a time

	mu       sync.Mutex
	latest   *transfer.Coordinator
	earlier  []*transfer.Coordinator
	outdated bool // time has passed since the latest was made
	writes   int  // to accounts, when what waits for funds was last hastened
	closed   bool
}

// FakeOption changes a default of [NewFake].
type FakeOption func(*fakeSettings)

type fakeSettings struct {
	opts      []transfer.Option
	ledgers   []string
	documents []string
	events    *transfer.EventHandler
}

// WithLedger gives the fake another ledger, as transfer.WithLedger does.
func WithLedger(name string) FakeOption {
	return func(s *fakeSettings) { s.ledgers = append(s.ledgers, name) }
}

// WithDocuments gives the fake documents for effects, as transfer.WithDocuments does.
// [Fake.Documents] returns their collection.
func WithDocuments(name string) FakeOption {
	return func(s *fakeSettings) { s.documents = append(s.documents, name) }
}

// WithEvents has the fake deliver events, as transfer.WithEvents has a coordinator.
func WithEvents(h transfer.EventHandler) FakeOption {
	return func(s *fakeSettings) { s.events = &h }
}

// WithOptions gives the fake options of a coordinator.
// Those that name collections are not among them, nor is transfer.WithEvents: see
// [WithLedger], [WithDocuments] and [WithEvents].
// The test fails for transfer.WithTransfers and transfer.WithEvents.
func WithOptions(opts ...transfer.Option) FakeOption {
	return func(s *fakeSettings) { s.opts = append(s.opts, opts...) }
}

// NewFake returns a coordinator in memory, without accounts.
// It is closed when the test ends.
// The test fails then if it has given an order, by [Fake.InDoubt] or [Fake.Fail], that no
// call has met: the service has asked for another ID, or not at all.
func NewFake(tb testing.TB, opts ...FakeOption) *Fake {
	tb.Helper()
	var s fakeSettings
	for i, opt := range opts {
		if opt == nil {
			tb.Fatalf("transfertest: option %d is nil", i)
		}
		opt(&s)
	}
	server := memory.New(time.Now)
	client, err := server.Client()
	if err != nil {
		tb.Fatalf("transfertest: %v", err)
	}
	f := &Fake{tb: tb, server: server, client: client, opts: s.opts, documents: s.documents, orders: newOrders()}
	for _, name := range s.ledgers {
		f.opts = append(f.opts, transfer.WithLedger(name, f.ledger(name)))
	}
	for _, name := range s.documents {
		f.opts = append(f.opts, transfer.WithDocuments(name, f.Documents(name)))
	}
	if s.events != nil {
		f.opts, f.delivers = append(f.opts, transfer.WithEvents(*s.events)), s.events.Handle != nil
		f.kinds = s.events.Kinds
		if len(f.kinds) == 0 {
			f.kinds = []transfer.EventKind{transfer.EventHeld, transfer.EventSucceeded, transfer.EventFailed}
		}
	}
	tb.Cleanup(f.end)
	f.server.Intercept(f.refuse)
	f.latest, err = f.newCoordinator()
	if err != nil {
		tb.Fatalf("transfertest: %v", err)
	}
	if err := f.latest.Setup(tb.Context()); err != nil {
		tb.Fatalf("transfertest: %v", err)
	}
	f.checkOptions(s.events != nil)
	return f
}

// checkOptions ends the test where the note that Setup has written is elsewhere, or names
// events of which the fake doesn't know.
func (f *Fake) checkOptions(events bool) {
	f.tb.Helper()
	notes, err := f.server.Documents(fakeTransfers+".transfer", bson.D{})
	if err != nil {
		f.tb.Fatalf("transfertest: %v", err)
	}
	if len(notes) == 0 {
		f.tb.Fatal("transfertest: transfer.WithTransfers is no option for WithOptions: a fake has its own collections")
	}
	for _, note := range notes {
		if !events && value(note, "events") != nil {
			f.tb.Fatal("transfertest: transfer.WithEvents is no option for WithOptions: use transfertest.WithEvents")
		}
	}
}

func (f *Fake) ledger(name string) *mongo.Collection {
	return f.client.Database(fakeDatabase).Collection("ledger." + name)
}

// Documents returns the collection that [WithDocuments] has registered under a name, for
// a test to put documents there and to look at them.
// It knows the driver's methods to insert, find, update, count (CountDocuments) and
// delete, with the operators that docs/testing-your-service.md lists.
// What it doesn't know it refuses by name.
// The test fails for a name that was not registered.
func (f *Fake) Documents(name string) *mongo.Collection {
	f.tb.Helper()
	if !slices.Contains(f.documents, name) {
		f.tb.Fatalf("transfertest: there are no documents %s: see WithDocuments", words.Quote(name))
	}
	return f.client.Database(fakeDatabase).Collection("documents." + name)
}

// newCoordinator returns a coordinator that learns the time of now.
func (f *Fake) newCoordinator() (*transfer.Coordinator, error) {
	return transfer.NewCoordinator(f.client.Database(fakeDatabase), f.opts...)
}

// coordinator returns the coordinator of now. Where time was let pass since the latest
// one was made, that is another one, which learns the time anew. What the earlier one has
// begun goes on, and so do the ledgers that it has returned.
func (f *Fake) coordinator() *transfer.Coordinator {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.outdated || f.closed {
		return f.latest
	}
	c, err := f.newCoordinator()
	if err != nil {
		f.tb.Errorf("transfertest: %v", err)
		return f.latest
	}
	f.earlier, f.latest, f.outdated = append(f.earlier, f.latest), c, false
	return c
}

// Now returns what the fake's clock shows, by which it stamps records.
// It runs like any clock, and [Fake.Advance] sets it ahead.
func (f *Fake) Now() time.Time { return f.server.Now() }

// Close closes the fake, as a coordinator is closed.
func (f *Fake) Close(ctx context.Context) error {
	f.mu.Lock()
	f.closed = f.closed || ctx != nil
	latest, earlier := f.latest, slices.Clone(f.earlier)
	f.mu.Unlock()
	err := latest.Close(ctx)
	for _, c := range earlier {
		err = errors.Join(err, c.Close(ctx))
	}
	return err
}

// end ends the fake with its test.
func (f *Fake) end() {
	f.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	defer cancel()
	if f.latest != nil {
		if err := f.Close(ctx); err != nil {
			f.tb.Errorf("transfertest: close the fake: %v", err)
		}
	}
	if err := f.client.Disconnect(ctx); err != nil {
		f.tb.Errorf("transfertest: close the fake: %v", err)
	}
	f.server.Close()
	if f.tb.Failed() {
		return // the test may have ended before it came to that
	}
	for _, unmet := range f.orders.left() {
		f.tb.Errorf("transfertest: %s", unmet)
	}
}
