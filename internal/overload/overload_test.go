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

// Thousands who ask at once are served at the rate of few, and none of them is left in doubt.
func TestFastLine(t *testing.T) { requireHolds(t, 1) }

// The same holds where the line to the server is narrow.
func TestNarrowLine(t *testing.T) { requireHolds(t, 2) }
