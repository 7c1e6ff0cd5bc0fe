package lookout

import (
	"context"

	"github.com/mongotransfer/transfer/internal/wire"
)

// doubt is somebody's question whether a transfer exists.
type doubt struct {
	id      string
	answer  chan struct{} // closed once it is answered
	missing bool
}

// SurelyMissing reports, by a deciding read that begins after this call, that the
// transfer does not exist. False says nothing.
func (w *Watch) SurelyMissing(ctx context.Context) bool {
	l := w.lookout
	d := &doubt{id: w.target.id, answer: make(chan struct{})}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return false
	}
	l.doubted = append(l.doubted, d)
	if !l.deciding {
		l.deciding = true
		l.all.Go(l.decide)
	}
	l.mu.Unlock()
	select {
	case <-d.answer:
		return d.missing
	case <-ctx.Done():
		return false
	case <-l.ended:
		return false
	}
}

// decide answers doubts until none is left. While one read is on its way the next ones
// gather: on an idle server it takes 100 ms.
func (l *Lookout) decide() {
	for {
		l.mu.Lock()
		batch := l.doubted[:min(len(l.doubted), maxGlance)]
		l.doubted = l.doubted[len(batch):]
		if len(batch) == 0 || l.closed {
			l.deciding, l.doubted = false, nil
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		ids := make([]string, len(batch))
		for i, d := range batch {
			ids[i] = d.id
		}
		ctx, cancel := context.WithTimeout(l.base, wire.CommandLimit)
		existing, err := l.queries.WhichExist(ctx, ids)
		cancel()
		for _, d := range batch {
			d.missing = err == nil && !existing[d.id]
			close(d.answer)
		}
	}
}
