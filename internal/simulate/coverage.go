package simulate

import (
	"strconv"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// Coverage counts which fate each kind of operation has met.
type Coverage [protocol.Finish + 1][lastFate + 1]int

// Add adds another count.
func (c *Coverage) Add(other *Coverage) {
	for kind := range c {
		for fate := range c[kind] {
			c[kind][fate] += other[kind][fate]
		}
	}
}

// Operations returns how many operations were counted.
func (c *Coverage) Operations() int {
	sum := 0
	for kind := range c {
		for fate := range c[kind] {
			sum += c[kind][fate]
		}
	}
	return sum
}

// Table returns a row for each fate and a column for each kind of operation, with headings. "-" stands where a fate can't be met.
func (c *Coverage) Table() [][]string {
	head := []string{""}
	for kind := protocol.ReadFence; kind <= protocol.Finish; kind++ {
		head = append(head, kind.String())
	}
	rows := [][]string{head}
	for fate := answered; fate <= lastFate; fate++ {
		row := []string{fate.String()}
		for kind := protocol.ReadFence; kind <= protocol.Finish; kind++ {
			cell := "-"
			if canMeet(kind, fate) {
				cell = strconv.Itoa(c[kind][fate])
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return rows
}

// Missing returns what was never met: a kind of operation and its fate each.
func (c *Coverage) Missing() []string {
	var missing []string
	for kind := protocol.ReadFence; kind <= protocol.Finish; kind++ {
		for fate := answered; fate <= lastFate; fate++ {
			if canMeet(kind, fate) && c[kind][fate] == 0 {
				missing = append(missing, kind.String()+": "+fate.String())
			}
		}
	}
	return missing
}
