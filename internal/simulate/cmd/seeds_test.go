package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/simulate"
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

// Each requested seed is played once, on any number of cores, and a single seed prints
// its story.
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

// A search ends with its limit, and reports each scene that it has cut off, even a single
// one with one transfer.
// Each scene has its share of the time, so that a large one doesn't keep others from
// starting.
func TestSearchEndsWithItsLimit(t *testing.T) {
	scenes := len(simulate.Scenes())
	limit := 4 * scenes // by a clock that advances one second with each reading
	var out strings.Builder
	begin, looks := time.Now(), 0
	r := report{out: &out, now: func() time.Time { looks++; return begin.Add(time.Duration(looks) * time.Second) }}
	require.True(t, r.searches(time.Duration(limit)*time.Second))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, scenes+2, "each scene, and the sum")
	not, partly := strings.Count(out.String(), "CUT OFF: not begun"), strings.Count(out.String(), "CUT OFF: there are more")
	require.Less(t, not, scenes/2, "a share is smaller than what the looks at the clock take, and still most are begun")
	require.Positive(t, not)
	require.Positive(t, partly)
	require.Contains(t, lines[len(lines)-1], fmt.Sprintf("%d of %d scenes were cut off", not+partly, scenes))
	require.LessOrEqual(t, looks, limit+scenes+10, "it goes on when its time is up")
}
