// Package outbox delivers the events of transfers: that one is held, has succeeded, or
// has failed.
//
// The outbox is a field of the transfer's own document. The write that makes the transfer
// held or final adds an event to it, so there is no instant at which the one is stored
// and not the other, and no second write. Package transition has these writes, and those
// that change an outbox from then on.
//
// An event has a time from which on a worker may take it in hand. A worker takes it by a
// conditional update that sets this time to the end of a lease: nobody else takes it
// before, and what a process had in hand when it was killed is due again once the lease
// has run out. No worker leads the others.
//
//   - A Hand has the places for what this process has in hand. What it finishes itself is
//     there from the start, by the same write.
//   - An Outbox delivers beside a worker: it reads what was left in the hand, searches
//     for what others have left, calls the handler, and marks what became of it.
//
// An event is delivered at least once. It is delivered more than once where a process
// ends between the handler and the mark, and where a handler takes longer than the lease.
package outbox

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/queries"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

const (
	// width is how many handlers run at once, and retryWidth how many of them deliver
	// what has failed before. So events whose handler hangs leave room for the others.
	width      = 256
	retryWidth = 64
	// startLimit is how long after its lease has begun an event may wait for a handler.
	startLimit = 5 * time.Second
	// handlerLimit is how long a handler may take.
	handlerLimit = 15 * time.Second
	// maxDeaf is how many handlers may go on that have not heeded the end of their
	// context, and leave their place to others.
	maxDeaf = 1024
	// searchPeriod is the time between two searches while nothing is found.
	searchPeriod = time.Second
	// crowdPause is the time until the next search where no place was free.
	crowdPause = 50 * time.Millisecond
	// markTime is how long it takes at most times to store what became of an event.
	markTime = 100 * time.Millisecond
	// searchPage is how many events a search takes in hand at most.
	searchPage = 256
	// drainLimit is how long handlers may go on when the worker ends, and markLimit how
	// long what became of them may take to be stored then.
	drainLimit = 5 * time.Second
	markLimit  = 2 * time.Second
	// troublePause is the time between two warnings of one kind, and after an error
	// before the next search.
	troublePause = time.Minute
	errorPause   = 5 * time.Second
)

// Event is an event as its handler gets it.
type Event struct {
	// Transfer is the transfer as it is stored.
	Transfer document.Transfer
	// Kind is what the event reports, and At when it became so, by the server's clock.
	Kind document.EventKind
	At   time.Time
	// Attempt counts the deliveries of this event that were begun, this one included.
	Attempt int
}

// Attempt is an attempt to deliver an event.
type Attempt struct {
	Event
	// Context is that of the handler.
	Context context.Context
	// Took is how long the handler took.
	Took time.Duration
	// GivenUp says that it has failed, and is not tried again.
	GivenUp bool
	// Err is why it has failed.
	Err error
}

// Settings are what an outbox works with.
type Settings struct {
	// Catalog has the collection of the transfers.
	Catalog *collections.Catalog
	// Queries finds what others have left.
	Queries *queries.Queries
	// Hand has what this process has left.
	Hand *Hand
	// Log is where troubles are logged.
	Log *slog.Logger
	// Now is the process's clock.
	Now func() time.Time
	// Ready waits until the deployment is known to be fit.
	Ready func(context.Context) error
	// Handle delivers an event.
	// Nil: this process delivers none.
	Handle func(context.Context, Event) error
	// Done, if there is one, is called after each attempt.
	Done func(Attempt)
	// MaxAttempts is how often an event is tried before it is given up.
	MaxAttempts int
}

// Outbox delivers events. It is safe for many goroutines.
type Outbox struct {
	Settings
	running chan struct{} // has a value for each handler that runs
	retried chan struct{} // for each of these that deliver what has failed before
	deaf    chan struct{} // for each handler that goes on after its time

	mu     sync.Mutex
	runs   map[*run]search      // how those do that have not ended
	warned map[string]time.Time // when a trouble was last logged as a warning
	due    time.Time            // when something that has failed here is due; zero: not known
	soon   chan struct{}        // receives a value when a search is worth while
}

// New returns an outbox.
func New(settings Settings) *Outbox {
	return &Outbox{
		Settings: settings,
		running:  make(chan struct{}, width),
		retried:  make(chan struct{}, retryWidth),
		deaf:     make(chan struct{}, maxDeaf),
		runs:     map[*run]search{},
		warned:   map[string]time.Time{},
		soon:     make(chan struct{}, 1),
	}
}

// Beside delivers events while work works. When work ends, it lets the handlers end that
// it has begun, for a while.
func (o *Outbox) Beside(ctx context.Context, work func(context.Context) error) error {
	if o.Handle == nil {
		return work(ctx)
	}
	r := o.begin(ctx)
	defer r.end()
	return work(ctx)
}

// Soon has a search begun at once.
func (o *Outbox) Soon() {
	select {
	case o.soon <- struct{}{}:
	default:
	}
}

// item is an event in hand.
type item struct {
	Event
	by    bson.ObjectID
	since time.Time
	lost  bool // given up, because who had it in hand has not come back
}

// read returns the events of some transfers that are in hand by a lease, or were given up
// by it. It leaves out what somebody else has got meanwhile, and what can't be read.
func (o *Outbox) read(ctx context.Context, b batch) ([]item, error) {
	from := o.Catalog.Majority
	if o.Catalog.Routed(o.Catalog.Transfers) {
		from = o.Catalog.Linearizable
	}
	var found []bson.Raw
	if err := wire.FindAll(ctx, from, document.InHand(b.ids, b.by), &found); err != nil {
		return nil, err
	}
	var items []item
	for _, stored := range found {
		t, err := document.DecodeTransfer(stored)
		if err != nil {
			o.trouble(ctx, "a transfer can't be read, so its events are not delivered",
				slog.String(words.KeyTransfer, words.Clip(t.ID)), slog.Any(words.KeyCause, err))
			continue
		}
		for _, u := range t.Undelivered() {
			if u.By == b.by {
				items = append(items, item{Event{t, u.Kind, u.At, int(u.Attempts)}, b.by, b.since, u.GivenUp})
			}
		}
	}
	return items, nil
}

// trouble logs what has gone wrong: as a warning once a minute, and at Debug otherwise.
func (o *Outbox) trouble(ctx context.Context, what string, attrs ...slog.Attr) {
	o.logTrouble(ctx, slog.LevelDebug, what, attrs...)
}

// logTrouble is trouble for another level than Debug.
func (o *Outbox) logTrouble(ctx context.Context, level slog.Level, what string, attrs ...slog.Attr) {
	o.mu.Lock()
	now := o.Now()
	if last, before := o.warned[what]; !before || now.Sub(last) >= troublePause {
		o.warned[what], level = now, slog.LevelWarn
	}
	o.mu.Unlock()
	o.Log.LogAttrs(ctx, level, what, attrs...)
}
