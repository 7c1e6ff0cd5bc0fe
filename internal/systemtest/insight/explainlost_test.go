package insight

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// A hold is neither to be posted nor voided where the marker is lost, since neither does
// anything to such a document.
func TestExplainHoldOfWhatHasNoMarker(t *testing.T) {
	t.Parallel()
	b := newSeen(t, 1000, 0)
	b.MustHold("t", 10, time.Hour)
	b.SetField("accounts", "a", "pending", bson.M{})
	e, participants := b.explain(b.Coordinator, "t")
	require.Equal(t, []string{`none "a" -10`, `reserved "b" 10`}, participants)
	require.Contains(t, e.Advice, `Without its marker is account "a". `)
	require.Contains(t, e.Advice, "Compare its balance with its history before you post or void the hold")
	require.NotContains(t, e.Advice, "Nothing")
	b.SetField("accounts", "a", "pending", bson.M{"t": int64(-10)})
	e, _ = b.explain(b.Coordinator, "t")
	require.Contains(t, e.Advice, "Nothing. Post takes the money")
	b.end()
}

// An account that is gone is not to be opened anew, since the transfer would end without
// paying: Explain says so before, and doesn't call it settled afterwards.
func TestExplainWhatIsThereAnew(t *testing.T) {
	t.Parallel()
	b := newSeen(t, 1000, 0)
	deleted := bank.Deleted("b")
	b.LeaveRecorded("t", 10)
	restore := deleted(b.Bank)
	e, _ := b.explain(b.Coordinator, "t")
	require.Contains(t, e.Advice, "Don't open or insert a new one in its place", "also before a try was in vain")
	_, err := b.NewRecoverer().Recover(t.Context())
	require.NoError(t, err)
	_, err = b.OpenAccount(t.Context(), transfer.Account{ID: "b"})
	require.NoError(t, err)
	e, participants := b.explain(b.Coordinator, "t")
	require.Equal(t, `not known "b" 10 (the document was gone, and is there again without the marker; it is in the way: `+
		e.Record.Stuck.Message+")", participants[1])
	require.Equal(t, `not known: there again, without the marker, are account "b"`, e.Left)
	require.Contains(t, e.Advice, `A document was gone, and is there again without its marker: account "b". `)
	b.Remove("accounts", "b")
	restore()
	b.end()
}
