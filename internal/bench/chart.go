package main

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// chart is a picture of lines.
type chart struct {
	file, title, x, y string
	lines             []line
}

// line is the line of one contender, in the order of x.
type line struct {
	name   string // the contender's name, which decides the colour
	label  string // the name in the legend; "" means the contender's name
	points plotter.XYs
}

// axis says what x means in a picture.
type axis struct {
	series, label string
	of            func(cell) int
}

// charts returns all pictures for which there are figures.
func (r *report) charts() []chart {
	callers := func(c cell) int { return c.Callers }
	var list []chart
	for _, load := range loads() {
		only := func(c cell) bool { return c.Load == load }
		for _, series := range []string{oneNode, threeNodes} {
			by := axis{series, "callers", callers}
			list = append(list,
				r.chart(by, perSecond, "transfers/s", fmt.Sprintf("%s load, %s", load, series), only),
				r.chart(by, p99, "p99, ms", fmt.Sprintf("%s load, %s: latency", load, series), only))
		}
	}
	all := func(cell) bool { return true }
	for _, by := range []axis{
		{accounts, "accounts", func(c cell) int { return c.Size.Accounts }},
		{stored, "stored transfers", func(c cell) int { return c.Size.Stored }},
		{processes, "processes", func(c cell) int { return c.Processes }},
	} {
		list = append(list, r.chart(by, perSecond, "transfers/s", "growth: "+by.label, all))
	}
	return slices.DeleteFunc(list, func(c chart) bool { return len(c.lines) == 0 })
}

// chart makes one picture of the cells of a series.
// If several floors were measured, the fastest is the floor.
func (r *report) chart(by axis, m measure, y, title string, keep func(cell) bool) chart {
	c := chart{file: fileName(title), title: title, x: by.label, y: y}
	fastest := map[int]float64{} // the throughput of the fastest floor, by x
	for _, g := range r.groups {
		if g.Series != by.series {
			continue
		}
		for _, at := range g.Cells {
			rounds := r.results[g.Series][at]
			value, x := m.median(rounds), by.of(at)
			if !keep(at) || math.IsNaN(value) || math.IsInf(value, 0) || value <= 0 {
				continue
			}
			name := at.Contender
			// The contender floor-plain has a line of its own.
			if slices.Contains(floors(), name) {
				name = "floor"
				speed := measure(perSecond).median(rounds)
				if speed <= fastest[x] {
					continue
				}
				fastest[x] = speed
			}
			c.put(name, plotter.XY{X: float64(x), Y: value})
		}
	}
	return c
}

// put adds a point to a line, and replaces one with the same x.
func (c *chart) put(name string, p plotter.XY) {
	i := slices.IndexFunc(c.lines, func(l line) bool { return l.name == name })
	if i < 0 {
		i = len(c.lines)
		c.lines = append(c.lines, line{name: name})
	}
	points := &c.lines[i].points
	at, found := slices.BinarySearchFunc(*points, p.X, func(p plotter.XY, x float64) int { return cmp.Compare(p.X, x) })
	if found {
		(*points)[at] = p
		return
	}
	*points = slices.Insert(*points, at, p)
}

func fileName(title string) string {
	words := strings.FieldsFunc(title, func(r rune) bool { return r < 'a' || r > 'z' })
	return strings.Join(words, "-") + ".svg"
}

// write draws the picture.
// Both axes are logarithmic, except for a few processes.
func (c chart) write(folder string) error {
	p, err := c.plot()
	if err != nil {
		return err
	}
	p.Y.Max *= 8 // room for the legend
	canvas, err := p.WriterTo(vg.Points(560), vg.Points(380), "svg")
	if err != nil {
		return fmt.Errorf("draw %s: %w", c.title, err)
	}
	return save(canvas, filepath.Join(folder, c.file))
}

// plot lays out the lines, the axes and the legend.
func (c chart) plot() (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, c.x, c.y
	p.BackgroundColor = color.White // pages may be dark
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, decades{}
	if c.x != processes {
		p.X.Scale = plot.LogScale{}
	}
	p.X.Tick.Marker = c.ticks()
	p.Add(plotter.NewGrid())
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.Padding = vg.Points(2)
	for i, l := range c.lines {
		drawn, points, err := plotter.NewLinePoints(l.points)
		if err != nil {
			return nil, fmt.Errorf("draw %s: %w", c.title, err)
		}
		drawn.Color = colourOf(l.name, i)
		drawn.Width = vg.Points(1.5)
		if l.name == "transfer" {
			drawn.Width = vg.Points(3)
		}
		points.Shape, points.Color = draw.CircleGlyph{}, drawn.Color
		p.Add(drawn, points)
		p.Legend.Add(cmp.Or(l.label, l.name), drawn, points)
	}
	for _, style := range []*text.Style{
		&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle,
	} {
		style.Font.Variant = "Sans"
	}
	return p, nil
}

// ticks marks the values of x that were measured.
func (c chart) ticks() plot.ConstantTicks {
	var ticks plot.ConstantTicks
	for _, l := range c.lines {
		for _, p := range l.points {
			tick := plot.Tick{Value: p.X, Label: strconv.FormatFloat(p.X, 'f', -1, 64)}
			if !slices.Contains(ticks, tick) {
				ticks = append(ticks, tick)
			}
		}
	}
	return ticks
}

// decades marks the powers of ten, and the values between them without a label.
type decades struct{}

// Ticks implements plot.Ticker.
func (decades) Ticks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for decade := math.Pow10(int(math.Floor(math.Log10(low)))); decade <= high; decade *= 10 {
		ticks = append(ticks, plot.Tick{Value: decade, Label: strconv.FormatFloat(decade, 'f', -1, 64)})
		for n := 2.0; n < 10; n++ {
			ticks = append(ticks, plot.Tick{Value: n * decade})
		}
	}
	return ticks
}

// colourOf returns a contender's colour, the same in all pictures.
func colourOf(contender string, other int) color.Color {
	colours := map[string]color.RGBA{
		"transfer":           {R: 0x1b, G: 0x6e, B: 0xc2, A: 0xff},
		"transfer-at-commit": {R: 0x7f, G: 0xb6, B: 0xe8, A: 0xff},
		"native":             {R: 0xd9, G: 0x5f, B: 0x02, A: 0xff},
		"naive":              {R: 0xa6, G: 0x76, B: 0x1d, A: 0xff},
		"optimistic":         {R: 0x75, G: 0x70, B: 0xb3, A: 0xff},
		"floor":              {R: 0x66, G: 0x66, B: 0x66, A: 0xff},
		"floor-plain":        {R: 0xaa, G: 0xaa, B: 0xaa, A: 0xff},
	}
	if c, known := colours[contender]; known {
		return c
	}
	return color.Gray{Y: uint8(40 * other)}
}
