package insight

import (
	"strconv"
	"strings"
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

// An account that is missing was removed only where it was certainly there before: a
// removal would be an incident.
func TestExplainWhatWasNeverThere(t *testing.T) {
	t.Parallel()
	const (
		then    = "it was missing then, too"
		perhaps = "it is not there, and may never have been"
		since   = "it was removed since"
	)
	for name, row := range map[string]struct {
		leave func(b seen)
		want  string
	}{
		"refused": {func(b seen) {
			_, err := b.Transfer(b.T.Context(), bank.Move("t", "a", "c", 1))
			require.ErrorIs(b.T, err, transfer.ErrAccountNotFound)
		}, then},
		"being rolled back": {func(b seen) {
			_, err := b.Transfer(b.T.Context(), bank.Move("t", "a", "c", 1))
			require.ErrorIs(b.T, err, transfer.ErrAccountNotFound)
			b.SetBack("t", "Rollback")
		}, then},
		"refused for another": {func(b seen) {
			_, err := b.Transfer(b.T.Context(), bank.Move("t", "nobody", "c", 1))
			require.ErrorIs(b.T, err, transfer.ErrAccountNotFound)
		}, perhaps},
		"cancelled": {func(b seen) {
			_, err := b.Submit(b.T.Context(), bank.Move("t", "a", "c", 1))
			require.NoError(b.T, err)
			_, err = b.Cancel(b.T.Context(), "t", "")
			require.NoError(b.T, err)
		}, perhaps},
		"voided": {func(b seen) {
			b.open("c")
			_, err := b.Hold(b.T.Context(), bank.Move("t", "a", "c", 1), time.Hour)
			require.NoError(b.T, err)
			_, err = b.Void(b.T.Context(), "t")
			require.NoError(b.T, err)
			b.RecoverAll()
			b.Remove("accounts", "c")
		}, since},
		"moved, and back": {func(b seen) {
			b.open("c")
			_, err := b.Transfer(b.T.Context(), bank.Move("t", "a", "c", 1))
			require.NoError(b.T, err)
			_, err = b.Reverse(b.T.Context(), transfer.Reversal{ID: "r", Of: "t", All: true})
			require.NoError(b.T, err)
			b.RecoverAll()
			b.Remove("accounts", "c")
		}, since},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newSeen(t, 1000, 0)
			row.leave(b)
			e, participants := b.explain(b.Coordinator, "t")
			require.Equal(t, `missing "c" 1 (`+row.want+")", participants[1])
			if e.Record.State == transfer.StateSuccess {
				b.open("c") // the books have it
			}
			b.end()
		})
	}
}

// open opens an account.
func (b seen) open(id string) {
	b.T.Helper()
	_, err := b.OpenAccount(b.T.Context(), transfer.Account{ID: id})
	require.NoError(b.T, err)
}

// The text of an explanation has all of an ID, so that it can be copied.
func TestExplainNamesWholeIDs(t *testing.T) {
	t.Parallel()
	b := newSeen(t, 1000, 0)
	long := func(name string) string { return name + strings.Repeat("-\u202e0123456789", 12) }
	b.open(long("account"))
	_, err := b.Transfer(t.Context(), bank.Move(long("transfer"), "a", long("account"), 1))
	require.NoError(t, err)
	_, err = b.Reverse(t.Context(), transfer.Reversal{ID: long("reversal"), Of: long("transfer"), All: true})
	require.NoError(t, err)
	moved, _ := b.explain(b.Coordinator, long("transfer"))
	back, _ := b.explain(b.Coordinator, long("reversal"))
	whole := strconv.Quote
	for _, part := range []string{
		"transfer " + whole(long("transfer")), "settled   " + whole(long("account")), "the last of it by " + whole(long("reversal")),
	} {
		require.Contains(t, moved.String(), part)
	}
	require.Contains(t, back.String(), "(reverses "+whole(long("transfer"))+")")
	require.NotContains(t, moved.String()+back.String(), "…")
	b.end()
}
