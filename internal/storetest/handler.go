package storetest

import (
	"context"
	"log/slog"
	"sync"
)

// Calling is a log handler that does something at each record.
type Calling struct {
	slog.Handler

	mu    sync.Mutex
	call  func()
	calls int
}

// NewCalling returns a log handler that calls a function at each record.
func NewCalling(call func()) *Calling {
	return &Calling{Handler: slog.DiscardHandler, call: call}
}

// Enabled implements slog.Handler: it is, at each level.
func (h *Calling) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (h *Calling) Handle(context.Context, slog.Record) error {
	h.call()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls++
	return nil
}

// Calls returns how many calls have returned.
func (h *Calling) Calls() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls
}
