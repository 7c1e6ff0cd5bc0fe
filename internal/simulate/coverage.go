package simulate

import (
	"slices"
	"strconv"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// Coverage counts which fate each kind of operation has met, and each kind of merged update. A nil one counts nothing.
type Coverage struct {
	operations [protocol.Finish + 1][lastFate + 1]int
	merged     [mixtures][lastFate + 1]int
	matched    [mixtures]int // of the merged ones that were answered
}

func (c *Coverage) count(kind protocol.Kind, fate Fate) {
	if c != nil {
		c.operations[kind][fate]++
	}
}

func (c *Coverage) countMerged(members []Message, fate Fate, result protocol.Result) {
	if c == nil {
		return
	}
	m := mixtureOf(members)
	c.merged[m][fate]++
	if fate == answered && result == protocol.Applied {
		c.matched[m]++
	}
}

// Add adds another count.
func (c *Coverage) Add(other *Coverage) {
	for kind := range c.operations {
		for fate := range c.operations[kind] {
			c.operations[kind][fate] += other.operations[kind][fate]
		}
	}
	for m := range c.merged {
		for fate := range c.merged[m] {
			c.merged[m][fate] += other.merged[m][fate]
		}
		c.matched[m] += other.matched[m]
	}
}

// Operations returns how many operations, and merged updates, were counted.
func (c *Coverage) Operations() int {
	sum := 0
	for _, counts := range c.operations {
		for _, count := range counts {
			sum += count
		}
	}
	for _, counts := range c.merged {
		for _, count := range counts {
			sum += count
		}
	}
	return sum
}

// column is what was counted for one kind of operation, or of merged updates.
type column struct {
	name   string
	counts [lastFate + 1]int
	fates  []Fate // that can be met
}

func (c *Coverage) columns() []column {
	var all []column
	for kind := protocol.ReadFence; kind <= protocol.Finish; kind++ {
		all = append(all, column{kind.String(), c.operations[kind], fates(kind)})
	}
	for m := range mixtures {
		all = append(all, column{m.String(), c.merged[m], m.fates()})
	}
	return all
}

// Table returns a row for each fate and a column for each kind of operation, and of merged updates, with headings. "-" stands where a fate
// can't be met.
func (c *Coverage) Table() [][]string {
	columns := c.columns()
	head, matched := []string{""}, []string{"it matched"}
	for _, col := range columns {
		head = append(head, col.name)
		matched = append(matched, "")
	}
	rows := [][]string{head}
	for fate := answered; fate <= lastFate; fate++ {
		row := []string{fate.String()}
		for _, col := range columns {
			cell := "-"
			if slices.Contains(col.fates, fate) {
				cell = strconv.Itoa(col.counts[fate])
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	for m := range mixtures {
		matched[len(matched)-int(mixtures)+int(m)] = strconv.Itoa(c.matched[m])
	}
	return append(rows, matched)
}

// Missing returns what was never met: a kind of operation, or of merged updates, and its fate each; and what was merged and never matched.
func (c *Coverage) Missing() []string {
	var missing []string
	for _, col := range c.columns() {
		for _, fate := range col.fates {
			if col.counts[fate] == 0 {
				missing = append(missing, col.name+": "+fate.String())
			}
		}
	}
	for m := range mixtures {
		if c.matched[m] == 0 {
			missing = append(missing, m.String()+": it matched")
		}
	}
	return missing
}
