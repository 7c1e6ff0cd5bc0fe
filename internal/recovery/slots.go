package recovery

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

// slots are the places for transfers in progress.
// Searches that share them don't begin with a transfer that another one is working on,
// and share the places fairly between the routes.
type slots struct {
	*Settings
	size    int           // how many transfers may be in progress at once
	revived chan struct{} // receives a value when a skipped route answers again

	mu         sync.Mutex
	inProgress map[string]bool // by transfer ID
	taken      int
	routes     map[queries.Route]*route
	freed      chan struct{} // closed when a slot becomes free; nil if nobody waits for that
}

func newSlots(settings *Settings, size int) *slots {
	return &slots{
		Settings: settings, size: size, revived: make(chan struct{}, 1),
		inProgress: map[string]bool{}, routes: map[queries.Route]*route{},
	}
}

// routeOf returns the route of a transfer.
func (s *slots) routeOf(t document.Transfer) *route {
	name := s.Queries.RouteOf(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.routes[name] == nil {
		s.routes[name] = newRoute(name)
	}
	return s.routes[name]
}

// reserve marks a transfer as in progress.
// It reports false for one that is already.
func (s *slots) reserve(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inProgress[id] {
		return false
	}
	s.inProgress[id] = true
	return true
}

func (s *slots) release(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.inProgress, id)
}

// enter takes a slot for a transfer of a route, if the route has room.
// If not, it returns a channel that is closed when there may be room, and nil where it is
// not worth the wait.
func (s *slots) enter(r *route) (entered bool, freed <-chan struct{}) {
	s.change(r, func(now time.Time) {
		switch {
		case r.hasRoom(now, s.size-s.taken):
			r.inProgress++
			s.taken++
			entered = true
		case r.hangs:
			r.skipped = true
		default:
			if s.freed == nil {
				s.freed = make(chan struct{})
			}
			freed = s.freed
		}
	})
	return entered, freed
}

// enterWithin is enter, but waits for room where that is worth it.
func (s *slots) enterWithin(ctx context.Context, r *route, patience time.Duration) bool {
	entered, freed := s.enter(r)
	if entered || freed == nil || patience <= 0 {
		return entered
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for !entered && freed != nil {
		select {
		case <-freed:
			entered, freed = s.enter(r)
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		case <-s.Engine.Closing():
			return false
		}
	}
	return entered
}

// leave frees the slot of a transfer that was begun at a given time.
func (s *slots) leave(r *route, begun time.Time, how Ending) {
	s.change(r, func(now time.Time) {
		r.ended(now, begun, how)
		s.taken--
		if s.freed != nil {
			close(s.freed)
			s.freed = nil
		}
	})
}

// change changes a route, and reports it where the route hangs from then on, or no
// longer.
func (s *slots) change(r *route, change func(now time.Time)) {
	s.mu.Lock()
	before := r.hangs
	change(s.Now())
	after := r.hangs
	revived := before && !after && r.skipped
	r.skipped = r.skipped && after
	s.mu.Unlock()
	if revived {
		select {
		case s.revived <- struct{}{}:
		default:
		}
	}
	switch name := slog.String(words.KeyRoute, r.name.String()); {
	case after && !before:
		s.Log.Warn("a cluster that transfers need doesn't answer: they are tried now and then", name)
	case before && !after:
		s.Log.Info("the clusters that transfers need answer again", name)
	}
}

// anyRevived reports whether a skipped route has begun to answer again since the last
// call.
func (s *slots) anyRevived() bool {
	select {
	case <-s.revived:
		return true
	default:
		return false
	}
}

// hangs reports whether a route hangs.
func (s *slots) hangs(r *route) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.hangs
}

// steady reports whether a route has shown that it doesn't hang.
func (s *slots) steady(r *route) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.proven && !r.hangs
}

// fullRoutes returns the routes that have no room.
// It is no use to search for their transfers.
func (s *slots) fullRoutes() []*route {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.routes))
	s.mu.Unlock()
	return slices.DeleteFunc(all, func(r *route) (room bool) {
		s.change(r, func(now time.Time) {
			room = r.hasRoom(now, s.size-s.taken)
			r.skipped = r.skipped || !room
		})
		return room
	})
}
