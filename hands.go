package transfer

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/queries"
	"github.com/mongotransfer/transfer/internal/words"
)

// hands are the transfers that searches which share them have in hand, and how many of
// each route that may be.
type hands struct {
	coordinator *Coordinator
	size        int           // how many may be in hand at once
	revived     chan struct{} // tells that a route of which others were passed over hangs no longer

	mu     sync.Mutex
	busy   map[string]bool // by ID
	taken  int
	routes map[queries.Route]*route
	freed  chan struct{} // closed when one more may be taken in hand; nil if nobody waits for that
}

func (c *Coordinator) newHands(size int) *hands {
	return &hands{
		coordinator: c, size: size, revived: make(chan struct{}, 1),
		busy: map[string]bool{}, routes: map[queries.Route]*route{},
	}
}

// of returns the route of a transfer.
func (h *hands) of(t document.Transfer) *route {
	name := h.coordinator.queries.RouteOf(t)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.routes[name] == nil {
		h.routes[name] = newRoute(name)
	}
	return h.routes[name]
}

// reserve takes a transfer in hand. It reports false for one that is.
func (h *hands) reserve(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.busy[id] {
		return false
	}
	h.busy[id] = true
	return true
}

func (h *hands) release(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.busy, id)
}

// enter counts one more of a route, if there is room for it. If not, it returns what is
// closed when there may be, and nil where it is not worth the wait.
func (h *hands) enter(r *route) (entered bool, freed <-chan struct{}) {
	h.change(r, func(now time.Time) {
		switch {
		case r.room(now, h.size-h.taken):
			r.inProgress++
			h.taken++
			entered = true
		case r.hangs:
			r.passed = true
		default:
			if h.freed == nil {
				h.freed = make(chan struct{})
			}
			freed = h.freed
		}
	})
	return entered, freed
}

// enterWithin is enter, and waits for so long where there is a point in that.
func (h *hands) enterWithin(ctx context.Context, r *route, patience time.Duration) bool {
	entered, freed := h.enter(r)
	if entered || freed == nil || patience <= 0 {
		return entered
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for !entered && freed != nil {
		select {
		case <-freed:
			entered, freed = h.enter(r)
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		case <-h.coordinator.engine.Closing():
			return false
		}
	}
	return entered
}

// leave counts one less of a route.
func (h *hands) leave(r *route, begun time.Time, how ending) {
	h.change(r, func(now time.Time) {
		r.left(now, begun, how)
		h.taken--
		if h.freed != nil {
			close(h.freed)
			h.freed = nil
		}
	})
}

// change changes a route, and tells if it hangs since, or no longer.
func (h *hands) change(r *route, how func(now time.Time)) {
	h.mu.Lock()
	before := r.hangs
	how(h.coordinator.now())
	after := r.hangs
	revived := before && !after && r.passed
	r.passed = r.passed && after
	h.mu.Unlock()
	if revived {
		select {
		case h.revived <- struct{}{}:
		default:
		}
	}
	switch log := h.coordinator.log; {
	case after && !before:
		log.Warn("a cluster that transfers need doesn't answer: they are tried now and then", slog.String(words.KeyRoute, r.name.String()))
	case before && !after:
		log.Info("the clusters that transfers need answer again", slog.String(words.KeyRoute, r.name.String()))
	}
}

// hang reports whether a route hangs.
func (h *hands) hang(r *route) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return r.hangs
}

// steady reports whether a route has shown that it doesn't hang.
func (h *hands) steady(r *route) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return r.proven && !r.hangs
}

// full returns the routes that have no room. Others of theirs are looked for in vain.
func (h *hands) full() []*route {
	h.mu.Lock()
	all := slices.Collect(maps.Values(h.routes))
	h.mu.Unlock()
	return slices.DeleteFunc(all, func(r *route) (room bool) {
		h.change(r, func(now time.Time) {
			room = r.room(now, h.size-h.taken)
			r.passed = r.passed || !room
		})
		return room
	})
}
