package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

// report is everything that was measured.
type report struct {
	conditions string
	groups     []group
	results    map[string]results // by series
	claims     []claim            // to be judged
	verdicts   []verdict
}

// measureAll measures what the settings ask for, and prints and writes the results.
func measureAll(ctx context.Context, s *settings, out io.Writer) error {
	if s.draw != "" {
		return redraw(s.draw)
	}
	claims, err := s.judged()
	if err != nil {
		return err
	}
	groups, err := s.groups(claims)
	if err != nil {
		return err
	}
	if err := printPromises(out, groups); err != nil {
		return err
	}
	r := report{groups: groups, results: map[string]results{}, claims: claims}
	if err := r.measure(ctx, s, out); err != nil {
		return err
	}
	if r.verdicts, err = judgeAll(r.claims, r.results); err != nil {
		return err
	}
	if err := printClaims(out, r.verdicts); err != nil {
		return err
	}
	switch {
	case s.out == "":
		return nil
	case s.baseline != "":
		return writeCSV(filepath.Join(s.out, baselineFile), claimLines(r.verdicts))
	}
	return r.write(s.out)
}

// measure fills in the results, and prints each group when it is done.
func (r *report) measure(ctx context.Context, s *settings, out io.Writer) (err error) {
	timing, rounds := s.durations()
	total := 0
	for _, g := range r.groups {
		total += rounds * len(g.Cells)
	}
	under := run{
		timing: timing, rounds: rounds, deployments: map[int]*deployment{}, baseline: s.baseline, touched: s.touched(), watched: s.watched,
		progress: newProgress(os.Stderr, total, s.verbose),
	}
	defer func() { err = errors.Join(err, under.close(ctx)) }()
	for i, g := range r.groups {
		if r.results[g.Series] == nil {
			r.results[g.Series] = results{}
		}
		if err := under.group(ctx, g, r.results[g.Series]); err != nil {
			return err
		}
		under.progress.clear()
		if i == 0 {
			r.conditions = fmt.Sprintf("MongoDB %s, %s, %s/%s, %d processors, %d rounds of %v after %v",
				under.deployments[g.Cells[0].Nodes].version, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(),
				rounds, timing.Window, timing.Warmup)
			if s.watched {
				r.conditions += ", a change stream open"
			}
			_, _ = fmt.Fprintln(out, r.conditions)
		}
		if err := printCells(out, g.Cells, r.results[g.Series]); err != nil {
			return err
		}
	}
	return nil
}
