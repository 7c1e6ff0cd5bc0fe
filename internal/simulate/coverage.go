package simulate

import (
	"slices"
	"strconv"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// Coverage counts which fate each kind of operation has met, each kind of claim, and each
// kind of merged update; and the situations in which executors came to know the outcome.
// A nil Coverage counts nothing.
type Coverage struct {
	situations [situations]int
	operations [protocol.Finish + 1]counts
	claims     [protocol.Replan + 1]counts
	merged     [mixtures]counts
}

// counts are the counts of one kind of operation, or of merged updates.
type counts struct {
	met     [lastFate + 1]int
	matched int // of those that were answered
}

func (c *counts) count(fate Fate, result protocol.Result) {
	c.met[fate]++
	if fate == answered && result == protocol.Applied {
		c.matched++
	}
}

func (c *Coverage) count(op protocol.Operation, fate Fate, result protocol.Result) {
	switch {
	case c == nil:
	case op.Kind == protocol.Claim:
		c.claims[op.Claim].count(fate, result)
	default:
		c.operations[op.Kind].count(fate, result)
	}
}

func (c *Coverage) countMerged(members []Message, fate Fate, result protocol.Result) {
	if c != nil {
		c.merged[mixtureOf(members)].count(fate, result)
	}
}

// Add adds the counts of another Coverage.
func (c *Coverage) Add(other *Coverage) {
	others := other.columns()
	for i, col := range c.columns() {
		for fate := range col.met {
			col.met[fate] += others[i].met[fate]
		}
		col.matched += others[i].matched
	}
	for s := range c.situations {
		c.situations[s] += other.situations[s]
	}
}

// Operations returns the number of operations, and of merged updates, that were counted.
func (c *Coverage) Operations() int {
	sum := 0
	for _, col := range c.columns() {
		for _, count := range col.met {
			sum += count
		}
	}
	return sum
}

// column holds the counts of one kind of operation, or of merged updates.
type column struct {
	*counts
	name  string
	fates []Fate // that can be met
}

func (c *Coverage) columns() []column {
	var all []column
	for kind := protocol.ReadFence; kind <= protocol.Finish; kind++ {
		if kind != protocol.Claim {
			all = append(all, column{&c.operations[kind], kind.String(), fates(kind)})
			continue
		}
		for way := protocol.Insert; way <= protocol.Replan; way++ {
			all = append(all, column{&c.claims[way], way.String(), fates(kind)})
		}
	}
	for m := range mixtures {
		all = append(all, column{&c.merged[m], m.String(), m.fates()})
	}
	return all
}

// Table returns a row for each fate, and a column for each kind of operation, of claim
// and of merged updates, with headings.
// "-" stands where a fate can't be met.
func (c *Coverage) Table() [][]string {
	columns := c.columns()
	head, matched := []string{""}, []string{"it matched"}
	for _, col := range columns {
		head = append(head, col.name)
		matched = append(matched, strconv.Itoa(col.matched))
	}
	rows := [][]string{head}
	for fate := answered; fate <= lastFate; fate++ {
		row := []string{fate.String()}
		for _, col := range columns {
			cell := "-"
			if slices.Contains(col.fates, fate) {
				cell = strconv.Itoa(col.met[fate])
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return append(rows, matched)
}

// Missing returns what has happened less than a number of times: fates that a kind of
// operation or of merged updates has met, answers by which it matched, and situations.
func (c *Coverage) Missing(least int) []string {
	var missing []string
	for _, col := range c.columns() {
		for _, fate := range col.fates {
			if col.met[fate] < least {
				missing = append(missing, col.name+": "+fate.String())
			}
		}
		if col.matched < least {
			missing = append(missing, col.name+": it matched")
		}
	}
	for s, count := range c.situations {
		if count < least {
			missing = append(missing, situation(s).String())
		}
	}
	return missing
}
