package outbox

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/transition"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// run delivers events beside one worker.
type run struct {
	*Outbox
	handling   context.Context // of handlers
	stop       context.CancelFunc
	storing    context.Context // of what becomes of events
	stopStores context.CancelFunc
	ended      chan struct{} // closed when the worker has ended
	loops      sync.WaitGroup
	inHand     sync.WaitGroup
	marks      marks
}

// begin begins to deliver. It searches until ctx ends, and takes what was left in the
// hand until end is called.
func (o *Outbox) begin(ctx context.Context) *run {
	r := &run{Outbox: o, ended: make(chan struct{})}
	lasting := wire.Detached(context.WithoutCancel(ctx))
	r.handling, r.stop = context.WithCancel(lasting)
	r.storing, r.stopStores = context.WithCancel(lasting)
	r.marks.begin(r)
	o.Hand.enter()
	r.loops.Go(r.takeLeft)
	r.loops.Go(func() { r.searchUntil(ctx) })
	return r
}

// end lets what was begun come to its end, for a while.
func (r *run) end() {
	r.Hand.exit()
	close(r.ended)
	patience := time.AfterFunc(drainLimit, r.stop)
	r.loops.Wait()
	r.inHand.Wait()
	patience.Stop()
	r.stop()
	patience = time.AfterFunc(markLimit, r.stopStores)
	r.marks.end()
	patience.Stop()
	r.stopStores()
}

// takeLeft delivers what was left in the hand.
func (r *run) takeLeft() {
	for ended := false; !ended; {
		select {
		case <-r.Hand.wake:
		case <-r.ended:
			ended = true
		}
		for _, b := range r.Hand.take() {
			r.loops.Go(func() { r.deliverLeft(b) })
		}
	}
}

// deliverLeft delivers the events of a batch that has its places.
func (r *run) deliverLeft(b batch) {
	ctx, cancel := context.WithTimeout(r.handling, startLimit)
	defer cancel()
	items, err := r.read(ctx, b)
	if err != nil {
		r.trouble(ctx, "events to be delivered can't be read: they are tried again", slog.Any(words.KeyCause, err))
	}
	r.dispatch(items, len(b.ids))
}

// dispatch delivers events, in the background, that have a number of places.
func (r *run) dispatch(items []item, places int) {
	r.Hand.release(places - len(items))
	for _, e := range items {
		r.inHand.Go(func() { r.deliver(e) })
	}
}

// searchUntil takes in hand, again and again, what others have left.
func (r *run) searchUntil(ctx context.Context) {
	for ctx.Err() == nil {
		pause := searchPeriod
		found, err := r.search(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case wire.Disconnected(err):
			return
		case err != nil:
			r.trouble(ctx, "a look for undelivered events has failed", slog.Any(words.KeyCause, err))
			pause = errorPause
		case found == searchPage:
			continue
		}
		timer := time.NewTimer(min(pause, max(r.untilDue(), 0)))
		select {
		case <-timer.C:
		case <-r.soon:
		case <-r.ended:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// search takes events in hand that are due, as many as there is room for, and returns how
// many transfers it has found.
//
// What it has taken it delivers, even if ctx ends meanwhile. Otherwise nobody would have
// it in hand until the lease has run out.
func (r *run) search(ctx context.Context) (found int, err error) {
	if err := r.Ready(ctx); err != nil {
		return 0, err
	}
	room := r.Hand.reserve(searchPage)
	if room == 0 {
		return 0, nil
	}
	left := room
	defer func() { r.Hand.release(left) }()
	limited, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	now, err := r.Catalog.ReachedTime(limited)
	if err != nil {
		return 0, err
	}
	ids, err := r.Queries.Deliverable(limited, now, room)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	left = 0
	b := batch{by: bson.NewObjectID(), since: r.Now(), ids: ids}
	items, err := r.claim(b)
	r.dispatch(items, room)
	return len(ids), err
}

// claim takes the events of a batch in hand that are due, and returns those that it has
// got.
func (r *run) claim(b batch) (items []item, err error) {
	ctx, cancel := context.WithTimeout(r.storing, startLimit)
	defer cancel()
	transfers := r.Catalog.Transfers
	wire.InSession(ctx, transfers, func(ctx context.Context) {
		for _, some := range r.portions(b.ids) {
			take := transition.Take(some, b.by, r.MaxAttempts)
			done := wire.UpdateAll(ctx, transfers, []transition.Delivery{take})
			if refusedByOne(done.Verdicts[0], some) {
				done = wire.UpdateAll(ctx, transfers, takeEach(some, b.by, r.MaxAttempts))
			}
			if err = done.Verdicts[0].Err; err != nil && !isStatementError(err) {
				return
			}
		}
		items, err = r.read(ctx, b)
	})
	return items, err
}

// takeEach takes the events of each transfer by a statement of its own.
func takeEach(ids []string, by bson.ObjectID, most int) []transition.Delivery {
	takes := make([]transition.Delivery, len(ids))
	for i, id := range ids {
		takes[i] = transition.Take([]string{id}, by, most)
	}
	return takes
}

// untilDue returns for how long nothing that has failed here is due.
func (r *run) untilDue() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.due.IsZero() {
		return searchPeriod
	}
	return r.due.Sub(r.Now())
}
