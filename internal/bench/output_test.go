package main

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sampleReport has a figure for every cell of the whole benchmark.
func sampleReport(t *testing.T) report {
	t.Helper()
	r := report{conditions: "on a test, twice", groups: fullGroups(), results: map[string]results{}, claims: goals()}
	speed := 100.0
	for _, g := range r.groups {
		if r.results[g.Series] == nil {
			r.results[g.Series] = results{}
		}
		for _, c := range g.Cells {
			speed++
			r.results[g.Series][c] = speeds(speed, 3*speed, 2*speed)
		}
	}
	var err error
	r.verdicts, err = judgeAll(r.claims, r.results)
	require.NoError(t, err)
	return r
}

// The files have every cell and every claim, with the known figures, in as many columns
// as there are names.
func TestCSV(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "new", "folder")
	r := sampleReport(t)
	require.NoError(t, r.write(folder))

	cells := readCSV(t, folder, cellsFile)
	require.Len(t, cells, 1+len(r.cellLines())-1)
	assert.Equal(t, []string{
		"claims: native-uniform", "1", "1000", "0", "1", "uniform", "transfer", "256",
		"3", "202", "101", "303", "4.95", "9.901", "14.85", "5", "7", "", "0", "3",
	}, cells[1])

	verdicts := readCSV(t, folder, claimsFile)
	require.Len(t, verdicts, 1+len(goals()))
	assert.Equal(t, []string{
		"uniform, 256 callers: transfers/s against native at its best of 8, 16, 32 callers", "native/uniform/32", "least",
		"4", "0.9712", "0.9712", "0.9712", "false", "3",
	}, verdicts[1])
	assert.Equal(t, [][]string{{"conditions"}, {"on a test, twice"}}, readCSV(t, folder, conditionsFile))
}

func readCSV(t *testing.T, folder, name string) [][]string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(folder, name))
	require.NoError(t, err)
	lines, err := csv.NewReader(bytes.NewReader(content)).ReadAll()
	require.NoError(t, err)
	return lines
}

// There is a picture for each load on each deployment, for each way to grow, and for the
// README.
// Each is well-formed and shows the library's line.
// Nothing else is drawn, and a second writing replaces the first.
func TestPictures(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	r := sampleReport(t)
	require.NoError(t, r.write(folder))
	require.NoError(t, r.write(folder))
	names, err := filepath.Glob(filepath.Join(folder, "*.svg"))
	require.NoError(t, err)
	for i := range names {
		content, err := os.ReadFile(names[i])
		require.NoError(t, err)
		requireXML(t, content)
		for _, word := range []string{"transfer", "Liberation Sans,Arial"} {
			assert.Contains(t, string(content), word, names[i])
		}
		names[i] = filepath.Base(names[i])
	}
	assert.Equal(t, []string{
		"growth-accounts.svg", "growth-processes.svg", "growth-stored-transfers.svg",
		"hot-load-one-node-latency.svg", "hot-load-one-node.svg", "hot-load-three-nodes-latency.svg", "hot-load-three-nodes.svg",
		"overview.svg", "uniform-load-one-node-latency.svg", "uniform-load-one-node.svg",
		"uniform-load-three-nodes-latency.svg", "uniform-load-three-nodes.svg",
		"zipf-load-one-node-latency.svg", "zipf-load-one-node.svg",
	}, names)
}

// A picture that is drawn again from the file of cells alone is the same.
func TestRedraw(t *testing.T) {
	t.Parallel()
	folder, anew := t.TempDir(), t.TempDir()
	r := sampleReport(t)
	require.NoError(t, r.write(folder))
	content, err := os.ReadFile(filepath.Join(folder, cellsFile))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(anew, cellsFile), content, 0o600))
	require.NoError(t, redraw(anew))
	names, err := filepath.Glob(filepath.Join(folder, "*.svg"))
	require.NoError(t, err)
	for _, name := range names {
		want, err := os.ReadFile(name)
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(anew, filepath.Base(name)))
		require.NoError(t, err)
		if !strings.Contains(name, "latency") { // latencies in the file are rounded
			assert.Equal(t, string(want), string(got), name)
		}
	}

	require.NoError(t, os.WriteFile(filepath.Join(anew, cellsFile), append(content, content[:len(content)/2]...), 0o600))
	require.ErrorContains(t, redraw(anew), cellsFile)
}

// The README's picture compares both loads with native transactions. It is not drawn if
// one of the four lines is missing.
func TestOverview(t *testing.T) {
	t.Parallel()
	r := sampleReport(t)
	drawn, missing := t.TempDir(), t.TempDir()
	require.NoError(t, r.overview(drawn))
	content, err := os.ReadFile(filepath.Join(drawn, overviewFile))
	require.NoError(t, err)
	for _, text := range []string{"this library", "own transactions", "any of 1,000 accounts", "one account takes 90 % of the debits"} {
		assert.Contains(t, string(content), text)
	}
	for c := range r.results[oneNode] {
		if c.Contender == "native" && c.Load == "hot" {
			delete(r.results[oneNode], c)
		}
	}
	require.NoError(t, r.overview(missing))
	assert.NoFileExists(t, filepath.Join(missing, overviewFile))
}

func requireXML(t *testing.T, content []byte) {
	t.Helper()
	decoder := xml.NewDecoder(bytes.NewReader(content))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
	}
}

// The floor is the fastest of the measured contenders, also in a picture of latencies.
// A contender that did nothing is not drawn.
func TestFloorIsTheFastest(t *testing.T) {
	t.Parallel()
	cells := plainCells(append(floors(), "native"), "hot", 64)
	r := report{groups: []group{{oneNode, cells}}, results: map[string]results{oneNode: {
		cells[0]: speeds(100), cells[1]: speeds(300), cells[2]: speeds(200), cells[3]: speeds(0),
	}}}
	for _, c := range r.charts() {
		require.Len(t, c.lines, 1)
		require.Equal(t, "floor", c.lines[0].name)
		require.Len(t, c.lines[0].points, 1)
		want := map[string]float64{"transfers/s": 300, "p99, ms": 2000.0 / 300}[c.y]
		assert.InDelta(t, want, c.lines[0].points[0].Y, 1e-9, c.title)
	}
}

// An unknown figure leaves an empty place, in tables and files.
func TestUnknownIsEmpty(t *testing.T) {
	t.Parallel()
	unknown := measure(perSecond).median(nil)
	assert.Empty(t, number(unknown)+digits(unknown)+spread(nil))
	assert.Equal(t, "12346 123 12.3 1.23 0.123 0", join6(number, 12345.6, 123.4, 12.34, 1.234, 0.1234, 0))
	assert.Equal(t, "12346 123.4 12.35 1.234 0.1234 0", join6(digits, 12345.6, 123.4, 12.345, 1.2341, 0.12341, 0))
}

func join6(format func(float64) string, values ...float64) string {
	text := ""
	for _, v := range values {
		text += " " + format(v)
	}
	return text[1:]
}
