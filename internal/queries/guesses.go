package queries

import (
	"context"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
)

// LooksStalled guesses whether a takeover with this threshold would get the transfer. The
// server's clock decides: see [document.StandingStill].
func (q *Queries) LooksStalled(ctx context.Context, t document.Transfer, threshold time.Duration) bool {
	if threshold <= 0 {
		return true
	}
	now, err := q.catalog.ReachedTime(wire.Detached(ctx))
	if err != nil {
		return false
	}
	age := now.Sub(t.LastModified).Milliseconds()
	return age >= document.StallMillis(threshold, document.Doublings(t.Attempts, t.Stuck != nil)) || -age > document.StallMillis(threshold, 0)
}

// LooksExpired guesses whether a hold has expired. The server's clock decides.
func (q *Queries) LooksExpired(ctx context.Context, t document.Transfer) bool {
	now, err := q.catalog.ReachedTime(wire.Detached(ctx))
	return err == nil && !now.Before(t.ExpiresAt)
}
