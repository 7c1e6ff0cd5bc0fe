package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// redraw draws the pictures of a folder again, from the medians in its file of cells.
func redraw(folder string) error {
	file, err := os.Open(filepath.Join(folder, cellsFile))
	if err != nil {
		return err
	}
	lines, err := csv.NewReader(file).ReadAll()
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("%s: %w", file.Name(), err)
	}
	r := report{results: map[string]results{}}
	for _, line := range lines[min(1, len(lines)):] {
		if err := r.read(lines[0], line); err != nil {
			return fmt.Errorf("%s: %q: %w", file.Name(), line, err)
		}
	}
	return r.draw(folder)
}

// read adds one cell, whose median stands for its rounds.
func (r *report) read(names, line []string) error {
	var failed []error
	text := func(name string) string { return line[slices.Index(names, name)] }
	whole := func(name string) int {
		n, err := strconv.Atoi(text(name))
		failed = append(failed, err)
		return n
	}
	figure := func(name string) float64 {
		x, err := strconv.ParseFloat(text(name), 64)
		failed = append(failed, err)
		return x
	}
	series := text("series")
	c := cell{
		Nodes: whole("nodes"), Size: size{whole("accounts"), whole("stored")}, Processes: whole("processes"),
		Load: text("load"), Contender: text("contender"), Callers: whole("callers"),
	}
	if r.results[series] == nil {
		r.results[series] = results{}
	}
	r.results[series][c] = []figures{{PerSecond: figure("transfers_per_second"), P99: figure("p99_ms")}}
	r.groups = append(r.groups, group{series, []cell{c}})
	return errors.Join(failed...)
}
