package main

import (
	"bytes"
	"cmp"
	"fmt"
	"image/color"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// overviewFile is the picture that the README shows.
const overviewFile = "overview.svg"

// panel is one half of the overview.
type panel struct{ load, title string }

func panels() []panel {
	return []panel{
		{"uniform", "any of 1,000 accounts"},
		{"hot", "one account takes 90 % of the debits"},
	}
}

// overview draws the library beside native transactions, on one node.
// It has one panel for each load, with the same scale of transfers per second.
// It draws nothing if a line is missing.
func (r *report) overview(folder string) error {
	var plots []*plot.Plot
	var lowest, highest float64
	for _, half := range panels() {
		c := r.chart(axis{oneNode, "callers", func(c cell) int { return c.Callers }}, perSecond, "transfers/s", half.title,
			func(c cell) bool { return c.Load == half.load })
		labels := map[string]string{"transfer": "this library", "native": "MongoDB's own transactions"}
		c.lines = slices.DeleteFunc(c.lines, func(l line) bool { return labels[l.name] == "" })
		if len(c.lines) < len(labels) {
			return nil
		}
		for i := range c.lines {
			c.lines[i].label = labels[c.lines[i].name]
		}
		p, err := c.plot()
		if err != nil {
			return err
		}
		lowest, highest = min(cmp.Or(lowest, p.Y.Min), p.Y.Min), max(highest, p.Y.Max)
		plots = append(plots, p)
	}
	for _, p := range plots {
		// Room for the legend.
		p.Y.Min, p.Y.Max, p.Y.Tick.Marker = lowest, 2*highest, roundNumbers{}
	}
	canvas, err := draw.NewFormattedCanvas(vg.Points(840), vg.Points(320), "svg")
	if err != nil {
		return fmt.Errorf("draw the overview: %w", err)
	}
	edge := vg.Points(8)
	tiles := draw.Tiles{Rows: 1, Cols: len(plots), PadX: 2 * edge, PadTop: edge, PadBottom: edge, PadLeft: edge, PadRight: edge}
	whole := draw.New(canvas)
	corners := []vg.Point{whole.Min, {X: whole.Max.X, Y: whole.Min.Y}, whole.Max, {X: whole.Min.X, Y: whole.Max.Y}}
	whole.FillPolygon(color.White, corners) // pages may be dark
	for i, half := range plot.Align([][]*plot.Plot{plots}, tiles, whole)[0] {
		plots[i].Draw(half)
	}
	return save(canvas, filepath.Join(folder, overviewFile))
}

// roundNumbers marks 1, 2 and 5 times each power of ten.
type roundNumbers struct{}

// Ticks implements plot.Ticker.
func (roundNumbers) Ticks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for decade := math.Pow10(int(math.Floor(math.Log10(low)))); decade <= high; decade *= 10 {
		for _, n := range []float64{1, 2, 5} {
			if value := n * decade; value >= low && value <= high {
				ticks = append(ticks, plot.Tick{Value: value, Label: strconv.FormatFloat(value, 'f', -1, 64)})
			}
		}
	}
	return ticks
}

// save writes a picture.
// A viewer that lacks its font uses one of the same widths.
func save(canvas io.WriterTo, file string) error {
	var picture bytes.Buffer
	if _, err := canvas.WriteTo(&picture); err != nil {
		return fmt.Errorf("draw %s: %w", file, err)
	}
	const drawn, fallback = "font-family:Liberation Sans;", "font-family:Liberation Sans,Arial,Helvetica,sans-serif;"
	return os.WriteFile(file, bytes.ReplaceAll(picture.Bytes(), []byte(drawn), []byte(fallback)), 0o644)
}
