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

// The advice for a marker that RepairMarker refuses is not to call it.
// The advice can be followed, and then the account is in order.
func TestAuditAdvisesWhatCanBeDone(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0, 10)
	b.MustMove("done", 1)
	b.MustHold("live", 5, time.Hour)
	large := int64(1)<<62 + 1
	for _, row := range []struct {
		account, key string
		value        any
		code         audit.Code
	}{
		{"c", "%zz", int64(-5), audit.OrphanMarker},
		{"c", "ghost", -5.0, audit.OrphanMarker},
		{"c", "ghost", nil, audit.OrphanMarker},
		{"c", "ghost", "-5", audit.OrphanMarker},
		{"c", "ghost", large, audit.OrphanMarker},
		{"c", "ghost", decimalOf(t, "0.0000000000001"), audit.OrphanMarker},
		{"b", "done", 1.0, audit.FinalMarker},
		{"b", "done", bson.M{"a": 1}, audit.FinalMarker},
		{"c", "live", "1", audit.ForeignMarker},
	} {
		field := "pending." + row.key
		b.SetField("accounts", row.account, field, row.value)
		report := b.MustAudit()
		require.Equal(t, []audit.Code{row.code}, bank.CodesOf(report), row)
		f := report.Findings[0]
		require.Contains(t, f.Advice, "$unset", row)
		require.Error(t, b.RepairMarker(t.Context(), repairOf(f, transfer.KeepBalance)), row)
		removed, err := b.DB.Collection("accounts").UpdateOne(t.Context(),
			bson.M{"_id": row.account, field: row.value}, bson.M{"$unset": bson.M{field: ""}})
		require.NoError(t, err)
		require.EqualValues(t, 1, removed.ModifiedCount, row)
		require.Empty(t, b.MustAudit().Findings, row)
	}
	for key, amount := range map[string]int64{"ghost": -5, "done": 1, "live": 1} {
		b.SetField("accounts", "c", "pending."+key, amount)
		for _, f := range b.MustAudit().Findings {
			require.Contains(t, f.Advice, "RepairMarker removes", key)
			require.NoError(t, b.RepairMarker(t.Context(), repairOf(f, transfer.KeepBalance)), key)
		}
	}
	_, err := b.Void(t.Context(), "live")
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(100, 0, 10))
}

// If one marker of a lost transfer was removed, another one still belongs to a lost
// transfer, with the same advice.
// Its finding reports the decision for the first one, and it is repaired like that one.
func TestAuditKeepsTheStoryOfALostTransfer(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	lose(b, "t")
	first := b.MustAudit().Findings
	require.Len(t, first, 2)
	require.NoError(t, b.RepairMarker(t.Context(), repairOf(first[0], transfer.KeepBalance)))
	second := b.MustAudit().Findings
	require.Len(t, second, 1)
	f := second[0]
	require.EqualValues(t, audit.OrphanMarker, f.Code)
	require.Equal(t, first[1].Account, f.Account)
	require.Equal(t, first[1].Advice, f.Advice)
	marker := "a marker of " + first[0].Amount.String() + " is to be removed"
	for _, part := range []string{`account "` + first[0].Account + `"`, marker, "a test"} {
		require.Contains(t, f.Detail, part)
	}
	require.NoError(t, b.RepairMarker(t.Context(), repairOf(f, transfer.PayIn)))
	b.CheckBooks(bank.Balances(40, 60))
}
