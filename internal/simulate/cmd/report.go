package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/mongotransfer/transfer/internal/simulate"
)

// report prints what was found, with times by a clock.
type report struct {
	out io.Writer
	now func() time.Time
}

func (r report) print(format string, args ...any) { _, _ = fmt.Fprintf(r.out, format, args...) }

// tell prints what random runs have done.
func (r report) tell(all *tally, first uint64, took time.Duration, cores int) {
	r.print("%d runs from seed %d on, %d transfers, %d operations in %s: %.0f transfers a minute on each of %d cores\n\n",
		all.runs, first, all.transfers, all.met.Operations(), took.Round(time.Millisecond),
		float64(all.transfers)/took.Minutes()/float64(cores), cores)
	table := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range all.met.Table() {
		for _, cell := range row {
			_, _ = fmt.Fprintf(table, "%s\t", cell)
		}
		_, _ = fmt.Fprintln(table)
	}
	_ = table.Flush()
	r.print("\n")
	for _, row := range all.met.Situations() {
		r.print("%9s  %s\n", row[1], row[0])
	}
	if all.failure == nil {
		r.print("\nno invariant was broken\n")
		return
	}
	r.print("\n%v\n%s\n", all.failure, all.failure.Story)
}

// searches searches through all scenes, those of one transfer and those of two, within a
// time limit; with a limit of zero to their ends.
// Each has an equal share of the time that is left: what small ones don't need goes to
// those behind them, and no large one keeps others from being begun.
// Scenes for which there is no time are printed one by one.
func (r report) searches(limit time.Duration) bool {
	scenes := simulate.Scenes()
	states, cuts, start := 0, 0, r.now()
	for i, scene := range scenes {
		begun := r.now()
		left := limit - begun.Sub(start)
		share := left / time.Duration(len(scenes)-i)
		if limit > 0 && left <= 0 {
			r.print("%-75s CUT OFF: not begun\n", scene)
			cuts++
			continue
		}
		found, failure := r.explore(scene, func() bool { return limit > 0 && r.now().Sub(begun) > share })
		if failure != nil {
			r.print("\n%v\n%s\n", failure, failure.Story)
			return false
		}
		states += found.States
		if found.CutOff {
			cuts++
		}
	}
	r.print("\n%d states in %s; no invariant was broken; %d of %d scenes were cut off\n",
		states, r.now().Sub(start).Round(time.Millisecond), cuts, len(scenes))
	return true
}

// explore searches through a scene until it is stopped, and prints how far it has come.
func (r report) explore(scene simulate.Scene, stop func() bool) (simulate.Explored, *simulate.Failure) {
	begun := r.now()
	found, failure := simulate.Explore(scene, stop)
	cut := ""
	if found.CutOff {
		cut = "  CUT OFF: there are more"
	}
	r.print("%-75s %9d states, %6d worlds recovered, %s%s\n",
		scene, found.States, found.Recovered, r.now().Sub(begun).Round(time.Millisecond), cut)
	return found, failure
}
