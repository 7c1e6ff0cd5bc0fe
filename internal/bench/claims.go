package main

import (
	"fmt"
	"slices"
	"strings"
)

// claim is one row of the goal table.
type claim struct {
	// group names the cells that are measured together, in rounds that alternate.
	// The flag -only picks claims by it.
	group string
	text  string
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

// claimSeries is how the series begin by which claims are judged.
const claimSeries = "claims: "

func (c claim) series() string { return claimSeries + c.group }

// cells returns everything that the claim compares.
func (c claim) cells() []cell { return append([]cell{c.of}, c.against...) }

// picked returns the claims of the groups in a list.
// A name also stands for the groups that begin with it and a hyphen: floor for floor-hot.
// An empty list picks them all.
func picked(all []claim, list string) ([]claim, error) {
	if list == "" {
		return all, nil
	}
	var some []claim
	for name := range strings.SplitSeq(list, ",") {
		of := func(c claim) bool { return strings.HasPrefix(c.group+"-", name+"-") }
		if !slices.ContainsFunc(all, of) {
			return nil, fmt.Errorf("there are no claims %q: the groups are %s", name, strings.Join(groupsOf(all), ", "))
		}
		for _, c := range all {
			if of(c) && !slices.ContainsFunc(some, func(other claim) bool { return other.text == c.text }) {
				some = append(some, c)
			}
		}
	}
	return some, nil
}

// groupsOf returns the groups of claims, each once.
func groupsOf(all []claim) []string {
	var names []string
	for _, c := range all {
		if !slices.Contains(names, c.group) {
			names = append(names, c.group)
		}
	}
	return names
}

// measuredFor returns what has to be measured for claims.
func measuredFor(all []claim) []group {
	var groups []group
	for _, c := range all {
		at := slices.IndexFunc(groups, func(g group) bool { return g.Series == c.series() })
		if at < 0 {
			at = len(groups)
			groups = append(groups, group{Series: c.series()})
		}
		for _, cell := range c.cells() {
			if !slices.Contains(groups[at].Cells, cell) {
				groups[at].Cells = append(groups[at].Cells, cell)
			}
		}
	}
	return groups
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

// judgeAll judges those claims for which everything was measured.
func judgeAll(all []claim, r map[string]results) ([]verdict, error) {
	var list []verdict
	for _, c := range all {
		measured := r[c.series()]
		if slices.ContainsFunc(c.cells(), func(at cell) bool { return len(measured[at]) == 0 }) {
			continue
		}
		v, err := c.judge(measured)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}
