package transfer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/audit"
)

// uncommittable lets the server refuse to store any transfer as Committed.
func uncommittable(b *bank) func() {
	validate := func(condition bson.M) {
		command := bson.D{{Key: "collMod", Value: "transfers"}, {Key: "validator", Value: condition}}
		require.NoError(b.t, b.db.RunCommand(b.t.Context(), command).Err())
	}
	validate(bson.M{"state": bson.M{"$ne": "Committed"}})
	return func() { validate(bson.M{}) }
}

// A transfer that recovery tries in vain is a finding after ten thresholds, however often it was tried since and in whatever state it is,
// with the reason that recovery has noted.
func TestAuditTellsWhatIsStuck(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		state  transfer.State
		policy transfer.StallPolicy
		at     int
		poison func(b *bank) func()
		since  string // the field
	}{
		{transfer.StatePreparing, transfer.Resume, 3, uncommittable, "stuckAt"},
		{transfer.StateCommitted, transfer.Resume, 4, forbidden("b"), "committedAt"},
		{transfer.StateRollback, transfer.RollBack, 3, forbidden("a"), "stuckAt"},
	} {
		t.Run(string(row.state), func(t *testing.T) {
			t.Parallel()
			b := newBank(t, 100, 0)
			b.stallAt("t", row.at, lost, 60)
			repair := row.poison(b)
			policy := transfer.WithStallPolicy(row.policy)
			c := b.coordinator(b.db, transfer.WithStallThreshold(0), policy)
			for _, want := range [][]audit.Code{{}, {audit.Stalled}} {
				if len(want) > 0 {
					b.set("transfers", "t", row.since, before(10))
				}
				report, err := c.Recover(t.Context())
				require.NoError(t, err)
				require.Equal(t, transfer.RecoveryReport{Found: 1, Stuck: 1}, report)
				require.Equal(t, want, codesOf(b.mustAudit()))
			}
			rec, err := b.Get(t.Context(), "t")
			require.NoError(t, err)
			require.Equal(t, row.state, rec.State)
			require.Contains(t, b.mustAudit().Findings[0].Detail, rec.Stuck.Message)
			repair()
			b.recoverAll(policy)
			b.audit(initial(100, 0))
		})
	}
}

// A threshold of zero says nothing of how long a transfer may take: what is under way is no finding then, and what has stood still for as
// long as ten commands may take is one.
func TestAuditWithAThresholdOfZero(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	b.stallAt("t", 3, lost, 60)
	c := b.coordinator(b.db, transfer.WithStallThreshold(0))
	for _, row := range []struct {
		age  time.Duration
		want []audit.Code
	}{{0, []audit.Code{}}, {45 * time.Second, []audit.Code{}}, {51 * time.Second, []audit.Code{audit.Stalled}}} {
		b.silence("t", row.age)
		report, err := c.Audit(t.Context())
		require.NoError(t, err)
		require.Equal(t, row.want, codesOf(report), row.age)
	}
	b.recoverAll()
	b.audit(initial(100, 0))
}

// What recovery leaves alone for 64 thresholds, because those who took it over were killed again and again, is no finding as long as it
// does, nor the moment that it takes it up.
func TestAuditIsAsPatientAsRecovery(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	b.stallAt("t", 4, lost, 60)
	b.change("transfers", "t", bson.M{"$set": bson.M{"attempts": int64(9), "epoch": int64(10)}})
	for _, row := range []struct {
		thresholds int
		want       []audit.Code
		found      int
	}{{60, []audit.Code{}, 0}, {73, []audit.Code{audit.Stalled}, 1}} {
		b.set("transfers", "t", "lastModified", before(row.thresholds))
		require.Equal(t, row.want, codesOf(b.mustAudit()))
		report, err := b.Recover(t.Context())
		require.NoError(t, err)
		require.Equal(t, transfer.RecoveryReport{Found: row.found, Succeeded: row.found}, report)
	}
	b.audit(initial(100, 0))
}
