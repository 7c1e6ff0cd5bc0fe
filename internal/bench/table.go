package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// number formats a figure with three significant digits.
// It returns "" if the figure is not known.
func number(x float64) string {
	switch {
	case math.IsNaN(x):
		return ""
	case math.Abs(x) >= 100 || x == 0:
		return fmt.Sprintf("%.0f", x)
	case math.Abs(x) >= 10:
		return fmt.Sprintf("%.1f", x)
	case math.Abs(x) >= 1:
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

func columns(w io.Writer) *tabwriter.Writer {
	return tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
}

// printCells prints the medians of cells, in their order.
func printCells(w io.Writer, cells []cell, r results) error {
	t := columns(w)
	write(t, "transfers/s", "rounds", "p50 ms", "p99 ms", "max ms", "commands", "writes", "server µs", "program µs", "waits", "\t")
	for _, c := range cells {
		line := []string{number(measure(perSecond).median(r[c])), spread(measure(perSecond).of(r[c]))}
		for _, m := range []measure{p50, p99, longest, commands, writes, server, program, waits} {
			line = append(line, number(m.median(r[c])))
		}
		write(t, append(line, "\t"+c.String())...)
	}
	return t.Flush()
}

// printPromises prints what each contender of the cells guarantees.
func printPromises(w io.Writer, groups []group) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range contenders() {
		taking := func(at cell) bool { return at.Contender == c.name }
		if slices.ContainsFunc(groups, func(g group) bool { return slices.ContainsFunc(g.Cells, taking) }) {
			write(t, c.name, c.promise)
		}
	}
	return t.Flush()
}

// write prints a line of a table.
// Flushing the table returns the error.
func write(w io.Writer, fields ...string) { _, _ = fmt.Fprintln(w, strings.Join(fields, "\t")) }

// spread formats the least and the largest value.
func spread(values []float64) string {
	if len(values) == 0 {
		return ""
	}
	return number(slices.Min(values)) + ".." + number(slices.Max(values))
}

// within formats the least and the largest value.
func within(values []float64) string {
	if len(values) == 0 || slices.ContainsFunc(values, math.IsNaN) {
		return ""
	}
	return "(" + number(slices.Min(values)) + " … " + number(slices.Max(values)) + ")"
}

// printClaims prints what was judged: the median of the rounds, the least and the largest
// of them, and their number.
func printClaims(w io.Writer, verdicts []verdict) error {
	if len(verdicts) == 0 {
		return nil
	}
	t := columns(w)
	write(t, "must reach", "reached", "(min … max)", "rounds", "", "\t")
	for _, v := range verdicts {
		sign, answer := "≥", "yes"
		if v.claim.atMost {
			sign = "≤"
		}
		if !v.holds {
			answer = "NO"
		}
		if math.IsNaN(v.claim.goal) {
			sign, answer = "", ""
		}
		text := v.claim.text
		if len(v.claim.against) > 1 {
			text += fmt.Sprintf(" (%s)", v.opponent)
		}
		write(t, sign+" "+number(v.claim.goal), number(v.reached), within(v.rounds), strconv.Itoa(len(v.rounds)), answer, "\t"+text)
	}
	return t.Flush()
}
