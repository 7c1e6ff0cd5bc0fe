package bank

import (
	"context"
	"log/slog"
	"sync"
)

// Logged counts what is logged.
type Logged struct {
	mu       sync.Mutex
	messages map[string]int
}

// Enabled implements slog.Handler.
func (l *Logged) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle implements slog.Handler.
func (l *Logged) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.messages == nil {
		l.messages = map[string]int{}
	}
	l.messages[r.Message]++
	return nil
}

// WithAttrs implements slog.Handler.
func (l *Logged) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements slog.Handler.
func (l *Logged) WithGroup(string) slog.Handler { return l }

// Count returns how often a message was logged.
func (l *Logged) Count(message string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.messages[message]
}
