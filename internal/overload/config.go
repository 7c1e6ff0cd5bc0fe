package overload

import (
	"fmt"
	"slices"
	"time"
)

// Config says what is to be played.
type Config struct {
	Home  string        // the connection string of the server that most scenarios play on
	Only  []int         // numbers of scenarios; none: all
	Short bool          // fewer callers and shorter windows, and wide bounds for what is timed
	Soak  time.Duration // of this length is the soak that is played instead of the scenarios; 0: none
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

// many is a number of the full form or of the short one.
func (c Config) many(full, short int) int {
	if c.Short {
		return short
	}
	return full
}

// long is a time of the full form or of the short one.
func (c Config) long(full, short time.Duration) time.Duration {
	if c.Short {
		return short
	}
	return full
}
