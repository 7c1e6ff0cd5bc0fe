package main

import (
	"math"
	"slices"
	"time"
)

// samples are the measurements of a round, or of a part of it.
type samples struct {
	// Latencies holds the latencies of all transfers that ended in the window or were in
	// progress when it closed.
	Latencies []time.Duration
	// InWindow is how many of them ended in the window.
	InWindow int
	// Window is how long the window was open.
	// Of several parts, it is the longest.
	Window time.Duration
	// Done is how many transfers were done in the whole round.
	Done int
	// Commands is how many commands were sent in the whole round.
	Commands int64
	// Waits holds for how many writes each transfer of a lone caller waited, one after
	// the other.
	Waits []int
}

// add adds n transfers that took the same time.
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
	s.Waits = append(s.Waits, others.Waits...)
	s.Window = max(s.Window, others.Window)
}

// figures are the results of a round.
// A value that is not known is NaN.
type figures struct {
	// PerSecond is how many transfers ended in the window, in a second.
	PerSecond float64
	// P50, P99 and Max are latencies in milliseconds: of those transfers, and of those in
	// progress when the window closed.
	P50, P99, Max float64
	// Commands is how many commands were sent for each transfer of the whole round.
	// So no command is counted without its transfer.
	Commands float64
	// Writes is how many documents the server wrote for each transfer of the whole round.
	// Those of aborted transactions count as well.
	Writes float64
	// Server is the processor time of all mongods for each transfer of the whole round,
	// in microseconds.
	Server float64
	// Program is the same for this program, or for those that play instead of it.
	Program float64
	// Waits is for how many writes a transfer waits, one after the other.
	// It is the median, and known for one caller alone.
	Waits float64
}

// figures sums up a round.
// The caller adds the counts of documents and the processor times.
func (s *samples) figures() figures {
	slices.Sort(s.Latencies)
	unknown := math.NaN()
	return figures{
		PerSecond: float64(s.InWindow) / s.Window.Seconds(),
		P50:       s.percentile(50), P99: s.percentile(99), Max: s.percentile(100),
		Commands: perTransfer(float64(s.Commands), s.Done), Writes: unknown, Server: unknown, Program: unknown,
		Waits: waitsOf(s.Waits),
	}
}

// perTransfer divides a sum by a number of transfers.
// If there were none, the result is not known.
func perTransfer(sum float64, transfers int) float64 {
	if transfers == 0 {
		return math.NaN()
	}
	return sum / float64(transfers)
}

// percentile returns, in milliseconds, the least latency that p percent of the samples
// don't exceed.
// The samples must be sorted.
func (s *samples) percentile(p float64) float64 {
	n := len(s.Latencies)
	if n == 0 {
		return math.NaN()
	}
	rank := int(math.Ceil(p / 100 * float64(n)))
	return micros(s.Latencies[max(rank, 1)-1]) / 1000
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// median returns the value in the middle, or the mean of the two in the middle.
// It returns NaN for no values, and if any of them is not known.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 || slices.ContainsFunc(values, math.IsNaN) {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// measure returns one value of the figures.
type measure func(figures) float64

func perSecond(f figures) float64 { return f.PerSecond }
func p50(f figures) float64       { return f.P50 }
func p99(f figures) float64       { return f.P99 }
func longest(f figures) float64   { return f.Max }
func commands(f figures) float64  { return f.Commands }
func writes(f figures) float64    { return f.Writes }
func server(f figures) float64    { return f.Server }
func program(f figures) float64   { return f.Program }
func waits(f figures) float64     { return f.Waits }

// processor is the processor time that a transfer takes in all.
// It depends less on what else the machine does than the throughput does.
func processor(f figures) float64 { return f.Server + f.Program }

// of returns one value of each round.
func (m measure) of(rounds []figures) []float64 {
	values := make([]float64, len(rounds))
	for i, f := range rounds {
		values[i] = m(f)
	}
	return values
}

// median returns the median of one value.
func (m measure) median(rounds []figures) float64 { return median(m.of(rounds)) }

// ratios divides the values of each round by those of the same round of another cell.
func (m measure) ratios(above, below []figures) []float64 {
	list := make([]float64, min(len(above), len(below)))
	for i := range list {
		list[i] = m(above[i]) / m(below[i])
		if math.IsInf(list[i], 0) {
			list[i] = math.NaN() // Nothing was done in that round.
		}
	}
	return list
}
