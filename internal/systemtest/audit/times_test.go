package audit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/audit"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// timeDamages are values that read as times but are beyond the server's range of dates,
// and times in the future.
func timeDamages() []damage {
	now := time.Now().UTC()
	text := now.Add(-time.Minute).Format(time.RFC3339)
	stamp := bson.Timestamp{T: uint32(now.Unix()) - 60}
	done := func(name, field string, value any) damage {
		plant := func(b *bank.Bank) { b.MustMove("t", 60); b.SetField("transfers", "t", field, value) }
		return damage{name, plant, []audit.Code{audit.WrongTime}, "t"}
	}
	damages := []damage{
		{"an end that is a text", func(b *bank.Bank) {
			b.MustHold("t", 60, time.Hour)
			b.SetField("transfers", "t", "expiresAt", now.Add(time.Hour).Format(time.RFC3339))
		}, []audit.Code{audit.WrongTime}, "t"},
		{"a scheduled time that is a text", func(b *bank.Bank) {
			b.MustSubmit("t")
			b.SetField("transfers", "t", "notBefore", text)
		}, []audit.Code{audit.WrongTime}, "t"},
		{"a transfer that was modified next year", func(b *bank.Bank) {
			b.LeaveRecorded("t", 60)
			b.SetField("transfers", "t", "lastModified", now.Add(365*24*time.Hour))
		}, []audit.Code{audit.WrongTime}, "t"},
		done("a commit that is to come", "committedAt", now.Add(time.Hour)),
	}
	for _, field := range []string{
		"createdAt", "lastModified", "committedAt", "notBefore", "askedNotBefore", "fundsUntil", "stuckAt", "expiresAt", "purgeAt",
	} {
		damages = append(damages,
			done(field+" is a text", field, text), done(field+" is a Timestamp", field, stamp), done(field+" is a number", field, now.UnixMilli()))
	}
	return damages
}

// A transfer with unreadable metadata can't be read or recovered, and the audit says so.
// It doesn't check the content of other metadata.
func TestAuditFindsUnreadableMetadata(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.LeaveRecorded("t", 60)
	for kind, odd := range map[string]any{
		"string": "x", "int": 5, "double": 1.5, "bool": true, "date": time.Now(), "timestamp": bson.Timestamp{T: 1}, "minKey": bson.MinKey{},
	} {
		b.SetField("transfers", "t", "metadata", odd)
		_, err := b.Get(t.Context(), "t")
		require.ErrorContains(t, err, "see its field \"metadata", kind)
		report := b.MustAudit()
		require.Equal(t, []audit.Code{audit.Unreadable}, bank.CodesOf(report), kind)
		require.Contains(t, report.Findings[0].Detail, "of type "+kind)
	}
	for _, fine := range []any{nil, bson.M{}, bson.M{"a.b": bson.M{"$c": 1}}, bson.A{}, bson.A{"x"}, bson.A{bson.M{"a": 1}}} {
		b.SetField("transfers", "t", "metadata", fine)
		_, err := b.Get(t.Context(), "t")
		require.NoError(t, err, "%v", fine)
		require.Empty(t, b.MustAudit().Findings, "%v", fine)
	}
	unsetField(b, "transfers", "t", "metadata")
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 0))
}
