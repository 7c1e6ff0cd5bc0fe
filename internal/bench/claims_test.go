package main

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A claim is judged by the median of the ratios of its rounds, against the opponent that
// is best by its own median.
// A figure equal to the goal holds.
func TestJudge(t *testing.T) {
	t.Parallel()
	us, slow, fast := plainCell("transfer", "hot", 256), plainCell("native", "hot", 2), plainCell("native", "hot", 8)
	r := results{us: speeds(300, 100, 200), slow: speeds(10, 90, 10), fast: speeds(20, 50, 50)}
	tests := []struct {
		name     string
		claim    claim
		opponent cell
		reached  float64
		rounds   []float64
		holds    bool
	}{
		{"at least, reached", claim{goal: 4, measure: perSecond, of: us, against: []cell{slow, fast}}, fast, 4, []float64{2, 4, 15}, true},
		{"at least, missed", claim{goal: 4.1, measure: perSecond, of: us, against: []cell{fast}}, fast, 4, []float64{2, 4, 15}, false},
		{"at most, reached", claim{goal: 0.25, atMost: true, measure: p99, of: us, against: []cell{slow, fast}}, fast,
			0.25, []float64{1.0 / 15, 0.25, 0.5}, true},
		{"at most, missed", claim{goal: 0.2, atMost: true, measure: p99, of: us, against: []cell{fast}}, fast,
			0.25, []float64{1.0 / 15, 0.25, 0.5}, false},
		{"a figure of our own", claim{goal: 5, atMost: true, measure: commands, of: us}, cell{}, 5, []float64{5, 5, 5}, true},
	}
	for _, test := range tests {
		v, err := test.claim.judge(r)
		require.NoError(t, err, test.name)
		assert.Equal(t, test.opponent, v.opponent, test.name)
		assert.InDelta(t, test.reached, v.reached, 1e-9, test.name)
		assert.InDeltaSlice(t, test.rounds, v.rounds, 1e-9, test.name)
		assert.Equal(t, test.holds, v.holds, test.name)
	}
}

// A claim never holds because something was not measured, or because the opponent did
// nothing.
func TestNothingIsNoVictory(t *testing.T) {
	t.Parallel()
	us, other := plainCell("transfer", "hot", 256), plainCell("native", "hot", 2)
	for _, atMost := range []bool{false, true} {
		c := claim{goal: 1, atMost: atMost, measure: perSecond, of: us, against: []cell{other}}
		v, err := c.judge(results{us: speeds(1), other: speeds(0)})
		require.NoError(t, err)
		assert.False(t, v.holds)
		assert.True(t, math.IsNaN(v.reached))
		for _, r := range []results{{us: speeds(1)}, {other: speeds(1)}} {
			_, err = c.judge(r)
			require.ErrorContains(t, err, "was not measured")
		}
	}
}

// Everything that a claim compares is measured in one group, so that its rounds alternate
// with those of its opponents.
// A group needs one deployment, and no claim has the text of another one.
func TestClaimsAreMeasuredTogether(t *testing.T) {
	t.Parallel()
	for _, all := range [][]claim{goals(), baselineClaims(1), baselineClaims(3)} {
		texts := map[string]bool{}
		for _, c := range all {
			together := 0
			for _, g := range measuredFor(all) {
				if g.Series == c.series() && subset(c.cells(), g.Cells) {
					together++
				}
				for _, at := range g.Cells {
					require.Equal(t, g.Cells[0].Nodes, at.Nodes, g.Series)
				}
			}
			assert.Equal(t, 1, together, c.text)
			assert.False(t, texts[c.text], c.text)
			texts[c.text] = true
		}
	}
}

// A list picks the claims of groups by their names, or by how these begin up to a hyphen,
// each once and in the order of the list.
func TestPickedClaims(t *testing.T) {
	t.Parallel()
	all := goals()
	everything, err := picked(all, "")
	require.NoError(t, err)
	assert.Len(t, everything, len(all))
	some, err := picked(all, "three,floor,floor-hot")
	require.NoError(t, err)
	assert.Equal(t, []string{nodes3, floorUniform, floorHot}, groupsOf(some))
	assert.Len(t, measuredFor(some), 3)
	assert.Len(t, some, 2+5+5)
	rungs, err := picked(baselineClaims(1), "hot-1,zipf-10")
	require.ErrorContains(t, err, `no claims "zipf-10"`)
	assert.Empty(t, rungs)
	rungs, err = picked(baselineClaims(1), "hot-1,zipf-16")
	require.NoError(t, err)
	assert.Equal(t, []string{"hot-1", "zipf-16"}, groupsOf(rungs))
}

// Claims are judged by the figures of their own group alone.
// Those that lack a figure are not judged.
func TestJudgeWhatWasMeasured(t *testing.T) {
	t.Parallel()
	us, other := ours("hot", 256), plainCell("native", "hot", 2)
	all := []claim{
		{"a", "first", 4, false, perSecond, us, []cell{other}},
		{"b", "second", 4, false, perSecond, us, []cell{other}},
		{"c", "third", 4, false, perSecond, us, []cell{other}},
	}
	list, err := judgeAll(all, map[string]results{
		claimSeries + "a": {us: speeds(100), other: speeds(20)},
		claimSeries + "b": {us: speeds(100), other: speeds(50)},
		claimSeries + "c": {us: speeds(100)},
	})
	require.NoError(t, err)
	require.Len(t, list, 2)
	assert.True(t, list[0].holds)
	assert.False(t, list[1].holds)
}

func subset(some, all []cell) bool {
	for _, c := range some {
		found := false
		for _, other := range all {
			found = found || other == c
		}
		if !found {
			return false
		}
	}
	return true
}
