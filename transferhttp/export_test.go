package transferhttp

import (
	"net/http"
	"time"
)

// WithLimit sets how long a page may take.
func WithLimit(d time.Duration) Option { return func(w *window) { w.limit = d } }

// WithClock sets the clock of a window.
func WithClock(now func() time.Time) Option { return func(w *window) { w.now = now } }

// NewRecorderBy returns a Recorder with clocks of the test's own: what others set, and
// what goes on evenly.
func NewRecorderBy(now func() time.Time, elapsed func() time.Duration) *Recorder {
	return &Recorder{now: now, begun: now(), elapsed: elapsed}
}

// Draw draws the charts of a Recorder, as a page does.
func Draw(r *Recorder) { r.activity() }

// Drawn is how often they were drawn.
func Drawn(r *Recorder) int {
	r.drawing.Lock()
	defer r.drawing.Unlock()
	return r.draws
}

// Visible is how texts are written on the pages.
func Visible(text string) string { return visible(text) }

// Extended is how values of documents are.
func Extended(value any) string { return extended(value) }

// Relative is how times are.
func Relative(now, t time.Time) string { return relative(now, t) }

const (
	// Policy is the Content-Security-Policy of each page.
	Policy = policy
	// ListPage and StatementPage are how much a page has.
	ListPage      = listPage
	StatementPage = statementPage
	// RecentCalls is how many calls a Recorder remembers.
	RecentCalls = recentCalls
	// MostReads is how many pages may be read at once.
	MostReads = maxReads
)

// OccupyReads has all places of those that read taken, until done is called.
func OccupyReads(h http.Handler) (done func()) {
	w := h.(*window)
	for range maxReads {
		w.reads <- struct{}{}
	}
	return func() {
		for range maxReads {
			<-w.reads
		}
	}
}

// Looking reports whether a look at the server is under way.
func Looking(h http.Handler) bool {
	w := h.(*window)
	w.sights.mu.Lock()
	defer w.sights.mu.Unlock()
	return w.sights.looking != nil
}
