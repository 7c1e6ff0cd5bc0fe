package main

import (
	"fmt"
	"strconv"
	"strings"
)

// manyAccounts is the usual number of accounts.
const manyAccounts = 1000

// size is how much is stored from the beginning.
type size struct{ Accounts, Stored int }

// cell is what one figure was measured for.
type cell struct {
	Nodes     int
	Size      size
	Processes int
	Load      string
	Contender string
	Callers   int
}

// plainCell returns a cell on one node, with nothing stored, played by one process.
func plainCell(contender, load string, callers int) cell {
	return cell{Nodes: 1, Size: size{Accounts: manyAccounts}, Processes: 1, Contender: contender, Load: load, Callers: callers}
}

// plainCells returns the cells of contenders at numbers of callers.
func plainCells(contenders []string, load string, callers ...int) []cell {
	var list []cell
	for _, contender := range contenders {
		for _, n := range callers {
			list = append(list, plainCell(contender, load, n))
		}
	}
	return list
}

// parseCell reads contender/load/callers.
func parseCell(text string) (cell, error) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return cell{}, fmt.Errorf("a cell is contender/load/callers, not %q", text)
	}
	callers, err := strconv.Atoi(parts[2])
	if err != nil || callers < 1 || callers >= maxCallers {
		return cell{}, fmt.Errorf("%q is no number of callers", parts[2])
	}
	if _, err := picker(parts[1], 2, nil); err != nil {
		return cell{}, err
	}
	_, err = contenderOf(parts[0])
	return plainCell(parts[0], parts[1], callers), err
}

// String returns contender/load/callers, and everything that is not as usual.
func (c cell) String() string {
	text := fmt.Sprintf("%s/%s/%d", c.Contender, c.Load, c.Callers)
	if c.Nodes != 1 {
		text += fmt.Sprintf(" on %d nodes", c.Nodes)
	}
	if c.Size.Accounts != manyAccounts {
		text += fmt.Sprintf(" with %d accounts", c.Size.Accounts)
	}
	if c.Size.Stored != 0 {
		text += fmt.Sprintf(" with %d stored", c.Size.Stored)
	}
	if c.Processes != 1 {
		text += fmt.Sprintf(" by %d processes", c.Processes)
	}
	return text
}

// results are the figures of each round, by cell.
type results map[cell][]figures

// group is a number of cells that are compared with each other, so their rounds
// alternate.
type group struct {
	// Series names the picture that all groups of the series share.
	Series string
	Cells  []cell
}
