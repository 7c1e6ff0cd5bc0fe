package outbox

import (
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/transition"
)

const (
	// places is how many events a process has in hand at once.
	places = 1024
	// kept is how many places are kept from what the process finishes itself, for what a
	// search finds: others may have left that long ago.
	kept = 256
)

// Hand has the places for the events that a process has in hand.
//
// What the process finishes itself is in its hand from the start. The write that makes
// the transfer final names the lease, so that nobody searches for the event, and nobody
// writes once more to take it. It is safe for many goroutines, and a nil Hand has no
// place.
type Hand struct {
	events document.Events
	now    func() time.Time

	mu      sync.Mutex
	workers int // that deliver what is left
	free    int
	left    []batch
	wake    chan struct{} // receives a value when something was left, or a place is free
}

// batch are transfers whose events are in hand by one lease.
type batch struct {
	by    bson.ObjectID
	since time.Time // the lease runs from here
	ids   []string
}

// NewHand returns the hand of a process whose deployment delivers some kinds of events.
func NewHand(events document.Events, now func() time.Time) *Hand {
	return &Hand{events: events, now: now, free: places, wake: make(chan struct{}, 1)}
}

// Leave returns what an operation on n transfers leaves in the outbox of each, and takes
// the places for it where the process delivers it itself: then the event has a lease, and
// Left has to be called once the operation was sent.
func (h *Hand) Leave(op protocol.Operation, n int) transition.Event {
	if h == nil {
		return transition.Event{}
	}
	event := transition.Event{Kind: h.events.Of(op)}
	if event.Kind == "" {
		return event
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.workers > 0 && h.free-n >= kept {
		h.free -= n
		event.By = bson.NewObjectID()
		h.left = append(h.left, batch{by: event.By, since: h.now()})
	}
	return event
}

// Left hands over the transfers with events by a lease that Leave has given.
func (h *Hand) Left(by bson.ObjectID, ids []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.left {
		if h.left[i].by == by {
			h.left[i].ids = ids
		}
	}
	h.notify()
}

// take returns the batches that were handed over.
func (h *Hand) take() []batch {
	h.mu.Lock()
	defer h.mu.Unlock()
	var taken, waiting []batch
	for _, b := range h.left {
		if b.ids == nil {
			waiting = append(waiting, b)
		} else {
			taken = append(taken, b)
		}
	}
	h.left = waiting
	return taken
}

// reserve takes as many places as are free, up to a limit.
func (h *Hand) reserve(most int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := max(0, min(h.free, most))
	h.free -= n
	return n
}

// release gives places back.
func (h *Hand) release(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	full := h.free <= 0
	h.free += n
	if full {
		h.notify()
	}
}

// enter counts a worker that delivers, and exit counts it off.
func (h *Hand) enter() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.workers++
}

func (h *Hand) exit() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.workers--
}

// notify wakes a worker. The caller holds the lock.
func (h *Hand) notify() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}
