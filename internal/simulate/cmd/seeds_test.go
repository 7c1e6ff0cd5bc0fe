package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseSeeds(t *testing.T) {
	for text, want := range map[string][2]uint64{"17": {17, 18}, "0-3": {0, 3}, "5-6": {5, 6}} {
		first, behind, err := parseSeeds(text)
		require.NoError(t, err, text)
		require.Equal(t, want, [2]uint64{first, behind}, text)
	}
	for _, text := range []string{"", "-", "a", "-1", "3-", "3-3", "4-3", "1-2-3"} {
		_, _, err := parseSeeds(text)
		require.ErrorContains(t, err, "a number, or two", text)
	}
}

// All seeds that are asked for are played once, on however many cores, and a single one tells its story.
func TestPlays(t *testing.T) {
	var out strings.Builder
	r := report{out: &out, now: time.Now}
	require.True(t, r.plays(10, 110, 0, 3))
	require.Contains(t, out.String(), "100 runs from seed 10 on")
	require.Contains(t, out.String(), "no invariant was broken")
	require.NotContains(t, out.String(), "the beginning")
	out.Reset()
	require.True(t, r.plays(10, 11, 0, 3))
	require.Contains(t, out.String(), "the beginning\n")
	require.Contains(t, out.String(), "1 runs from seed 10 on")
}
