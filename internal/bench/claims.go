package main

import (
	"fmt"
	"math"
	"slices"
)

// claim is one row of the goal table.
type claim struct {
	text string
	// goal is the bound.
	// If it is NaN, the figure is only reported.
	goal float64
	// atMost says that the figure must be at most the goal, and not at least.
	atMost  bool
	measure measure
	of      cell // the cell whose figures are judged
	// against holds the opponents. The best of them counts.
	// If it is empty, the figures themselves are compared with the goal.
	against []cell
}

// verdict is the result of a claim.
type verdict struct {
	claim    claim
	reached  float64   // the median of the rounds
	rounds   []float64 // sorted
	opponent cell      // the best of those that the claim names
	holds    bool
}

// plainCells returns the cells of contenders at numbers of callers.
func plainCells(contenders []string, load string, callers ...int) []cell {
	var list []cell
	for _, contender := range contenders {
		for _, n := range callers {
			list = append(list, plainCell(contender, load, n))
		}
	}
	return list
}

// claims returns the goal table.
func claims() []claim {
	native, none := []string{"native"}, math.NaN()
	us := func(load string, callers int) cell { return plainCell("transfer", load, callers) }
	return []claim{
		{"uniform, 256 callers: transfers/s against native at its best of 8, 16, 32 callers", 2.5, false, perSecond,
			us("uniform", 256), plainCells(native, "uniform", 8, 16, 32)},
		{"hot, 256 callers: transfers/s against native at 256 callers", 30, false, perSecond,
			us("hot", 256), plainCells(native, "hot", 256)},
		{"hot, 256 callers: transfers/s against native at its best of 2, 4, 8 callers", 8, false, perSecond,
			us("hot", 256), plainCells(native, "hot", 2, 4, 8)},
		{"uniform, 256 callers: transfers/s against the floor", 0.5, false, perSecond,
			us("uniform", 256), plainCells(floors(), "uniform", 256)},
		{"hot, 256 callers: transfers/s against the floor", 0.7, false, perSecond,
			us("hot", 256), plainCells(floors(), "hot", 256)},
		{"uniform, 64 callers: transfers/s against native at 64 callers", 2, false, perSecond,
			us("uniform", 64), plainCells(native, "uniform", 64)},
		{"hot, 64 callers: p99 against native", 1.0 / 30, true, p99,
			us("hot", 64), plainCells(native, "hot", 64)},
		{"one caller: latency to Success against the naive 8 steps", 0.6, true, p50,
			us("uniform", 1), plainCells([]string{"naive"}, "uniform", 1)},
		{"one caller: commands per transfer", 5, true, commands, us("uniform", 1), nil},
		{"uniform, 256 callers: commands per transfer", 0.08, true, commands, us("uniform", 256), nil},
		{"hot, 256 callers: commands per transfer", 0.08, true, commands, us("hot", 256), nil},
		{"uniform, 256 callers: transfers/s against the floor by plain commands", none, false, perSecond,
			us("uniform", 256), plainCells([]string{"floor-plain"}, "uniform", 256)},
		{"hot, 256 callers: transfers/s against the floor by plain commands", none, false, perSecond,
			us("hot", 256), plainCells([]string{"floor-plain"}, "hot", 256)},
		{"one caller: latency to an answer at commit against the naive 8 steps", none, true, p50,
			plainCell("transfer-at-commit", "uniform", 1), plainCells([]string{"naive"}, "uniform", 1)},
		{"one caller: latency to Success against native", none, true, p50,
			us("uniform", 1), plainCells(native, "uniform", 1)},
	}
}

// claimSeries is the series by which claims are judged.
const claimSeries = "claims"

// claimGroups returns the groups that have to be measured for the claims.
func claimGroups() []group {
	var uniform, hot, alone []cell
	add := func(c cell) {
		list := &uniform
		switch {
		case c.Callers == 1:
			list = &alone
		case c.Load == "hot":
			list = &hot
		}
		if !slices.Contains(*list, c) {
			*list = append(*list, c)
		}
	}
	for _, c := range claims() {
		for _, cell := range append([]cell{c.of}, c.against...) {
			add(cell)
		}
	}
	return []group{{claimSeries, uniform}, {claimSeries, hot}, {claimSeries, alone}}
}

// judge compares a claim with what was measured.
func (c claim) judge(r results) (verdict, error) {
	v := verdict{claim: c}
	ours := r[c.of]
	if len(ours) == 0 {
		return v, fmt.Errorf("%s was not measured", c.of)
	}
	v.rounds = c.measure.of(ours)
	if len(c.against) > 0 {
		v.opponent = r.best(c.against, c.measure, c.atMost)
		if len(r[v.opponent]) == 0 {
			return v, fmt.Errorf("%s was not measured", v.opponent)
		}
		v.rounds = c.measure.ratios(ours, r[v.opponent])
	}
	v.reached = median(v.rounds)
	slices.Sort(v.rounds)
	v.holds = v.reached >= c.goal
	if c.atMost {
		v.holds = v.reached <= c.goal
	}
	return v, nil
}

// best returns the cell with the largest or the least median.
func (r results) best(cells []cell, m measure, least bool) cell {
	return slices.MaxFunc(cells, func(a, b cell) int {
		order := 1
		if least {
			order = -1
		}
		switch x, y := m.median(r[a]), m.median(r[b]); {
		case x > y:
			return order
		case x < y:
			return -order
		}
		return 0
	})
}

// judgeAll judges the goal table.
func judgeAll(r results) ([]verdict, error) {
	var list []verdict
	for _, c := range claims() {
		v, err := c.judge(r)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}
