package audit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/audit"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// uncommittable makes the server refuse to store a transfer as Committed.
func uncommittable(b *bank.Bank) func() {
	validate := func(condition bson.M) {
		command := bson.D{{Key: "collMod", Value: "transfers"}, {Key: "validator", Value: condition}}
		require.NoError(b.T, b.DB.RunCommand(b.T.Context(), command).Err())
	}
	validate(bson.M{"state": bson.M{"$ne": "Committed"}})
	return func() { validate(bson.M{}) }
}

// A transfer that recovery tries in vain is a finding after ten thresholds, with the
// reason that recovery has stored.
// This holds however often it was tried since, and in every state.
func TestAuditTellsWhatIsStuck(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		state  transfer.State
		policy transfer.StallPolicy
		payee  bank.Trace
		poison func(b *bank.Bank) func()
		since  string // the field with the time
	}{
		{transfer.StatePreparing, transfer.Resume, bank.Reserved, uncommittable, "stuckAt"},
		{transfer.StateCommitted, transfer.Resume, bank.Reserved, bank.Forbidden("b"), "committedAt"},
		{transfer.StateRollback, transfer.RollBack, bank.Unprepared, bank.Forbidden("a"), "stuckAt"},
	} {
		t.Run(string(row.state), func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0)
			stored := string(row.state)
			if row.state == transfer.StateRollback {
				stored = "Preparing"
			}
			b.LeaveTraces("t", 60, stored, bank.Reserved, row.payee)
			repair := row.poison(b)
			policy := transfer.WithStallPolicy(row.policy)
			c := b.NewCoordinator(b.DB, transfer.WithStallThreshold(0), policy)
			for _, want := range [][]audit.Code{{}, {audit.Stalled}} {
				if len(want) > 0 {
					b.SetField("transfers", "t", row.since, bank.ThresholdsAgo(10))
				}
				report, err := c.Recover(t.Context())
				require.NoError(t, err)
				require.Equal(t, transfer.RecoveryReport{Found: 1, Stuck: 1}, report)
				require.Equal(t, want, bank.CodesOf(b.MustAudit()))
			}
			rec, err := b.Get(t.Context(), "t")
			require.NoError(t, err)
			require.Equal(t, row.state, rec.State)
			require.Contains(t, b.MustAudit().Findings[0].Detail, rec.Stuck.Message)
			repair()
			b.RecoverAll(policy)
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}

// A threshold of zero doesn't say how long a transfer may take.
// A transfer in progress is not a finding then. One without progress for as long as ten
// commands may take is.
func TestAuditWithAThresholdOfZero(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.LeavePrepared("t", 60)
	c := b.NewCoordinator(b.DB, transfer.WithStallThreshold(0))
	for _, row := range []struct {
		age  time.Duration
		want []audit.Code
	}{{0, []audit.Code{}}, {45 * time.Second, []audit.Code{}}, {51 * time.Second, []audit.Code{audit.Stalled}}} {
		b.Silence("t", row.age)
		report, err := c.Audit(t.Context())
		require.NoError(t, err)
		require.Equal(t, row.want, bank.CodesOf(report), row.age)
	}
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 0))
}

// Recovery leaves a transfer alone for 64 thresholds if the processes that took it over
// were killed again and again.
// It is not a finding as long as that lasts, nor at the moment that recovery takes it up.
func TestAuditIsAsPatientAsRecovery(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.LeaveRecorded("t", 60)
	b.Change("transfers", "t", bson.M{"$set": bson.M{"attempts": int64(9), "epoch": int64(10)}})
	for _, row := range []struct {
		thresholds int
		want       []audit.Code
		found      int
	}{{60, []audit.Code{}, 0}, {73, []audit.Code{audit.Stalled}, 1}} {
		b.SetField("transfers", "t", "lastModified", bank.ThresholdsAgo(row.thresholds))
		require.Equal(t, row.want, bank.CodesOf(b.MustAudit()))
		report, err := b.Recover(t.Context())
		require.NoError(t, err)
		require.Equal(t, transfer.RecoveryReport{Found: row.found, Succeeded: row.found}, report)
	}
	b.CheckBooks(bank.Balances(100, 0))
}
