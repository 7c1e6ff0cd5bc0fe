package overload

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/mongotest"
)

// requireHolds plays one scenario in its short form.
func requireHolds(t *testing.T, number int) {
	t.Helper()
	var told strings.Builder
	report, err := Run(t.Context(), Config{Home: mongotest.URI(), Only: []int{number}, Short: true}, &told)
	t.Log("\n" + told.String())
	require.NoError(t, err)
	require.NotEmpty(t, report.Figures)
	require.NoError(t, report.Err())
}

// Thousands who ask at once are served at the rate of few, and none of them is left in
// doubt.
func TestFastLine(t *testing.T) { requireHolds(t, 1) }

// The same holds where the line to the server is narrow.
func TestNarrowLine(t *testing.T) { requireHolds(t, 2) }

// Two clusters, of which one falls silent, and later lets its writes hang: nobody is left
// in doubt, and it is not flooded when it is back.
func TestOutage(t *testing.T) { requireHolds(t, 3) }

// Thousands may wait, at next to no cost for those who move money.
func TestWaiters(t *testing.T) { requireHolds(t, 4) }

// Thousands may ask for one transfer that another process doesn't end.
func TestHanging(t *testing.T) { requireHolds(t, 5) }

// A silent cluster holds up those who touch it, and nobody else.
func TestSilentCluster(t *testing.T) { requireHolds(t, 6) }

// Four silent clusters don't keep recovery from the others.
func TestRecoveryBesideSilence(t *testing.T) { requireHolds(t, 7) }

// An account that a user's own transaction has locked holds up those who touch it, and
// nobody else.
func TestLockedAccount(t *testing.T) { requireHolds(t, 8) }

// Transfers of a thousand legs leave room for small ones.
func TestBigNeighbour(t *testing.T) { requireHolds(t, 9) }
