package main

import (
	"math"
	"slices"
	"time"
)

// samples are what a round has shown, or a share of it.
type samples struct {
	Latencies []time.Duration // of all that ended in the window, or were under way when it was shut
	InWindow  int             // of them: ended in the window
	Window    time.Duration   // how long it was open; of several shares, the longest
	Done      int             // in the whole round
	Commands  int64           // sent in the whole round
}

// add takes in n transfers that took the same time.
func (s *samples) add(latency time.Duration, n int, inWindow bool) {
	for range n {
		s.Latencies = append(s.Latencies, latency)
	}
	if inWindow {
		s.InWindow += n
	}
}

func (s *samples) append(others samples) {
	s.Latencies = append(s.Latencies, others.Latencies...)
	s.InWindow += others.InWindow
	s.Done += others.Done
	s.Commands += others.Commands
	s.Window = max(s.Window, others.Window)
}

// figures are what a round has shown. What is not known is NaN.
type figures struct {
	PerSecond     float64 // transfers that ended in the window
	P50, P99, Max float64 // milliseconds, of those and of those under way when it was shut
	Commands      float64 // per transfer, in the whole round, so that none is counted without its transfer
	Writes        float64 // documents written by the server, those of transactions that are aborted among them: the same
	Server        float64 // processor time of all mongods, microseconds: the same
	Program       float64 // the same of this program
}

// figures sums up a round. The counts of documents and the processor times are the caller's to add.
func (s *samples) figures() figures {
	slices.Sort(s.Latencies)
	unknown := math.NaN()
	return figures{
		PerSecond: float64(s.InWindow) / s.Window.Seconds(),
		P50:       s.percentile(50), P99: s.percentile(99), Max: s.percentile(100),
		Commands: each(float64(s.Commands), s.Done), Writes: unknown, Server: unknown, Program: unknown,
	}
}

// each divides by a number of transfers. If there were none, it is not known.
func each(sum float64, transfers int) float64 {
	if transfers == 0 {
		return math.NaN()
	}
	return sum / float64(transfers)
}

// percentile returns, in milliseconds, the least latency that p percent of the samples don't exceed. They are sorted.
func (s *samples) percentile(p float64) float64 {
	n := len(s.Latencies)
	if n == 0 {
		return math.NaN()
	}
	rank := int(math.Ceil(p / 100 * float64(n)))
	return micros(s.Latencies[max(rank, 1)-1]) / 1000
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// median returns the value in the middle, or between the two in the middle. Of nothing, and of what is not known, it is NaN.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 || slices.ContainsFunc(values, math.IsNaN) {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// measure picks one figure.
type measure func(figures) float64

func perSecond(f figures) float64 { return f.PerSecond }
func p50(f figures) float64       { return f.P50 }
func p99(f figures) float64       { return f.P99 }
func longest(f figures) float64   { return f.Max }
func commands(f figures) float64  { return f.Commands }
func writes(f figures) float64    { return f.Writes }
func server(f figures) float64    { return f.Server }
func program(f figures) float64   { return f.Program }

// of returns one figure of each round.
func (m measure) of(rounds []figures) []float64 {
	values := make([]float64, len(rounds))
	for i, f := range rounds {
		values[i] = m(f)
	}
	return values
}

// middle returns the median of one figure.
func (m measure) middle(rounds []figures) float64 { return median(m.of(rounds)) }

// ratios divides the figures of each round by those of the same round of another cell.
func (m measure) ratios(above, below []figures) []float64 {
	list := make([]float64, min(len(above), len(below)))
	for i := range list {
		list[i] = m(above[i]) / m(below[i])
		if math.IsInf(list[i], 0) {
			list[i] = math.NaN() // nothing was done at all in that round
		}
	}
	return list
}
