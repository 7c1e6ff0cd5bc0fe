package conformance

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// tally counts what was drawn and what the World made of it: what never happens is not compared.
type tally struct {
	mu         sync.Mutex
	counts     map[string]int
	properties int // that were tried
}

// properties is how many there are.
const properties = 3

func row(op protocol.Operation, result protocol.Result) string {
	return strings.TrimSpace(op.Kind.String()+" "+op.Claiming.String()) + ": " + result.String()
}

// alone is the row of the writes that lacked one condition and no other one.
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

func (c *tally) tried() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.properties++
}

// rows returns what has to happen in every run.
func rows() []string {
	var all []string
	for kind := protocol.ReadFence; kind <= protocol.Finish; kind++ {
		ways := []protocol.Claiming{0}
		if kind == protocol.Claim {
			ways = []protocol.Claiming{
				protocol.Insert, protocol.FromInitiated, protocol.TakeOver, protocol.TakeToCancel, protocol.CancelInitiated,
			}
		}
		for _, way := range ways {
			op := protocol.Operation{Kind: kind, Claiming: way}
			all = append(all, row(op, protocol.Applied))
			if !reads(kind) {
				all = append(all, row(op, protocol.NotMatched))
			}
			if kind == protocol.Settle || kind == protocol.Undo {
				all = append(all, row(op, protocol.Failed))
			}
		}
	}
	for _, condition := range []string{"found", "fence", "no marker", "open", "currency", "kind", "funds", "room"} {
		all = append(all, alone(protocol.Prepare, condition))
	}
	for _, condition := range []string{"state", "epoch", "owner"} {
		all = append(all, alone(protocol.Verify, condition))
	}
	return append(all, alone(protocol.Decide, "state"), alone(protocol.Decide, "epoch"), remembered(false), remembered(true))
}

func reads(kind protocol.Kind) bool {
	switch kind {
	case protocol.ReadFence, protocol.Look, protocol.ReadTransfer, protocol.LookTransfer:
		return true
	default:
		return false
	}
}

// complete prints the table and fails if a row is empty. A part of the properties, or a short run, fills only a part of the rows.
func (c *tally) complete(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	whole := c.properties == properties && !testing.Short()
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
