package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/mongotransfer/transfer"
)

// The troubles of the webhook: one in so many events is refused, not answered, or
// answered late.
const (
	troubleSides = 60
	lateBy       = time.Second
)

// hook is the webhook to which the processes send events, and keeps the receipts.
type hook struct {
	server  *http.Server
	address string

	mu    sync.Mutex
	taken map[string]int // how often each event was taken
	sent  int            // how often any was sent
}

// newHook starts a webhook.
func newHook(ctx context.Context) (*hook, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	h := &hook{address: "http://" + listener.Addr().String(), taken: map[string]int{}}
	h.server = &http.Server{Handler: h, ReadHeaderTimeout: askLimit}
	go func() { _ = h.server.Serve(listener) }() // Close ends it.
	return h, nil
}

// ServeHTTP implements http.Handler.
func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var event struct{ ID string }
	if json.NewDecoder(r.Body).Decode(&event) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	h.sent++
	h.mu.Unlock()
	switch rand.IntN(troubleSides) {
	case 0:
		w.WriteHeader(http.StatusInternalServerError)
		return
	case 1:
		panic(http.ErrAbortHandler) // The connection breaks.
	case 2:
		pause(r.Context(), lateBy)
	}
	h.take(event.ID)
	w.WriteHeader(http.StatusNoContent)
}

func (h *hook) take(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taken[id]++
}

// option is that of a coordinator that delivers events to the hook's book.
func (h *hook) option() transfer.Option {
	return transfer.WithEvents(transfer.EventHandler{Handle: func(_ context.Context, e transfer.Event) error {
		h.take(e.ID)
		return nil
	}})
}

// counts returns how many events were taken, how often any was sent, and how many were
// taken more than once.
func (h *hook) counts() (taken, sent, repeated int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, times := range h.taken {
		if times > 1 {
			repeated++
		}
	}
	return len(h.taken), h.sent, repeated
}

// deliverRest delivers what the processes have left, once all of them have ended.
func (r *run) deliverRest(ctx context.Context) error {
	ctx, end := context.WithTimeout(ctx, deliveryLimit)
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- r.coord.Run(ctx) }()
	for left := int64(-1); left != 0; pause(ctx, pollInterval) {
		var err error
		if left, err = r.coord.Count(ctx, transfer.Query{Undelivered: true}); err != nil {
			return fmt.Errorf("events are left: %w", err)
		}
	}
	end()
	return <-ended
}

// events checks that each event of each transfer was delivered, and no other one, and
// that none is left.
func (h *hook) events(transfers []transferDocument) (findings []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	due := map[string]bool{}
	for _, t := range transfers {
		for _, kind := range t.events() {
			id := t.ID + ":" + string(kind)
			due[id] = true
			if h.taken[id] == 0 {
				findings = append(findings, fmt.Sprintf("event %s was never delivered", id))
			}
		}
		if len(t.Outbox) > 0 {
			findings = append(findings, fmt.Sprintf("transfer %s has events left: %v", t.ID, t.Outbox))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(h.taken)) {
		if !due[id] {
			findings = append(findings, fmt.Sprintf("event %s was delivered, and is none", id))
		}
	}
	return findings
}

// events returns the events that a transfer must have had.
func (t transferDocument) events() []transfer.EventKind {
	var kinds []transfer.EventKind
	if t.Held {
		kinds = append(kinds, transfer.EventHeld)
	}
	switch t.State {
	case "Success":
		kinds = append(kinds, transfer.EventSucceeded)
	case "Fail":
		kinds = append(kinds, transfer.EventFailed)
	}
	return kinds
}
