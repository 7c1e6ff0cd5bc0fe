package protocol

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// runClean runs a fresh transfer of two participants to its end.
// Each write is applied at once.
func runClean() (*Execution, error) {
	x := New(Start{Claim: Insert, WaitWhileBusy: true}, 2, 0)
	for x.Outcome() == Running {
		operations, err := x.Next()
		if err != nil {
			return x, err
		}
		for _, op := range operations {
			switch op.Kind {
			case ReadFence:
				x.Observe(op, shows(able("f")))
			case Claim:
				x.Observe(op, holds(Preparing, 1))
			default:
				x.Observe(op, yes())
			}
		}
	}
	return x, nil
}

// TestCleanTransferAllocatesLittle promises that an execution which meets no other one
// needs three allocations for all of its rounds.
func TestCleanTransferAllocatesLittle(t *testing.T) {
	var x *Execution
	var err error
	count := testing.AllocsPerRun(1000, func() { x, err = runClean() })
	require.NoError(t, err)
	require.Equal(t, Success, x.State())
	require.LessOrEqual(t, count, 3.0)
}

func BenchmarkCleanTransfer(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if x, err := runClean(); err != nil || x.State() != Success {
			b.Fatal(x.State(), err)
		}
	}
}
