package chaos

import (
	"fmt"
	"slices"
	"time"
)

// Config describes a run.
type Config struct {
	// For is how long the load and the faults last, at least. The default is a minute.
	For time.Duration
	// Workers is the number of worker processes. The default is 3.
	Workers int
	// Clients is the number of callers in each worker. The default is 12.
	Clients int
	// Accounts is the number of accounts. The default is 100.
	Accounts int
	// Seed is what the requests and the faults are drawn from. The default is 1.
	Seed uint64
	// Faults are the groups of faults that happen. The default is all of them.
	Faults []string
	// Theft is how many units are taken once behind the library's back, to see that the
	// run finds it. The default is none.
	Theft int64
}

// The groups of faults.
const (
	Workers  = "workers"  // worker processes are killed and stopped
	Members  = "members"  // the primary is killed, stopped and stepped down
	Commands = "commands" // the server makes commands fail
	// Messages and answers are lost and delayed, and messages are held back.
	Wires = "wires"
)

// AllFaults returns all groups of faults.
func AllFaults() []string { return []string{Workers, Members, Commands, Wires} }

func (c Config) has(group string) bool { return slices.Contains(c.Faults, group) }

// Default returns the configuration of a run of one minute.
func Default() Config {
	return Config{For: time.Minute, Workers: 3, Clients: 12, Accounts: 100, Seed: 1, Faults: AllFaults()}
}

// The limits of a run.
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
