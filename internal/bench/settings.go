package main

import (
	"cmp"
	"flag"
	"regexp"
	"strings"
	"time"
)

// How long a round waits for the transfers in progress when its window closes.
const (
	grace      = 5 * time.Second
	shortGrace = 3 * time.Second // for plans of many cells
	quickGrace = time.Second
)

// settings are the values of the flags.
type settings struct {
	claims, quick, verbose bool
	watched                bool
	only, cells, baseline  string
	window, warmup         time.Duration
	rounds                 int
	nodes                  int
	processes              int
	size                   size
	out, draw              string
	cpuprofile             string
}

// parse reads the flags.
func (s *settings) parse(arguments []string) error {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.BoolVar(&s.claims, "claims", false, "measure only what the goals need")
	f.BoolVar(&s.quick, "quick", false, "try a little of everything; the figures mean nothing")
	f.StringVar(&s.baseline, "baseline", "", "program to compare with: this one, built against another version of the library")
	f.StringVar(&s.only, "only", "", "measure only these cells: contender/load/callers, separated by commas; "+
		"with -claims or -baseline: only these groups, such as alone or floor-hot, or all that begin so, such as floor")
	f.StringVar(&s.cells, "cells", "", "measure only the cells whose \"series: name\" matches this regular expression")
	f.DurationVar(&s.window, "for", 0, "how long a round counts transfers (chosen cells: 2 s, goals: 1 s, everything: 1.25 s)")
	f.DurationVar(&s.warmup, "warmup", 0, "how long a round lasts before it counts (a fifth of that, but at least 0.3 s)")
	f.IntVar(&s.rounds, "rounds", 0, "rounds of each cell (3, the goals: 4, a baseline: 6, a single cell: 1)")
	f.IntVar(&s.nodes, "nodes", 1, "with -only or -baseline: nodes of the replica set")
	f.IntVar(&s.processes, "processes", 1, "with -only: processes that share the callers")
	f.IntVar(&s.size.Accounts, "accounts", manyAccounts, "with -only: accounts")
	f.IntVar(&s.size.Stored, "stored", 0, "with -only: transfers that are stored at the start")
	f.BoolVar(&s.watched, "watched", false, "have a change stream open, so that somebody reads the oplog, as in a set of several members")
	f.BoolVar(&s.verbose, "v", false, "print every round")
	f.StringVar(&s.out, "out", "", "folder to write CSV files and pictures to")
	f.StringVar(&s.draw, "draw", "", "folder with a "+cellsFile+" from which its pictures are drawn anew; nothing is measured")
	f.StringVar(&s.cpuprofile, "cpuprofile", "", "file to write a processor profile of this program to")
	return f.Parse(arguments)
}

// judged returns the claims that should be judged.
func (s *settings) judged() ([]claim, error) {
	switch {
	case s.baseline != "":
		return picked(baselineClaims(s.nodes), s.only)
	case s.claims:
		return picked(goals(), s.only)
	}
	return goals(), nil
}

// groups returns the groups that should be measured, for these claims or besides them.
func (s *settings) groups(claims []claim) ([]group, error) {
	var groups []group
	switch {
	case s.claims || s.baseline != "":
		groups = measuredFor(claims)
	case s.only != "":
		g, err := chosenGroup(s.only, func(c *cell) { c.Nodes, c.Size, c.Processes = s.nodes, s.size, s.processes })
		if err != nil {
			return nil, err
		}
		groups = []group{g}
	case s.quick:
		groups = quickGroups()
	default:
		groups = fullGroups()
	}
	filter, err := regexp.Compile(s.cells)
	if err != nil {
		return nil, err
	}
	return filtered(groups, filter), nil
}

// leastWarmup is longer than the library puts anything off.
// So what was put off before the window makes up for what is put off beyond it.
const leastWarmup = 300 * time.Millisecond

// quickTouched is how many accounts a bank of a quick run warms up.
const quickTouched = 64

// touched returns how many accounts a bank warms up at most, 0 for the usual limit.
func (s *settings) touched() int {
	if s.quick {
		return quickTouched
	}
	return 0
}

// durations returns how long rounds last and how many there are.
// The flags say so, or else the mode does.
func (s *settings) durations() (timing, int) {
	window, rounds, patience := 1250*time.Millisecond, 3, shortGrace
	least := leastWarmup
	// The goal table takes some four minutes, and everything takes twenty.
	switch {
	case s.quick:
		window, rounds, patience, least = 30*time.Millisecond, 1, quickGrace, 0
	case s.baseline != "":
		window, rounds = time.Second, 6
	case s.claims:
		window, rounds, patience = time.Second, 4, grace
	case s.only != "" && !strings.Contains(s.only, ","):
		window, rounds, patience = 2*time.Second, 1, grace
	case s.only != "":
		window, patience = 2*time.Second, grace
	}
	window = cmp.Or(s.window, window)
	warmup := cmp.Or(s.warmup, max(window/5, least))
	return timing{Warmup: warmup, Window: window, Grace: patience}, cmp.Or(s.rounds, rounds)
}
