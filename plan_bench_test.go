package transfer

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// payment is a request in the common form, for a small amount of either kind.
func payment(amount Amount) Request {
	return Request{ID: "order-17", From: "alice", To: "bob", Amount: amount}
}

// TestPlanningAllocatesLittle promises that to plan a transfer of units takes six allocations. With the three of an execution of it (see
// internal/protocol) all that is decided about a transfer takes fewer than ten.
func TestPlanningAllocatesLittle(t *testing.T) {
	c, req := newPlanner(t, StringIDs), payment(Units(6000))
	var err error
	count := testing.AllocsPerRun(1000, func() { _, err = c.plan(req) })
	require.NoError(t, err)
	require.LessOrEqual(t, count, 6.0)
}

func BenchmarkPlan(b *testing.B) {
	decimal, err := ParseDecimal("12.50")
	require.NoError(b, err)
	c := newPlanner(b, StringIDs)
	for name, req := range map[string]Request{"units": payment(Units(6000)), "decimals": payment(decimal)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.plan(req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
