package overload

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/mongotest"
)

// tries is how often a scenario is played, if only what is timed doesn't hold.
const tries = 3

// requireHolds plays one scenario in its short form. What is counted must hold each time.
// What is timed must hold in one of three tries: other work on the machine takes the time
// of one window or another, a defect takes that of them all.
func requireHolds(t *testing.T, number int) {
	t.Helper()
	for left := tries - 1; ; left-- {
		var told strings.Builder
		report, err := Run(t.Context(), Config{Home: mongotest.URI(), Only: []int{number}, Short: true}, &told)
		t.Log("\n" + told.String())
		require.NoError(t, err)
		require.NotEmpty(t, report.Figures)
		if !again(report, left) {
			require.NoError(t, report.Err())
			return
		}
	}
}

// again tells whether a scenario is to be played again.
func again(report *Report, left int) bool {
	red := report.Red()
	return left > 0 && len(red) > 0 && !slices.ContainsFunc(red, func(f Figure) bool { return !f.Timed })
}

// Only what is timed gets another try, and not for ever.
func TestAgain(t *testing.T) {
	timed, counted := Figure{Must: "less", Timed: true}, Figure{Must: "less"}
	holds := Figure{Must: "less", Timed: true, Holds: true}
	for _, c := range []struct {
		figures []Figure
		left    int
		want    bool
	}{
		{[]Figure{holds}, 2, false},
		{[]Figure{holds, timed}, 2, true},
		{[]Figure{holds, timed}, 0, false},
		{[]Figure{timed, counted}, 2, false},
		{[]Figure{counted}, 2, false},
	} {
		require.Equal(t, c.want, again(&Report{Figures: c.figures}, c.left), "%+v", c)
	}
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
