package main

import (
	"regexp"
	"strings"
)

// The series of the whole benchmark, besides the claims.
const (
	oneNode    = "one node"
	threeNodes = "three nodes"
	accounts   = "accounts"
	stored     = "stored transfers"
	processes  = "processes"
	chosen     = "chosen"
)

// fullGroups returns the groups of the whole benchmark.
func fullGroups() []group {
	groups := measuredFor(goals())
	numbers := []int{1, 16, 64, 256, 1024}
	for _, load := range loads() {
		for _, callers := range numbers {
			contenders := append([]string{"transfer", "native", "naive", "optimistic"}, floorsFor(callers)...)
			if callers == 1 || callers == 64 || callers == 256 {
				contenders = append(contenders, "transfer-at-commit")
			}
			groups = append(groups, group{oneNode, plainCells(contenders, load, callers)})
		}
		// Transactions are fastest with fewer callers.
		between := append(plainCells([]string{"native"}, load, 2, 4, 8, 32), ours(load, 4))
		groups = append(groups, group{oneNode, between})
	}
	for _, load := range []string{"uniform", "hot"} {
		for _, callers := range numbers {
			contenders := []string{"transfer", "native", "floor-2"}
			if callers == 1 || callers == 64 {
				contenders = append(contenders, "transfer-at-commit", "naive", "optimistic")
			}
			groups = append(groups, group{threeNodes, changed(plainCells(contenders, load, callers), func(c *cell) { c.Nodes = 3 })})
		}
	}
	return append(groups, growthGroups([]int{1_000, 10_000, 100_000, 1_000_000}, []int{10_000, 100_000, 1_000_000}, 4)...)
}

// growthGroups returns the groups that show how figures change with the number of
// accounts, of stored transfers and of processes.
func growthGroups(numbersOfAccounts, numbersOfTransfers []int, mostProcesses int) []group {
	var groups []group
	cells := []cell{plainCell("transfer", "uniform", 256), plainCell("native", "uniform", 16)}
	for _, n := range numbersOfAccounts {
		groups = append(groups, group{accounts, changed(cells, func(c *cell) { c.Size.Accounts = n })})
	}
	for _, n := range numbersOfTransfers {
		groups = append(groups, group{stored, changed(cells, func(c *cell) { c.Size.Stored = n })})
	}
	shared := group{Series: processes}
	for n := range mostProcesses {
		c := plainCell("transfer", "hot", 256)
		c.Processes = n + 1
		shared.Cells = append(shared.Cells, c)
	}
	return append(groups, shared)
}

// floorsFor returns the floors that are worth a try for a number of callers.
func floorsFor(callers int) []string {
	switch {
	case callers < 64:
		return floors()[:1]
	case callers < 256:
		return floors()[:2]
	}
	return append(floors(), "floor-plain")
}

// quickGroups returns a little of everything: the goals, and what no goal measures.
func quickGroups() []group {
	groups := append(measuredFor(goals()),
		group{oneNode, plainCells([]string{"transfer", "naive", "optimistic", "floor-1"}, "zipf", 16)})
	return append(groups, growthGroups([]int{2000}, []int{1000}, 2)...)
}

// changed returns copies of cells, each with a change.
func changed(cells []cell, change func(*cell)) []cell {
	list := append([]cell(nil), cells...)
	for i := range list {
		change(&list[i])
	}
	return list
}

// chosenGroup parses a list of cells.
func chosenGroup(text string, change func(*cell)) (group, error) {
	g := group{Series: chosen}
	for name := range strings.SplitSeq(text, ",") {
		c, err := parseCell(name)
		if err != nil {
			return group{}, err
		}
		g.Cells = append(g.Cells, c)
	}
	g.Cells = changed(g.Cells, change)
	return g, nil
}

// filtered returns the cells whose series and name, with a colon between them, match.
func filtered(groups []group, filter *regexp.Regexp) []group {
	var kept []group
	for _, g := range groups {
		some := group{Series: g.Series}
		for _, c := range g.Cells {
			if filter.MatchString(g.Series + ": " + c.String()) {
				some.Cells = append(some.Cells, c)
			}
		}
		if len(some.Cells) > 0 {
			kept = append(kept, some)
		}
	}
	return kept
}
