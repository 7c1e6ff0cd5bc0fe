package transferhttp

import (
	"fmt"
	"math"
	"strings"
)

// The charts are drawn here, on the server, as SVG of a few paths: a library for charts
// would be the second dependency of the module, or a script of many times the size of
// the window.
const (
	// The plot is stretched to the page's width, so these are no pixels.
	chartWidth, chartHeight = 600.0, 120.0
)

// chart is a picture of what changes over the last half hour.
type chart struct {
	// Name is the chart's, in letters and dashes.
	Name string
	// Title says what it shows, and in what unit.
	Title string
	// Summary says it in words, for screen readers.
	Summary string
	// Top is what the upper edge stands for.
	Top string
	// Series are drawn from the first on.
	Series []series
	// Empty says that there is nothing to draw.
	Empty bool
}

// series is one line, or one layer, of a chart.
type series struct {
	// Name is in the legend, and Class says how it is drawn.
	Name, Class string
	// Path is what is drawn, as SVG has it.
	Path string
	// Last is the last value, as text.
	Last string
	// Filled says that it is a layer.
	Filled bool
}

// values are those of a series, one for each slot.
// NaN: there is none.
type values []float64

func newValues() values {
	v := make(values, slotCount-1)
	for i := range v {
		v[i] = math.NaN()
	}
	return v
}

// plot is what a chart is drawn from.
type plot struct {
	names, classes []string
	lines          []values
	text           func(float64) string
}

// layers draws series on top of each other.
func (p plot) layers(c chart) chart {
	totals := newValues()
	for i := range totals {
		for _, line := range p.lines {
			if !math.IsNaN(line[i]) {
				totals[i] = line[i] + orZero(totals[i])
			}
		}
	}
	top := p.scale(&c, []values{totals})
	base := make([]float64, slotCount-1)
	for n, line := range p.lines {
		var path strings.Builder
		for i, value := range line {
			if orZero(value) == 0 {
				continue
			}
			x, width := place(i)
			from, to := height(base[i], top), height(base[i]+value, top)
			fmt.Fprintf(&path, "M%.1f %.1fV%.1fH%.1fV%.1fZ", x, from, to, x+width, from)
			base[i] += value
		}
		c.Series = append(c.Series, series{
			Name: p.names[n], Class: p.classes[n], Path: path.String(), Last: p.last(line), Filled: true,
		})
	}
	c.Summary = p.summary(c, totals)
	return c
}

// curves draws series beside each other.
func (p plot) curves(c chart) chart {
	top := p.scale(&c, p.lines)
	for n, line := range p.lines {
		var path strings.Builder
		draws := false
		for i, value := range line {
			if math.IsNaN(value) {
				draws = false
				continue
			}
			x, width := place(i)
			if !draws {
				fmt.Fprintf(&path, "M%.1f %.1f", x, height(value, top))
			}
			fmt.Fprintf(&path, "L%.1f %.1f", x+width/2, height(value, top))
			draws = true
		}
		c.Series = append(c.Series, series{Name: p.names[n], Class: p.classes[n], Path: path.String(), Last: p.last(line)})
	}
	c.Summary = p.summary(c, p.lines...)
	return c
}

// scale sets what the upper edge stands for, and returns it.
func (p plot) scale(c *chart, lines []values) (top float64) {
	c.Empty = true
	for _, line := range lines {
		for _, value := range line {
			if !math.IsNaN(value) {
				c.Empty = false
				top = max(top, value)
			}
		}
	}
	top = roundUp(top)
	c.Top = p.text(top)
	return top
}

// summary describes a chart in a sentence.
func (p plot) summary(c chart, lines ...values) string {
	if c.Empty {
		return c.Title + ": nothing in the last 30 minutes."
	}
	most := 0.0
	for _, line := range lines {
		for _, value := range line {
			most = max(most, orZero(value))
		}
	}
	last := make([]string, len(c.Series))
	for i, s := range c.Series {
		last[i] = s.Name + " " + s.Last
	}
	return fmt.Sprintf("%s, over the last 30 minutes. Last: %s. The highest was %s.", c.Title, strings.Join(last, ", "), p.text(most))
}

// last returns the last value as text, if that is of the last minute: what is
// repeated (see fill) is of the one before, at most.
func (p plot) last(line values) string {
	for i := len(line) - 1; i >= len(line)-maxGap; i-- {
		if !math.IsNaN(line[i]) {
			return p.text(line[i])
		}
	}
	return "–"
}

// place returns where a slot begins, and how wide it is.
func place(i int) (x, width float64) {
	width = chartWidth / (slotCount - 1)
	return float64(i) * width, width
}

// height returns where a value is drawn, from the upper edge down.
func height(value, top float64) float64 { return chartHeight * (1 - value/top) }

// roundUp returns a number of few digits that is not less, and 1 for nothing.
func roundUp(value float64) float64 {
	if value <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(value)))
	for _, factor := range []float64{1, 1.5, 2, 3, 4, 5, 6, 8} {
		if value <= factor*power {
			return factor * power
		}
	}
	return 10 * power
}

func orZero(value float64) float64 {
	if math.IsNaN(value) {
		return 0
	}
	return value
}
