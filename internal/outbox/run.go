package outbox

import (
	"context"
	"log/slog"
	"slices"
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
	stopSearch context.CancelFunc
	ended      chan struct{} // closed when the worker has ended
	loops      sync.WaitGroup
	inHand     sync.WaitGroup
	marks      marks
	page       int // how many events the next search takes at most
}

// begin begins to deliver. It searches until ctx ends or end is called, and takes what
// was left in the hand until end is called.
func (o *Outbox) begin(ctx context.Context) *run {
	r := &run{Outbox: o, ended: make(chan struct{}), page: searchPage}
	lasting := wire.Detached(context.WithoutCancel(ctx))
	r.handling, r.stop = context.WithCancel(lasting)
	r.storing, r.stopStores = context.WithCancel(lasting)
	searching, stopSearch := context.WithCancel(ctx)
	r.stopSearch = stopSearch
	o.beginChecks(r)
	context.AfterFunc(searching, func() { o.endChecks(r) })
	r.marks.begin(r)
	o.Hand.enter()
	r.loops.Go(r.takeLeft)
	r.loops.Go(func() { r.searchUntil(searching) })
	return r
}

// end lets what was begun come to its end, for a while.
func (r *run) end() {
	r.Hand.exit()
	r.stopSearch()
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
		r.marks.giveBack(b)
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
	for beyond := 0; ctx.Err() == nil; {
		pause := searchPeriod
		got, err := r.search(ctx, beyond)
		r.searched(err)
		switch {
		case ctx.Err() != nil:
			return
		case wire.Disconnected(err):
			return
		case err != nil:
			r.trouble(ctx, "a look for undelivered events has failed", slog.Any(words.KeyCause, err))
			pause, beyond = errorPause, 0
		case got.crowded:
			pause = crowdPause
		case got.more:
			beyond += got.passed
			continue
		default:
			beyond = 0
		}
		timer := time.NewTimer(min(pause, r.untilDue()))
		select {
		case <-timer.C:
		case <-r.soon:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// found is what a search has come upon.
type found struct {
	// crowded says that there was no room for anything.
	crowded bool
	// more says that there may be others: it has found as many as there was room for.
	more bool
	// passed is how many transfers it has not got: others were faster, or the server
	// refuses to change them. The next search goes on beyond these.
	passed int
}

// search takes events in hand that are due, as many as there is room for, beyond some
// that it has passed before.
//
// What it has taken it delivers, even if ctx ends meanwhile. Otherwise nobody would have
// it in hand until the lease has run out.
func (r *run) search(ctx context.Context, beyond int) (found, error) {
	if err := r.Ready(ctx); err != nil {
		return found{}, err
	}
	room := r.Hand.reserve(r.page)
	if room == 0 {
		return found{crowded: true}, nil
	}
	left := room
	defer func() { r.Hand.release(left) }()
	limited, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	now, err := r.Catalog.ReachedTime(limited)
	if err != nil {
		return found{}, err
	}
	ids, err := r.Queries.Deliverable(limited, now, beyond, room)
	if err != nil || len(ids) == 0 {
		return found{}, err
	}
	left = 0
	b := batch{by: bson.NewObjectID(), since: r.Now(), ids: ids}
	items, lost, err := r.claim(b)
	r.setPage(r.Now().Sub(b.since), err)
	r.dispatch(items, room)
	for _, e := range lost {
		r.reportLost(e)
	}
	return found{more: len(ids) == room, passed: max(0, len(ids)-len(items)-len(lost))}, err
}

// setPage sets how many events the next search takes, by how this one has done: fewer if
// it has failed, as the transfers may be too large to be read in time, and more again
// while there is time to spare.
func (r *run) setPage(took time.Duration, err error) {
	switch {
	case err != nil:
		r.page = max(1, r.page/2)
	case took < startLimit/4:
		r.page = min(searchPage, 2*r.page)
	}
}

// claim takes the events of a batch in hand that are due, and returns those that it has
// got, and those that it has given up. It looks for them even where the answer was lost:
// nobody else takes what it has got before the lease has run out. What it can't read it
// gives back, as no handler has it: that was no attempt.
func (r *run) claim(b batch) (items, lost []item, err error) {
	ctx, cancel := context.WithTimeout(r.storing, startLimit)
	defer cancel()
	transfers := r.Catalog.Transfers
	takes := []transition.Delivery{transition.Take(b.ids, b.by, r.MaxAttempts)}
	if r.Catalog.Routed(transfers) {
		takes = takeEach(b, r.MaxAttempts)
	}
	wire.InSession(ctx, transfers, func(ctx context.Context) {
		done := wire.UpdateAll(ctx, transfers, takes)
		if len(takes) == 1 && refusedByOne(done.Verdicts[0], b.ids) {
			takes = takeEach(b, r.MaxAttempts)
			done = wire.UpdateAll(ctx, transfers, takes)
		}
		if items, err = r.read(ctx, b); err != nil {
			r.marks.giveBack(b)
		}
		for i, verdict := range done.Verdicts {
			switch {
			case isStatementError(verdict.Err):
				r.trouble(ctx, "the server refuses to have an event taken in hand: it is not delivered",
					slog.String(words.KeyTransfer, words.Clip(takes[i].IDs[0])), slog.Any(words.KeyCause, verdict.Err))
			case err == nil && len(items) == 0:
				err = verdict.Err
			}
		}
	})
	for _, e := range items {
		if e.lost {
			lost = append(lost, e)
		}
	}
	return slices.DeleteFunc(items, func(e item) bool { return e.lost }), lost, err
}

// takeEach takes the events of each transfer by a statement of its own, as it has to be
// through a mongos, and where one of them may be why the server has refused all.
func takeEach(b batch, most int) []transition.Delivery {
	takes := make([]transition.Delivery, len(b.ids))
	for i := range b.ids {
		takes[i] = transition.Take(b.ids[i:i+1], b.by, most)
	}
	return takes
}

// untilDue returns for how long nothing that has failed here is due: no time at all once,
// when it is, and at most the longest pause.
func (r *run) untilDue() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.due.IsZero() {
		return errorPause
	}
	left := r.due.Sub(r.Now())
	if left <= 0 {
		r.due = time.Time{}
	}
	return max(0, left)
}
