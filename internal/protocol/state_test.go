package protocol

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStoredWordsStay promises that what older versions have stored is understood: the
// states and the codes of the reasons are spelled as they always were, and each code says
// one thing.
func TestStoredWordsStay(t *testing.T) {
	for word, state := range map[string]State{
		"Initiated": Initiated, "Preparing": Preparing, "Committed": Committed, "Success": Success, "Rollback": Rollback,
		"Fail": Fail,
	} {
		require.Equal(t, State(word), state)
		require.True(t, state.Known())
		require.Equal(t, state == Success || state == Fail, state.Final())
	}
	require.False(t, State("").Known())
	require.False(t, State("success").Known())

	codes := []string{
		"accountNotFound", "accountClosed", "accountFrozen", "currencyMismatch", "amountKind", "accountBusy", "insufficientFunds", "overflow",
		"requirementFailed", "alreadyReversed", "reversalExceeds", "unwritable", "cancelled", "stalled", "voided", "expired",
	}
	for i, code := range codes {
		require.Equal(t, code, (NotFound + Reason(i)).String())
	}
	require.Equal(t, "unknown", Reason(0).String())
}
