package main

import (
	"fmt"
	"io"
	"os"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows how far the benchmark is.
// It shows a bar on a terminal, a line for each group elsewhere, and a line for each
// round if everything should be shown.
type progress struct {
	out io.Writer
	bar *progressbar.ProgressBar
	all bool
}

// newProgress returns the progress of a number of rounds.
func newProgress(file *os.File, rounds int, all bool) progress {
	p := progress{out: file, all: all}
	if !all && term.IsTerminal(int(file.Fd())) {
		p.bar = progressbar.NewOptions(rounds,
			progressbar.OptionSetWriter(file),
			progressbar.OptionSetWidth(30),
			progressbar.OptionShowCount(),
			progressbar.OptionClearOnFinish(),
		)
	}
	return p
}

// begins says that a group is being prepared.
// No figure depends on whether that can be shown.
func (p progress) begins(g group) {
	if p.bar != nil {
		p.bar.Describe("preparing " + g.Series)
		_ = p.bar.RenderBlank()
		return
	}
	_, _ = fmt.Fprintf(p.out, "%s: %d cells, %s first\n", g.Series, len(g.Cells), g.Cells[0])
}

// shows counts a round.
func (p progress) shows(c cell, f figures) {
	if p.bar != nil {
		p.bar.Describe(c.String())
		_ = p.bar.Add(1)
	}
	if p.all {
		_, _ = fmt.Fprintf(p.out, "  %s: %s transfers/s, p50 %s ms, p99 %s ms, %s commands\n",
			c, number(f.PerSecond), number(f.P50), number(f.P99), number(f.Commands))
	}
}

// clear makes room for a table.
func (p progress) clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
