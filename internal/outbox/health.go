package outbox

import (
	"fmt"
	"time"
)

// searchLimit is how long the search for undelivered events may fail.
const searchLimit = 30 * time.Second

// search is how the search of a run does.
type search struct {
	succeeded time.Time // when it last has, or has begun
	failure   error     // of the latest one
}

// Check returns why events are not delivered although a worker was started: the search
// for them fails. Handlers that fail are no reason, since the process can do its part.
func (o *Outbox) Check() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.Now()
	for _, s := range o.runs {
		since := now.Sub(s.succeeded)
		switch {
		case since <= searchLimit:
		case s.failure == nil:
			return fmt.Errorf("the worker's search for undelivered events has not succeeded for %s", since.Round(time.Second))
		default:
			return fmt.Errorf("the worker's search for undelivered events has not succeeded for %s: %w", since.Round(time.Second), s.failure)
		}
	}
	return nil
}

// beginChecks has a run checked, and endChecks no longer.
func (o *Outbox) beginChecks(r *run) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.runs[r] = search{succeeded: o.Now()}
}

func (o *Outbox) endChecks(r *run) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.runs, r)
}

// searched says what has become of a search.
func (r *run) searched(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, checked := r.runs[r]
	if !checked {
		return
	}
	if s.failure = err; err == nil {
		s.succeeded = r.Now()
	}
	r.runs[r] = s
}
