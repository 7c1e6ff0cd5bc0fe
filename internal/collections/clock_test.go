package collections

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A correction is useless once the process's clock was set, or its machine has slept.
func TestClockLeaps(t *testing.T) {
	t.Parallel()
	start := time.Now()
	now := start
	c := ServerClock{Now: func() time.Time { return now }}
	_, fresh := c.Estimate()
	assert.False(t, fresh)
	for name, row := range map[string]struct {
		passed, leap time.Duration
		fresh        bool
	}{
		"at once":        {0, 0, true},
		"nearly old":     {ClockAge - time.Second, 0, true},
		"old":            {ClockAge, 0, false},
		"set back":       {time.Second, -time.Hour, false},
		"set ahead":      {time.Second, time.Hour, false},
		"asleep":         {0, 2 * time.Second, false},
		"a little ahead": {time.Second, ClockLeap / 2, true},
		"a little back":  {time.Second, -ClockLeap / 2, true},
		"no other clock": {-time.Second, 0, false},
	} {
		now = start
		c.Correct(start.Add(time.Hour))
		now = start.Add(row.passed)
		c.Wall = c.Wall.Add(-row.leap)
		at, fresh := c.Estimate()
		assert.Equal(t, row.fresh, fresh, name)
		assert.WithinDuration(t, now.Add(time.Hour), at, time.Millisecond)
	}
}
