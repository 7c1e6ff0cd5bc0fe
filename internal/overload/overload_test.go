package overload

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/mongotest"
)

// tries is how often a scenario is played if only timed figures don't hold.
const tries = 3

// requireHolds plays one scenario in its short form.
// What is counted must hold each time.
// What is timed must hold in one of three tries.
// Other work on the machine slows down one window or another, but a defect slows down all
// of them.
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

// again reports whether a scenario should be played again.
func again(report *Report, left int) bool {
	red := report.Red()
	return left > 0 && len(red) > 0 && !slices.ContainsFunc(red, func(f Figure) bool { return !f.Timed })
}

// Only timed figures get another try, and only a few times.
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

// Thousands of calls at once are served at the rate of a few callers, and none of them is
// left in doubt.
func TestFastLine(t *testing.T) { requireHolds(t, 1) }

// The same holds if the line to the server is narrow.
func TestNarrowLine(t *testing.T) { requireHolds(t, 2) }

// One of two clusters falls silent, and later its writes hang.
// No caller is left in doubt, and the cluster is not flooded when it returns.
func TestOutage(t *testing.T) { requireHolds(t, 3) }

// Thousands of callers may wait, at next to no cost for those that move money.
func TestWaiters(t *testing.T) { requireHolds(t, 4) }

// Thousands of callers may ask for one transfer that another process doesn't end.
func TestHanging(t *testing.T) { requireHolds(t, 5) }

// A silent cluster holds up the transfers that involve it, and no others.
func TestSilentCluster(t *testing.T) { requireHolds(t, 6) }

// Four silent clusters don't keep recovery from the others.
func TestRecoveryBesideSilence(t *testing.T) { requireHolds(t, 7) }

// An account that a user's own transaction has locked holds up the transfers that involve
// it, and no others.
func TestLockedAccount(t *testing.T) { requireHolds(t, 8) }

// Transfers of a thousand legs leave room for small ones.
func TestBigNeighbour(t *testing.T) { requireHolds(t, 9) }

// Calls that arrive faster than they are served, with little time each, leave the rate as
// it is: those that would come too late are refused in good time.
func TestArrivals(t *testing.T) { requireHolds(t, 10) }

// Thousands of callers who are refused, and ask again at once, leave the processor to
// those that are served.
func TestImpatientCallers(t *testing.T) { requireHolds(t, 11) }
