package storetest

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// WithoutLock is a log handler that requires that a lock is free at each record: another
// handler might call what waits for it.
type WithoutLock struct {
	slog.Handler

	t       *testing.T
	lock    *sync.Mutex
	records int
}

// NewWithoutLock returns a log handler for a lock.
func NewWithoutLock(t *testing.T, lock *sync.Mutex) *WithoutLock {
	t.Helper()
	return &WithoutLock{Handler: slog.DiscardHandler, t: t, lock: lock}
}

// Enabled implements slog.Handler: it is, at each level.
func (h *WithoutLock) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (h *WithoutLock) Handle(context.Context, slog.Record) error {
	require.True(h.t, h.lock.TryLock(), "it logs with the lock")
	h.records++
	h.lock.Unlock()
	return nil
}

// Records returns how many records there were.
func (h *WithoutLock) Records() int {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.records
}
