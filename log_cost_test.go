package transfer

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Where nobody listens at Debug, the line of a call costs nothing: no memory, and not even
// a look at the clock.
func TestLinesThatNobodyWantsCostNothing(t *testing.T) {
	c := newPlanner(t, StringIDs)
	var out bytes.Buffer
	c.log = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo}))
	looks := 0
	c.now = func() time.Time {
		looks++
		return time.Time{}
	}
	ctx := t.Context()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		rec, err := Record{ID: "t", State: StateFail}, ErrExpired
		line := c.lineOf(ctx, "transfer", rec.ID)
		defer func() { line.end(ctx, &rec, err) }()
	}))
	require.Zero(t, looks)
	require.Empty(t, out.String())
}
