package main

import (
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every cell of every plan can be run, and can be named on the command line.
// No group has a cell twice, because its rounds would count double.
func TestPlans(t *testing.T) {
	t.Parallel()
	for name, groups := range map[string][]group{
		"full": fullGroups(), "quick": quickGroups(), "claims": measuredFor(goals()), "baseline": measuredFor(baselineClaims(3)),
	} {
		for _, g := range groups {
			seen := map[cell]bool{}
			for _, c := range g.Cells {
				require.False(t, seen[c], "%s: %s", name, c)
				seen[c] = true
				named, err := parseCell(plainCell(c.Contender, c.Load, c.Callers).String())
				require.NoError(t, err, name)
				require.Equal(t, plainCell(c.Contender, c.Load, c.Callers), named, name)
				require.GreaterOrEqual(t, c.Callers, c.Processes, name)
			}
		}
	}
}

// The flags choose what is run and for how long.
func TestSettings(t *testing.T) {
	t.Parallel()
	tests := []struct {
		flags  []string
		cells  int
		window time.Duration
		rounds int
	}{
		{[]string{"-claims"}, 43, time.Second, 4},
		{[]string{"-claims", "-for", "5s", "-rounds", "7"}, 43, 5 * time.Second, 7},
		{[]string{"-claims", "-only", "three-nodes,few"}, 9, time.Second, 4},
		{[]string{"-claims", "-quick"}, 43, 30 * time.Millisecond, 1},
		{[]string{"-baseline", "before"}, 36, time.Second, 6},
		{[]string{"-baseline", "before", "-only", "hot-1"}, 2, time.Second, 6},
		{[]string{"-baseline", "before", "-only", "hot,zipf-4"}, 14, time.Second, 6},
		{[]string{"-quick", "-cells", "three-nodes: floor"}, 1, 30 * time.Millisecond, 1},
		{[]string{"-only", "transfer/hot/256"}, 1, 2 * time.Second, 1},
		{[]string{"-only", "transfer/hot/256,native/hot/8"}, 2, 2 * time.Second, 3},
		{[]string{"-cells", "^nothing$"}, 0, 1250 * time.Millisecond, 3},
	}
	for _, test := range tests {
		var s settings
		require.NoError(t, s.parse(test.flags))
		groups, err := s.chosen()
		require.NoError(t, err)
		cells := 0
		for _, g := range groups {
			cells += len(g.Cells)
		}
		timing, rounds := s.durations()
		assert.Equal(t, test.cells, cells, test.flags)
		assert.Equal(t, test.window, timing.Window, test.flags)
		assert.Equal(t, test.rounds, rounds, test.flags)
		assert.Equal(t, slices.Contains(test.flags, "-quick"), s.touched() > 0, "%s: only a quick run may measure a cold bank", test.flags)
	}
}

// A cell that can't be run is refused with the reason.
func TestBadCells(t *testing.T) {
	t.Parallel()
	for text, reason := range map[string]string{
		"transfer/hot":       "contender/load/callers",
		"transfer/hot/0":     "no number of callers",
		"transfer/hot/99999": "no number of callers",
		"transfer/cold/1":    "no load",
		"magic/hot/1":        "no contender",
	} {
		_, err := chosenGroup(text, func(*cell) {})
		require.ErrorContains(t, err, reason)
	}
}

// With -only, the other flags say what the cells are run on.
func TestChosenCells(t *testing.T) {
	t.Parallel()
	var s settings
	require.NoError(t, s.parse([]string{"-only", "transfer/hot/256", "-nodes", "3", "-accounts", "50", "-stored", "7", "-processes", "2"}))
	groups, err := s.chosen()
	require.NoError(t, err)
	want := cell{Nodes: 3, Size: size{50, 7}, Processes: 2, Load: "hot", Contender: "transfer", Callers: 256}
	assert.Equal(t, []group{{chosen, []cell{want}}}, groups)
	assert.Equal(t, "transfer/hot/256 on 3 nodes with 50 accounts with 7 stored by 2 processes", want.String())
	assert.Empty(t, filtered(groups, regexp.MustCompile("native")))
}

// chosen returns what the flags choose.
func (s *settings) chosen() ([]group, error) {
	claims, err := s.judged()
	if err != nil {
		return nil, err
	}
	return s.groups(claims)
}

// Every cell has one turn in a round, and is not always after the same one.
// Of two cells, each is first in every second round.
func TestTurns(t *testing.T) {
	t.Parallel()
	firsts := [2]int{}
	for round := range 4 {
		firsts[turns(round, 2)[0]]++
	}
	assert.Equal(t, [2]int{2, 2}, firsts)
	assert.NotEqual(t, turns(0, 2), turns(1, 2), "also of two rounds")
	before := map[int]bool{}
	for round := range 8 {
		order := turns(round, 5)
		assert.ElementsMatch(t, []int{0, 1, 2, 3, 4}, order)
		if at := slices.Index(order, 2); at > 0 {
			before[order[at-1]] = true
		}
	}
	assert.Len(t, before, 2)
	assert.Equal(t, []int{0}, turns(3, 1))
}
