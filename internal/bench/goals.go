package main

import (
	"fmt"
	"math"
	"slices"
)

// The groups of the goal table.
const (
	nativeUniform = "native-uniform"
	nativeHot     = "native-hot"
	floorUniform  = "floor-uniform"
	floorHot      = "floor-hot"
	manyUniform   = "64-uniform"
	manyHot       = "64-hot"
	few           = "few"
	nodes3        = "three-nodes"
	alone         = "alone"
	events        = "events"
)

// goals returns the goal table.
func goals() []claim {
	// Those on three nodes come last, for which another deployment is started.
	return slices.Concat(nativeGoals(), floorGoals(), aloneGoals(), eventGoals(), fewGoals())
}

// nativeGoals are those of many callers, against native transactions.
func nativeGoals() []claim {
	native := []string{"native"}
	return []claim{
		{nativeUniform, "uniform, 256 callers: transfers/s against native at its best of 8, 16, 32 callers", 4, false, perSecond,
			ours("uniform", 256), plainCells(native, "uniform", 8, 16, 32)},
		{nativeHot, "hot, 256 callers: transfers/s against native at 256 callers", 30, false, perSecond,
			ours("hot", 256), plainCells(native, "hot", 256)},
		{nativeHot, "hot, 256 callers: transfers/s against native at its best of 2, 4, 8 callers", 12, false, perSecond,
			ours("hot", 256), plainCells(native, "hot", 2, 4, 8)},
		{manyUniform, "uniform, 64 callers: transfers/s against native at 64 callers", 2, false, perSecond,
			ours("uniform", 64), plainCells(native, "uniform", 64)},
		{manyHot, "hot, 64 callers: p99 against native", 1.0 / 40, true, p99,
			ours("hot", 64), plainCells(native, "hot", 64)},
	}
}

// floorGoals are those of many callers, against the floor, and what a transfer costs.
func floorGoals() []claim {
	var list []claim
	for _, by := range []struct {
		group, load string
		ratio       float64
	}{{floorUniform, "uniform", 0.5}, {floorHot, "hot", 0.7}} {
		us, text := ours(by.load, 256), by.load+", 256 callers: "
		list = append(list,
			claim{by.group, text + "transfers/s against the floor", by.ratio, false, perSecond,
				us, plainCells(floors(), by.load, 256)},
			claim{by.group, text + "transfers/s against the floor by plain commands", math.NaN(), false, perSecond,
				us, plainCells([]string{"floor-plain"}, by.load, 256)},
			claim{by.group, text + "processor time of program and server against the floor", math.NaN(), true, processor,
				us, plainCells(floors(), by.load, 256)},
			claim{by.group, text + "commands per transfer", 0.08, true, commands, us, nil},
			claim{by.group, text + "processor time of the program per transfer, µs", math.NaN(), true, program, us, nil},
		)
	}
	return list
}

// eventGoals are what events cost those who move money: to leave them, and to deliver
// them on the same machine meanwhile.
func eventGoals() []claim {
	var list []claim
	for _, load := range []string{"uniform", "hot"} {
		off := plainCells([]string{"transfer"}, load, 256)
		on, delivered := plainCell("transfer-events", load, 256), plainCell("transfer-delivering", load, 256)
		text := load + ", 256 callers: transfers/s with events"
		list = append(list,
			claim{events, text + " against those without", 0.95, false, perSecond, on, off},
			claim{events, text + " that this process delivers, against those without", math.NaN(), false, perSecond, delivered, off},
		)
	}
	return list
}

// fewGoals are those of a few callers, on one node and on three.
// What the floor has there bounds what any protocol could have.
func fewGoals() []claim {
	var list []claim
	for _, by := range []struct {
		group          string
		nodes, callers int
		ratio          float64
	}{{few, 1, 16, 1.2}, {few, 1, 4, 0.65}, {nodes3, 3, 16, 1.3}} {
		on := func(contender string) []cell {
			return changed(plainCells([]string{contender}, "uniform", by.callers), func(c *cell) { c.Nodes = by.nodes })
		}
		text := fmt.Sprintf("uniform, %d callers: ", by.callers)
		if by.nodes > 1 {
			text = fmt.Sprintf("%d nodes, %s", by.nodes, text)
		}
		against := fmt.Sprintf(" against native at %d callers", by.callers)
		native := on("native")
		list = append(list,
			claim{by.group, text + "transfers/s" + against, by.ratio, false, perSecond, on("transfer")[0], native},
			claim{by.group, text + "transfers/s of the floor" + against, math.NaN(), false, perSecond, on("floor-1")[0], native},
		)
	}
	return list
}

// aloneGoals are those of one caller alone.
func aloneGoals() []claim {
	alone := func(text string, goal float64, m measure, contender string, against ...string) claim {
		return claim{
			alone, "one caller: " + text, goal, true, m,
			plainCell(contender, "uniform", 1), plainCells(against, "uniform", 1),
		}
	}
	none := math.NaN()
	return []claim{
		alone("latency by default against native", 2, p50, "transfer", "native"),
		alone("latency to an answer at commit against native", 1.3, p50, "transfer-at-commit", "native"),
		alone("latency to Success against native", none, p50, "transfer-at-success", "native"),
		alone("latency to Success against the naive 8 steps", 0.6, p50, "transfer-at-success", "naive"),
		alone("latency to an answer at commit against the naive 8 steps", none, p50, "transfer-at-commit", "naive"),
		alone("waits before the default answer", 3, waits, "transfer"),
		alone("waits before an answer at commit", none, waits, "transfer-at-commit"),
		alone("commands per transfer", 5, commands, "transfer"),
		alone("processor time of the program per transfer, µs", none, program, "transfer"),
	}
}

// ours returns a cell of the library.
func ours(load string, callers int) cell { return plainCell("transfer", load, callers) }
