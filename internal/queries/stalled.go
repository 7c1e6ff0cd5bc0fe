package queries

import (
	"context"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
)

// LooksStalled guesses whether a takeover with this threshold would get the transfer: the server's
// clock decides. See standingStill.
func (s *Queries) LooksStalled(ctx context.Context, t document.Transfer, threshold time.Duration) bool {
	if threshold <= 0 {
		return true
	}
	now, err := s.ReachedTime(wire.Detached(ctx))
	if err != nil {
		return false
	}
	age := now.Sub(t.LastModified).Milliseconds()
	return age >= document.StallMillis(threshold, document.Doublings(t.Attempts, t.Stuck != nil)) || -age > document.StallMillis(threshold, 0)
}

// LooksExpired guesses whether a hold has expired: the server's clock decides.
func (s *Queries) LooksExpired(ctx context.Context, t document.Transfer) bool {
	now, err := s.ReachedTime(wire.Detached(ctx))
	return err == nil && !now.Before(t.ExpiresAt)
}
