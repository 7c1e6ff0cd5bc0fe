package chaos

import (
	"fmt"
	"slices"
	"time"
)

// Config says how a run is to be.
type Config struct {
	For      time.Duration // how long the load and the faults last, at least
	Workers  int           // processes
	Clients  int           // of each worker
	Accounts int
	Seed     uint64
	Faults   []string // the groups of faults that happen
	Theft    int64    // taken behind the library's back, once: to see the harness find it
}

// Groups of faults.
const (
	Workers  = "workers"  // processes of the load are killed and stopped
	Members  = "members"  // the primary is killed, stopped, stepped down
	Commands = "commands" // the server lets commands fail
	Wires    = "wires"    // messages and answers are lost and delayed, messages held back
)

// AllFaults returns all groups.
func AllFaults() []string { return []string{Workers, Members, Commands, Wires} }

func (c Config) has(group string) bool { return slices.Contains(c.Faults, group) }

// Default returns a run of one minute.
func Default() Config {
	return Config{For: time.Minute, Workers: 3, Clients: 12, Accounts: 100, Seed: 1, Faults: AllFaults()}
}

// Limits of a run.
const (
	leastAccounts = 8
	mostAccounts  = 10_000
	mostWorkers   = 64
)

func (c Config) check() error {
	switch {
	case c.For < time.Second:
		return fmt.Errorf("a run lasts a second at least, not %s", c.For)
	case c.Workers < 1 || c.Workers > mostWorkers || c.Clients < 1 || c.Clients > mostWorkers:
		return fmt.Errorf("a run has 1 to %d workers with 1 to %d clients each, not %d with %d", mostWorkers, mostWorkers, c.Workers, c.Clients)
	case c.Accounts < leastAccounts || c.Accounts > mostAccounts:
		return fmt.Errorf("a run has %d to %d accounts, not %d", leastAccounts, mostAccounts, c.Accounts)
	}
	for _, group := range c.Faults {
		if !slices.Contains(AllFaults(), group) {
			return fmt.Errorf("there are the faults %v, not %q", AllFaults(), group)
		}
	}
	return nil
}
