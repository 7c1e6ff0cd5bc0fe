package chaos

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
)

// TestMain turns a test binary that was started as a worker into one.
func TestMain(m *testing.M) {
	if !IsWorker() {
		os.Exit(m.Run())
	}
	if err := WorkerMain(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// mostRuns is how many runs it may take to meet everything: other work may keep the
// machine busy.
const mostRuns = 4

// Whatever happens to workers, servers and messages, no unit is lost or minted, and every
// answer is true.
// The runs together meet each kind of fault, or the test fails.
// Each run has another seed.
// The seed determines which requests and faults are drawn, but a run with the same seed
// is another run.
func TestChaos(t *testing.T) {
	config := Default()
	config.For = 15 * time.Second
	var all Report
	for n := range mostRuns {
		config.Seed = uint64(time.Now().UnixNano())
		report := runFor(t, config)
		require.Zero(t, report.Found)
		report.add(all)
		all = report
		if len(all.Missing) == 0 {
			return
		}
		t.Logf("after %d runs there is still missing: %q", n+1, all.Missing)
	}
	require.NoError(t, all.Err())
}

// The harness has teeth: if one unit is taken behind the library's back, the snapshots
// show it while the load runs, and so does the audit at the end.
func TestTheft(t *testing.T) {
	config := Default()
	config.For, config.Faults, config.Theft = 8*time.Second, nil, 1
	report := runFor(t, config)
	require.Error(t, report.Err())
	found := strings.Join(report.Findings, "\n")
	require.Contains(t, found, "were put in; the balances are")
	require.Contains(t, found, "account account-0 has")
}

func runFor(t *testing.T, config Config) Report {
	t.Helper()
	var log, table strings.Builder
	report, err := Run(t.Context(), config, &log)
	require.NoError(t, err, log.String())
	require.NoError(t, report.Print(&table))
	t.Log("\n" + table.String())
	return report
}

// A run that has done nothing is void: it names each kind of work and of fault that it
// lacks.
func TestIdleRunIsVoid(t *testing.T) {
	report := Report{Config: Default()}
	report.Missing = report.missing()
	require.Error(t, report.Err())
	missing := strings.Join(report.Missing, "\n")
	for _, what := range []string{
		"transfers that succeeded", "events that say succeeded", "events that say held", "failed",
		"taken over", "cancelled", "snapshots", faultKillPrimary, faultStopPrimary, faultStepDown, failover,
		faultKillWorker, faultStopWorker, "update accounts " + faultHold, "find accounts " + faultDelayAnswer, "insert transfers " + faultLate,
		"findAndModify " + faultConcern, "hello " + faultClosed, "find " + faultNotPrimary, "when everything was over",
	} {
		require.Contains(t, missing, what)
	}
}

// What two runs lack is what they lack together.
func TestRunsAddUp(t *testing.T) {
	report := func(n int) Report {
		r := Report{
			Config: Default(), Transfers: map[transfer.State]int{transfer.StateSuccess: n}, Faults: map[event]int{{faultKillWorker, ""}: n},
			Answers: map[event]int{{string(verbReverse), string(alreadyReversed)}: n}, Kinds: map[string]int{holdPosted: n},
			Arrived: map[string]int{"update accounts": n}, Overtaken: n, Promised: n, Snapshots: n, Moving: n,
			Events: map[transfer.EventKind]int{transfer.EventSucceeded: n}, Repeated: n,
		}
		r.Missing = r.missing()
		return r
	}
	enough := report(100)
	both := report(50)
	for _, what := range []string{"succeeded", "snapshots: "} {
		require.NotContains(t, strings.Join(enough.Missing, "\n"), what)
		require.Contains(t, strings.Join(both.Missing, "\n"), what)
	}
	both.add(report(50))
	require.Equal(t, enough, both)
}

// A configuration that can't be run is refused.
func TestConfig(t *testing.T) {
	require.NoError(t, Default().check())
	for _, spoil := range []func(*Config){
		func(c *Config) { c.For = 0 },
		func(c *Config) { c.Workers = 0 },
		func(c *Config) { c.Clients = mostWorkers + 1 },
		func(c *Config) { c.Accounts = leastAccounts - 1 },
		func(c *Config) { c.Faults = []string{"weather"} },
	} {
		config := Default()
		spoil(&config)
		require.Error(t, config.check())
	}
}
