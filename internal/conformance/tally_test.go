package conformance

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/simulate"
)

// tally counts what was drawn and what the World answered. What never happens is not
// compared.
type tally struct {
	mu         sync.Mutex
	counts     map[string]int
	properties int // that were tried
}

// properties is the number of properties.
const properties = 4

func row(op protocol.Operation, result protocol.Result) string {
	return strings.TrimSpace(op.Kind.String()+" "+op.Claim.String()) + ": " + result.String()
}

// alone is the row of the writes with one unmet condition and no other.
func alone(kind protocol.Kind, condition string) string {
	return fmt.Sprintf("%s, lacking nothing but %q", kind, condition)
}

func (c *tally) count(op protocol.Operation, result protocol.Result, hindrances []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[row(op, result)]++
	if len(hindrances) == 1 {
		c.counts[alone(op.Kind, hindrances[0])]++
	}
}

func remembered(old bool) string {
	return fmt.Sprintf("ReadFence answered from memory, outdated: %t", old)
}

func (c *tally) countRemembered(old bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[remembered(old)]++
}

// mixed is the row of the merged updates of a kind that ended with a result.
// Alone says whether each member would have matched by itself.
func mixed(what string, result protocol.Result, alone bool) string {
	return fmt.Sprintf("merged %s, of which each would match alone, %t: %s", what, alone, result)
}

// The kinds of merged updates.
const (
	prepares          = "prepares"
	pays              = "pays"
	clears            = "clears"
	paysAndClears     = "pays and clears"
	clearsAndPrepares = "clears and prepares"
	paysAndPrepares   = "pays and prepares"
	fencings          = "clears with a new fence"
)

// beside names the trace in whose place a write needs another one, or none.
func beside(trace protocol.Trace) string {
	switch trace {
	case protocol.Reserved:
		return "no marker in its place"
	case protocol.Done:
		return "no done mark in its place"
	default:
		return "a trace"
	}
}

func mixture(members []simulate.Message) string {
	var preparing, paying, clearing bool
	for _, m := range members {
		switch m.Op.Kind {
		case protocol.Prepare:
			preparing = true
		case protocol.Pay:
			paying = true
		default:
			clearing = true
		}
	}
	switch {
	case slices.ContainsFunc(members, newFence):
		return fencings
	case preparing && paying:
		return paysAndPrepares
	case preparing && clearing:
		return clearsAndPrepares
	case preparing:
		return prepares
	case paying && clearing:
		return paysAndClears
	case paying:
		return pays
	}
	return clears
}

func (c *tally) countMerged(members []simulate.Message, result protocol.Result, alone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[mixed(mixture(members), result, alone)]++
}

// The rows that count parts of holds.
const (
	part       = "Settle of a part of a hold at the credit: Applied"
	restOfPart = "Settle of a part of a hold at the debit: Applied"
	mergedPart = "Settle of a part of a hold, merged: Applied"
	// freeBesideDoneMark counts documents that are reserved beside a done mark.
	freeBesideDoneMark = "Prepare at a document with a done mark: Applied"
)

// atDocument is the row of the writes to the document of an effect, or to the original of
// a reversal.
func atDocument(kind protocol.Kind, reversed bool) string {
	if reversed {
		return fmt.Sprintf("%s at the original of a reversal: Applied", kind)
	}
	return fmt.Sprintf("%s at the document of an effect: Applied", kind)
}

func (c *tally) note(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[what]++
}

func readBack(result protocol.Result) string {
	return "read back after a short count: " + result.String()
}

func (c *tally) countReadBack(result protocol.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[readBack(result)]++
}

func (c *tally) tried() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.properties++
}

// rows returns what has to happen in every run.
func rows() []string {
	var all []string
	for kind := protocol.ReadFence; kind <= protocol.Finish; kind++ {
		ways := []protocol.ClaimKind{0}
		if kind == protocol.Claim {
			ways = []protocol.ClaimKind{
				protocol.Insert, protocol.FromInitiated, protocol.TakeOver, protocol.TakeToCancel, protocol.CancelInitiated,
				protocol.TakeUnheld, protocol.Post, protocol.Expire,
			}
		}
		for _, way := range ways {
			op := protocol.Operation{Kind: kind, Claim: way}
			all = append(all, row(op, protocol.Applied))
			if !reads(kind) {
				all = append(all, row(op, protocol.NotMatched))
			}
			if removesMarker(kind) {
				all = append(all, row(op, protocol.Failed))
			}
		}
	}
	for _, condition := range []string{"found", "fence", "open", "unfrozen", "currency", "kind", "funds", "room", "requirement"} {
		all = append(all, alone(protocol.Prepare, condition))
	}
	all = append(all, traceRows()...)
	for _, condition := range []string{"state", "epoch", "owner"} {
		all = append(all, alone(protocol.Verify, condition), alone(protocol.MarkHeld, condition))
	}
	for _, condition := range claimConditions() {
		all = append(all, alone(protocol.Claim, condition))
	}
	all = append(all, part, restOfPart, mergedPart, garbledAsked, garbledRefused)
	for kind := protocol.Prepare; kind <= protocol.Finish; kind++ {
		if !writesAccount(kind) {
			continue
		}
		all = append(all, atDocument(kind, false), atDocument(kind, true))
	}
	for _, what := range []string{prepares, pays, clears, paysAndClears, clearsAndPrepares, paysAndPrepares, fencings} {
		all = append(all, mixed(what, protocol.Applied, true), mixed(what, protocol.NotMatched, false))
	}
	// Writes that take too much together; that can be paid by what comes in; that can't
	// add to what is not a number.
	all = append(all, mixed(prepares, protocol.NotMatched, true), mixed(clearsAndPrepares, protocol.Applied, false),
		mixed(paysAndPrepares, protocol.Applied, false), mixed(pays, protocol.Failed, true), mixed(paysAndClears, protocol.Failed, true),
		mixed(clears, protocol.Failed, true), mixed(fencings, protocol.Failed, true))
	all = append(all, readBack(protocol.Applied), readBack(protocol.NotMatched), sharedOdd)
	for _, what := range []string{prepares, pays, clears, paysAndClears, clearsAndPrepares, paysAndPrepares} {
		all = append(all, sharedRow(what, protocol.Applied), sharedRow(what, protocol.NotMatched))
	}
	return append(all, alone(protocol.Decide, "state"), alone(protocol.Decide, "epoch"), remembered(false), remembered(true))
}

// traceRows returns the rows of the writes that find another trace than they need, by
// themselves and in shared statements, and of the reads of what is no map.
func traceRows() []string {
	all := []string{
		illegible(protocol.ReadFence), illegible(protocol.Look), freeBesideDoneMark,
		nullRow(protocol.NotMatched), nullRow(protocol.Failed),
	}
	for kind := protocol.Prepare; kind <= protocol.Finish; kind++ {
		if !writesAccount(kind) {
			continue
		}
		for _, trace := range []protocol.Trace{protocol.NoTrace, protocol.Reserved, protocol.Done} {
			if trace == needs(kind) {
				continue
			}
			all = append(all, alone(kind, beside(trace)))
			if kind != protocol.FenceOnly { // which is never shared
				all = append(all, sharedBeside(kind, trace))
			}
		}
	}
	return all
}

func reads(kind protocol.Kind) bool {
	switch kind {
	case protocol.ReadFence, protocol.Look, protocol.ReadTransfer, protocol.LookTransfer:
		return true
	default:
		return false
	}
}

// whole reports whether all properties were tried, and for long.
func (c *tally) whole() bool { return c.properties >= properties && !testing.Short() }

// lacksRows reports whether a row is empty after the whole run.
func (c *tally) lacksRows() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.whole() && slices.ContainsFunc(rows(), func(name string) bool { return c.counts[name] == 0 })
}

// complete prints the table and fails if a row is empty.
// Some of the properties, or a short run, fill only some of the rows.
func (c *tally) complete(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	whole := c.whole()
	if !whole {
		t.Log("this is not the whole run: rows may be empty")
	}
	for _, name := range rows() {
		t.Logf("%7d  %s", c.counts[name], name)
		if whole {
			assert.Positive(t, c.counts[name], "this has not happened once: %s", name)
		}
	}
}
