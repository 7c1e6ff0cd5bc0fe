package chaos

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/mongotransfer/transfer"
)

// Report is what a run did and found.
type Report struct {
	// Config is the run's configuration.
	Config Config
	// Transfers counts the stored transfers by state.
	Transfers map[transfer.State]int
	// Asked is how often transfers were asked for.
	Asked int
	// Overtaken counts the transfers that were taken over at least once.
	Overtaken int
	// Promised counts the answers at the commit of transfers that another execution has
	// finished: the one that answered was killed, or overtaken.
	Promised int
	// Answers counts the answers by verb and word.
	Answers map[event]int
	// Kinds counts what became of holds, payments, reversals and exchanges.
	Kinds map[string]int
	// Recoveries counts what became of the transfers that recovery found.
	Recoveries map[string]int
	// Faults counts the faults by what they hit.
	Faults map[event]int
	// Arrived counts the messages that arrived after everything else was over, by kind.
	Arrived map[string]int
	// Events counts the events that were delivered, by kind, and Repeated those that were
	// delivered more than once.
	Events   map[transfer.EventKind]int
	Repeated int
	// Snapshots is the number of snapshots that were checked.
	Snapshots int
	// Moving is how many of the snapshots showed money in transit.
	Moving int
	// NoSnapshot is how many attempts to read a snapshot failed.
	NoSnapshot int
	// Doors is how many accounts were compared with the last answer to closing or
	// reopening them.
	Doors int
	// Frozen is how many accounts were compared with the last answer to freezing or
	// unfreezing them.
	Frozen int
	// Found is the number of findings.
	Found int
	// Findings are the texts of the first findings.
	Findings []string
	// Missing is what the run should have done and did not.
	Missing []string
}

// Err returns an error if there are findings, or if the run is void.
func (r Report) Err() error {
	switch {
	case r.Found > 0:
		return fmt.Errorf("chaos: %d findings", r.Found)
	case len(r.Missing) > 0:
		return fmt.Errorf("chaos: the run is void: it lacks %d things", len(r.Missing))
	}
	return nil
}

// add counts what an earlier run with the same configuration did as well, and what both
// lack together.
func (r *Report) add(earlier Report) {
	addCounts(r.Transfers, earlier.Transfers)
	addCounts(r.Answers, earlier.Answers)
	addCounts(r.Kinds, earlier.Kinds)
	addCounts(r.Faults, earlier.Faults)
	addCounts(r.Arrived, earlier.Arrived)
	addCounts(r.Events, earlier.Events)
	r.Repeated += earlier.Repeated
	r.Overtaken += earlier.Overtaken
	r.Promised += earlier.Promised
	r.Snapshots += earlier.Snapshots
	r.Moving += earlier.Moving
	r.Missing = r.missing()
}

func addCounts[K comparable](to, from map[K]int) {
	for key, n := range from {
		to[key] += n
	}
}

func (r *run) report() Report {
	r.journal.mu.Lock()
	defer r.journal.mu.Unlock()
	report := Report{
		Config: r.Config, Transfers: map[transfer.State]int{}, Kinds: map[string]int{},
		Answers: r.journal.words, Recoveries: r.journal.recoveries,
		Faults: r.tally.all(), Arrived: r.arrived, Events: map[transfer.EventKind]int{},
		Doors: r.doorsCompared, Frozen: r.frozenCompared, Snapshots: r.checker.good, Moving: r.checker.moving, NoSnapshot: r.checker.failed,
	}
	for _, n := range r.journal.asked {
		report.Asked += n
	}
	for _, line := range r.journal.strange {
		r.findings.add("report", "a worker's report can't be read: %s", line)
	}
	for _, e := range r.journal.events {
		report.Events[e.first.Kind]++
		if e.times > 1 {
			report.Repeated++
		}
	}
	for _, t := range r.last.transfers {
		report.Transfers[t.State]++
		if t.Epoch > 1 {
			report.Overtaken++
		}
		if kind := t.kind(); kind != "" {
			report.Kinds[kind]++
		}
	}
	for _, e := range r.journal.answers {
		if e.promised(r.last.transfers[e.ID]) {
			report.Promised++
		}
	}
	report.Found, report.Findings = r.findings.all()
	report.Missing = report.missing()
	return report
}

// Print prints the table.
func (r Report) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	// Flush returns the error.
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	line("load\t%s, %d workers with %d clients, %d accounts, seed %d",
		r.Config.For, r.Config.Workers, r.Config.Clients, r.Config.Accounts, r.Config.Seed)
	line("transfers\tasked for %d times, stored %d, succeeded %d, failed %d, taken over %d (%d after an answer at the commit)", r.Asked,
		r.Transfers[transfer.StateSuccess]+r.Transfers[transfer.StateFail], r.Transfers[transfer.StateSuccess],
		r.Transfers[transfer.StateFail], r.Overtaken, r.Promised)
	for _, v := range []verb{
		verbTransfer, verbSubmit, verbWait, verbCancel, verbGet, verbConflict, verbHold, verbPost, verbVoid, verbExtend, verbReverse,
		verbClose, verbReopen, verbFreeze, verbUnfreeze,
	} {
		line("answers to %s\t%s", v, counts(r.Answers, func(e event) (string, bool) { return e.at, e.what == string(v) }))
	}
	line("kinds\t%s", counts(r.Kinds, func(what string) (string, bool) { return what, true }))
	line("events\t%s; %d more than once",
		counts(r.Events, func(kind transfer.EventKind) (string, bool) { return string(kind), true }), r.Repeated)
	line("accounts\t%d compared with the last answer to close or reopen them", r.Doors)
	line("frozen\t%d compared with the last answer to freeze or unfreeze them", r.Frozen)
	line("recovery\t%s", counts(r.Recoveries, func(what string) (string, bool) { return what, true }))
	line("snapshots\t%d checked, %d of them with money in transit, %d not to be had", r.Snapshots, r.Moving, r.NoSnapshot)
	for _, fault := range append(memberFaults(), failover, faultKillWorker, faultStopWorker) {
		line("%s\t%d", fault, r.Faults[event{fault, ""}])
	}
	for _, fault := range append(wireFaults(), faultLate, faultClosed, faultConcern, faultNotPrimary) {
		line("%s\t%s", fault, counts(r.Faults, func(e event) (string, bool) { return e.at, e.what == fault }))
	}
	line("late, after all\t%s", counts(r.Arrived, func(kind string) (string, bool) { return kind, true }))
	line("findings\t%d", r.Found)
	if err := w.Flush(); err != nil {
		return err
	}
	for _, finding := range r.Findings {
		_, _ = fmt.Fprintf(out, "FOUND (seed %d) %s\n", r.Config.Seed, finding)
	}
	for _, what := range r.Missing {
		_, _ = fmt.Fprintf(out, "VOID: %s\n", what)
	}
	return nil
}

// counts returns the picked counts as text, in the order of their names.
func counts[K comparable](all map[K]int, pick func(K) (string, bool)) string {
	var parts []string
	for key, n := range all {
		if name, picked := pick(key); picked {
			parts = append(parts, fmt.Sprintf("%s %d", name, n))
		}
	}
	slices.Sort(parts)
	return cmp.Or(strings.Join(parts, ", "), "none")
}
