package stages_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/stages"
)

// The stages of a call follow one another without a gap.
// A stage that is entered again while the call is in it is one stage.
// What comes after the end is not recorded.
func TestTrail(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	at := func(ms int) time.Time { return begun.Add(time.Duration(ms) * time.Millisecond) }
	ctx, trail := stages.With(t.Context(), "transfer")
	require.Same(t, trail, stages.Of(ctx))
	require.Equal(t, "transfer", trail.Verb())
	trail.Enter(stages.Claim, at(1))
	trail.Enter(stages.Claim, at(2))
	trail.Enter(stages.Prepare, at(5))
	want := []stages.Stage{
		{Name: stages.Claim, Begun: at(1), Took: 4 * time.Millisecond}, {Name: stages.Prepare, Begun: at(5), Took: 2 * time.Millisecond},
	}
	require.Equal(t, want, trail.End(at(7)))
	trail.Enter(stages.Clear, at(8))
	require.Equal(t, want, trail.End(at(9)))
}

// Without a trail nothing is recorded, and nothing is allocated.
func TestNoTrail(t *testing.T) {
	ctx := t.Context()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		trail := stages.Of(ctx)
		trail.Enter(stages.Claim, time.Time{})
		if trail.End(time.Time{}) != nil || trail.Verb() != "" {
			t.Error("something was recorded")
		}
	}))
}

// The stages of a call that goes back and forth are bounded.
func TestLongTrail(t *testing.T) {
	t.Parallel()
	_, trail := stages.With(t.Context(), "transfer")
	begun := time.Now()
	for n := range 1000 {
		trail.Enter(fmt.Sprint(n%2), begun.Add(time.Duration(n)*time.Second))
	}
	all := trail.End(begun.Add(1000 * time.Second))
	require.Len(t, all, 64)
	require.Equal(t, (1000-63)*time.Second, all[63].Took, "the last one lasts until the end")
}
