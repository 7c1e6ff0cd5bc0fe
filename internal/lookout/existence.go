package lookout

import (
	"context"

	"github.com/mongotransfer/transfer/internal/wire"
)

// existenceCheck is one caller's question whether a transfer exists.
type existenceCheck struct {
	id       string
	answered chan struct{} // closed once missing is set
	missing  bool
}

// SurelyMissing reports whether the transfer certainly does not exist, by a deciding read
// that begins after this call.
// False means that it exists, or that this is not known.
func (w *Watch) SurelyMissing(ctx context.Context) bool {
	l := w.lookout
	check := &existenceCheck{id: w.target.id, answered: make(chan struct{})}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return false
	}
	l.checks = append(l.checks, check)
	if !l.checking {
		l.checking = true
		l.goroutines.Go(l.answerChecks)
	}
	l.mu.Unlock()
	select {
	case <-check.answered:
		return check.missing
	case <-ctx.Done():
		return false
	case <-l.ended:
		return false
	}
}

// answerChecks answers existence checks until none is left.
// While one read is in flight the next ones gather: on an idle server it takes 100 ms.
func (l *Lookout) answerChecks() {
	for {
		l.mu.Lock()
		batch := l.checks[:min(len(l.checks), maxGlanced)]
		l.checks = l.checks[len(batch):]
		if len(batch) == 0 || l.closed {
			l.checking, l.checks = false, nil
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		ids := make([]string, len(batch))
		for i, check := range batch {
			ids[i] = check.id
		}
		ctx, cancel := context.WithTimeout(l.base, wire.CommandLimit)
		existing, err := l.queries.WhichExist(ctx, ids)
		cancel()
		for _, check := range batch {
			check.missing = err == nil && !existing[check.id]
			close(check.answered)
		}
	}
}
