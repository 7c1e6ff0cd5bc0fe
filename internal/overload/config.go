package overload

import (
	"fmt"
	"slices"
	"time"
)

// Config says what to play.
type Config struct {
	// Home is the connection string of the server that most scenarios use.
	Home string
	// Only holds the numbers of the scenarios to play.
	// Empty means all of them.
	Only []int
	// Short plays with fewer callers and shorter windows, and with wide bounds for what
	// is timed.
	Short bool
	// Soak is how long the soak lasts that is played instead of the scenarios.
	// Zero means no soak.
	Soak time.Duration
}

// slack is how much wider the bounds of what is timed are in the short form.
const slack = 2

func (c Config) check() error {
	for _, number := range c.Only {
		if number < 1 || number > len(scenarios()) {
			return fmt.Errorf("there are the scenarios 1 to %d, not %d", len(scenarios()), number)
		}
	}
	if c.Soak != 0 && c.Soak < shortestSoak {
		return fmt.Errorf("a soak lasts %s at least, not %s", shortestSoak, c.Soak)
	}
	return nil
}

func (c Config) plays(number int) bool { return len(c.Only) == 0 || slices.Contains(c.Only, number) }

// number returns the first number in the full form, and the second in the short form.
func (c Config) number(full, short int) int {
	if c.Short {
		return short
	}
	return full
}

// duration returns the first duration in the full form, and the second in the short form.
func (c Config) duration(full, short time.Duration) time.Duration {
	if c.Short {
		return short
	}
	return full
}
