package audit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/mongostore"
)

// A time at which something has happened may be ahead of the clock that the audit has read, by ten minutes at most; one at which something
// will happen may be far ahead.
func TestTimesToCome(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for field, set := range map[string]func(t *mongostore.AuditTransfer, at time.Time){
		"createdAt":    func(t *mongostore.AuditTransfer, at time.Time) { t.CreatedAt = at },
		"lastModified": func(t *mongostore.AuditTransfer, at time.Time) { t.LastModified = at },
		"committedAt":  func(t *mongostore.AuditTransfer, at time.Time) { t.CommittedAt = at },
		"stuckAt":      func(t *mongostore.AuditTransfer, at time.Time) { t.StuckAt = at },
	} {
		later := now.Add(1000 * time.Hour)
		stored := mongostore.AuditTransfer{Transfer: mongostore.Transfer{NotBefore: later, ExpiresAt: later, PurgeAt: later}}
		set(&stored, now.Add(clockTolerance))
		require.Empty(t, wrongTime(&stored, now), field)
		set(&stored, now.Add(clockTolerance+time.Millisecond))
		require.Contains(t, wrongTime(&stored, now), field)
	}
}
