package transfer

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Where nobody listens at Debug, the line of a call costs nothing.
func TestLinesThatNobodyWantsCostNothing(t *testing.T) {
	c := unconnected(t)
	ctx := t.Context()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		rec, err := Record{ID: "t", State: StateFail}, ErrExpired
		line := c.lineOf(ctx, "transfer", rec.ID)
		defer func() { line.end(ctx, &rec, err) }()
	}))
}
