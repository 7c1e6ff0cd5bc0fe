package main

import (
	"encoding/csv"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// The files that are written beside the pictures.
const (
	cellsFile      = "cells.csv"
	claimsFile     = "claims.csv"
	conditionsFile = "conditions.csv"
)

// write writes everything into a folder.
func (r *report) write(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	conditions := [][]string{{"conditions"}, {r.conditions}}
	failed := []error{
		writeCSV(filepath.Join(folder, conditionsFile), conditions),
		writeCSV(filepath.Join(folder, cellsFile), r.cellLines()),
	}
	if len(r.verdicts) > 0 {
		failed = append(failed, writeCSV(filepath.Join(folder, claimsFile), claimLines(r.verdicts)))
	}
	return errors.Join(append(failed, r.draw(folder))...)
}

// draw draws all pictures for which there are figures.
func (r *report) draw(folder string) error {
	failed := []error{r.overview(folder)}
	for _, c := range r.charts() {
		failed = append(failed, c.write(folder))
	}
	return errors.Join(failed...)
}

func writeCSV(name string, lines [][]string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(csv.NewWriter(file).WriteAll(lines), file.Close())
}

// cellLines returns the medians of all cells, with the slowest and the fastest round.
func (r *report) cellLines() [][]string {
	lines := [][]string{{
		"series", "nodes", "accounts", "stored", "processes", "load", "contender", "callers", "rounds", "transfers_per_second", "slowest_round",
		"fastest_round", "p50_ms", "p99_ms", "max_ms", "commands_per_transfer", "writes_per_transfer", "server_us_per_transfer",
		"program_us_per_transfer", "waits",
	}}
	for _, g := range r.groups {
		for _, c := range g.Cells {
			rounds := r.results[g.Series][c]
			line := []string{g.Series}
			for _, n := range []int{c.Nodes, c.Size.Accounts, c.Size.Stored, c.Processes} {
				line = append(line, strconv.Itoa(n))
			}
			line = append(line, c.Load, c.Contender, strconv.Itoa(c.Callers), strconv.Itoa(len(rounds)))
			for _, x := range append([]float64{measure(perSecond).median(rounds)}, extremes(measure(perSecond).of(rounds))...) {
				line = append(line, digits(x))
			}
			for _, m := range []measure{p50, p99, longest, commands, writes, server, program, waits} {
				line = append(line, digits(m.median(rounds)))
			}
			lines = append(lines, line)
		}
	}
	return lines
}

func claimLines(verdicts []verdict) [][]string {
	lines := [][]string{{"claim", "against", "at", "goal", "reached", "worst_round", "best_round", "holds", "rounds"}}
	for _, v := range verdicts {
		least := "least"
		worst, best := 0, len(v.rounds)-1
		if v.claim.atMost {
			least = "most"
			worst, best = best, worst
		}
		against := ""
		if len(v.claim.against) > 0 {
			against = v.opponent.String()
		}
		holds := strconv.FormatBool(v.holds)
		if math.IsNaN(v.claim.goal) {
			least, holds = "", ""
		}
		lines = append(lines, []string{
			v.claim.text, against, least, digits(v.claim.goal), digits(v.reached), digits(v.rounds[worst]), digits(v.rounds[best]), holds,
			strconv.Itoa(len(v.rounds)),
		})
	}
	return lines
}

// extremes returns the least and the largest value.
func extremes(values []float64) []float64 {
	if len(values) == 0 {
		return []float64{math.NaN(), math.NaN()}
	}
	return []float64{slices.Min(values), slices.Max(values)}
}

// digits formats a figure with four significant digits.
// It returns "" if the figure is not known.
func digits(x float64) string {
	if math.IsNaN(x) {
		return ""
	}
	if math.Abs(x) >= 1000 {
		return strconv.FormatFloat(math.Round(x), 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'g', 4, 64)
}
