package transfer_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
)

// A statement outlives messages that are lost, each with the driver's repeat, whichever command they are of.
func TestStatementOutlivesLostMessages(t *testing.T) {
	t.Parallel()
	b := newBankWith(t, []transfer.Option{transfer.WithRetention(24 * time.Hour)}, 100, 0)
	b.mustMove("t", 60)
	for n := 0; ; n++ {
		w := &wire{at: n, what: lost, also: map[int]fault{n + 1: lost}}
		c := b.coordinator(b.through(w.client()))
		var told []string
		for e, err := range c.Statement(t.Context(), "a", transfer.StatementQuery{}) {
			require.NoError(t, err, "command %d of %v", n, w.commands)
			told = append(told, fmt.Sprint(e.TransferID, " ", e.Amount, " ", e.Balance))
		}
		require.Equal(t, []string{"t -60 40"}, told)
		if !w.hasStruck() {
			require.Greater(t, n, 3, "it reads the account, the retentions and the entries")
			break
		}
	}
	b.audit(initial(100, 0))
}

// One command that is never answered keeps a statement no longer than a command may take. So it does an audit's look at what may be gone.
func TestStatementOutlivesSilence(t *testing.T) {
	t.Parallel()
	b := newBankWith(t, []transfer.Option{transfer.WithRetention(24 * time.Hour)}, 100, 0)
	b.mustMove("t", 60)
	read := func(w *wire) (commands int) {
		for e, err := range b.coordinator(b.through(w.client())).Statement(t.Context(), "a", transfer.StatementQuery{NewestFirst: true}) {
			require.NoError(t, err)
			require.Equal(t, "t", e.TransferID)
		}
		return len(w.commands)
	}
	w := &wire{at: read(&wire{at: -1}) - 1, what: swallowed} // the last one: it reads which retentions were used
	read(w)
	require.True(t, w.hasStruck())
	w = &wire{what: swallowed}
	_, err := b.coordinator(b.through(w.client())).Audit(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"find", "find"}, w.commands[:2])
	b.audit(initial(100, 0))
}
