package main

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func milliseconds(values ...int) []time.Duration {
	var list []time.Duration
	for _, v := range values {
		list = append(list, time.Duration(v)*time.Millisecond)
	}
	return list
}

// A percentile is one of the samples: the smallest one that this percentage of them don't
// exceed.
// It doesn't depend on their order.
func TestPercentiles(t *testing.T) {
	t.Parallel()
	var hundred samples
	for i := range 100 {
		hundred.add(time.Duration(100-i)*time.Millisecond, 1, true)
	}
	tests := []struct {
		name          string
		samples       samples
		p50, p99, max float64
	}{
		{"a hundred", hundred, 50, 99, 100},
		{"one", samples{Latencies: milliseconds(7)}, 7, 7, 7},
		{"two", samples{Latencies: milliseconds(9, 1)}, 1, 9, 9},
		{"a hundred and one", samples{Latencies: append(milliseconds(1000), hundred.Latencies...)}, 51, 100, 1000},
	}
	for _, test := range tests {
		f := test.samples.figures()
		assert.Equal(t, []float64{test.p50, test.p99, test.max}, []float64{f.P50, f.P99, f.Max}, test.name)
	}
	assert.True(t, math.IsNaN((&samples{}).figures().P99), "of nothing there is no percentile")
}

// Transfers that ended in the window count for the throughput.
// Transfers in progress when it closed count for the latency as well.
// A batch counts as many times as it has transfers.
// Commands are divided among all transfers of the round, including those of the warm-up.
func TestFiguresOfShares(t *testing.T) {
	t.Parallel()
	a := samples{Done: 30, Commands: 90, Window: 2 * time.Second}
	a.add(time.Millisecond, 10, true)
	b := samples{Done: 20, Commands: 60, Window: time.Second}
	b.add(3*time.Millisecond, 4, true)
	b.add(5*time.Millisecond, 4, false)
	a.append(b)
	f := a.figures()
	assert.InDelta(t, 7, f.PerSecond, 0)
	assert.InDelta(t, 3, f.Commands, 0)
	assert.InDelta(t, 1, f.P50, 0)
	assert.InDelta(t, 5, f.Max, 0)
	for _, unknown := range []float64{f.Writes, f.Server, f.Program, f.Waits} {
		assert.True(t, math.IsNaN(unknown), "nobody has measured it")
	}
	assert.True(t, math.IsNaN(perTransfer(5, 0)))
}

// The median is the value in the middle, and doesn't change the order of the rounds.
// One unknown round makes it unknown.
func TestMedian(t *testing.T) {
	t.Parallel()
	values := []float64{3, 1, 2}
	assert.InDelta(t, 2, median(values), 0)
	assert.Equal(t, []float64{3, 1, 2}, values)
	assert.InDelta(t, 2.5, median([]float64{4, 1, 3, 2}), 0)
	assert.True(t, math.IsNaN(median(nil)))
	assert.True(t, math.IsNaN(median([]float64{1, math.NaN(), 2})))
}

// Ratios are taken round by round, since a slow moment of the machine slows both.
// A round in which the opponent did nothing is not an infinite win.
func TestRatios(t *testing.T) {
	t.Parallel()
	above, below := speeds(10, 40, 90, 7), speeds(5, 10, 0)
	list := measure(perSecond).ratios(above, below)
	require.Len(t, list, 3)
	assert.Equal(t, []float64{2, 4}, list[:2])
	assert.True(t, math.IsNaN(list[2]))
}

// speeds returns rounds with these numbers of transfers per second.
func speeds(values ...float64) []figures {
	var list []figures
	for _, v := range values {
		f := figures{PerSecond: v, P50: 1000 / v, P99: 2000 / v, Max: 3000 / v, Commands: 5, Writes: 7, Waits: 3}
		f.Server = math.NaN()
		list = append(list, f)
	}
	return list
}
