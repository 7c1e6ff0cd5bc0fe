package main

import (
	"fmt"
	"math"
)

// A baseline is this program, built against another version of the library.
// It plays beside the current version, each in a process of its own, with rounds that
// alternate.

const (
	// slower is the share of the baseline's throughput below which the current version
	// counts as slower.
	// Two series of one version differ by as much.
	slower = 0.95
	// baselineFile holds the verdicts.
	baselineFile = "baseline.csv"
)

// baselineClaims say that nothing has become slower, from one caller to a thousand.
func baselineClaims(nodes int) []claim {
	var list []claim
	on := func(c *cell) { c.Nodes = nodes }
	for _, load := range loads() {
		for _, callers := range []int{1, 4, 16, 64, 256, 1024} {
			cells := changed(plainCells([]string{"current", "baseline"}, load, callers), on)
			group, text := fmt.Sprintf("%s-%d", load, callers), fmt.Sprintf("%s, %d callers: ", load, callers)
			list = append(list,
				claim{group, text + "transfers/s against the baseline", slower, false, perSecond, cells[0], cells[1:]},
				claim{group, text + "processor time of program and server", math.NaN(), true, processor, cells[0], cells[1:]})
		}
	}
	return list
}
