package simulate_test

import (
	"fmt"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// hunted is how many seeds are played against a mutant that must be caught. Most fall within the first hundred.
	hunted = 3_000_000
	// spared is how many are played against one that can't be told from the original.
	spared = "0-10000"
)

// TestMutantsAreCaught promises that the simulator has teeth: whoever breaks a rule of the protocol, or leaves a condition out of a filter,
// breaks an invariant, and is seen. Each mutant is built from the real sources. The few that can't be told from the original are named as
// such, with the reason; then that is tried, too.
func TestMutantsAreCaught(t *testing.T) {
	for _, m := range readMutants(t) {
		t.Run(m.rule, func(t *testing.T) {
			t.Parallel()
			m.hunt(t)
		})
	}
}

// verdict is how the simulator says what is broken.
func verdict() *regexp.Regexp { return regexp.MustCompile(`seed (\d+) breaks invariant \d: .*`) }

// hunt lets the simulator look for a violation, and replays it.
func (m mutant) hunt(t *testing.T) {
	start, binary := time.Now(), m.build(t)
	simulate := func(seeds string) (string, error) {
		output, err := exec.CommandContext(t.Context(), binary, "-cores", "1", "-seeds", seeds).CombinedOutput()
		return string(output), err
	}
	if m.survives != "" {
		output, err := simulate(spared)
		require.NoError(t, err, "%s", output)
		t.Logf("survives: %s", m.survives)
		return
	}
	output, err := simulate(fmt.Sprintf("%d-%d", m.from, m.from+hunted))
	require.Error(t, err, "it survives")
	found := verdict().FindStringSubmatch(output)
	require.NotNil(t, found, "%s", output)
	again, err := simulate(found[1])
	require.Error(t, err)
	require.Equal(t, found[0], verdict().FindString(again), "the seed replays what it has found")
	t.Logf("%s, after %s", found[0], time.Since(start).Round(time.Millisecond))
}
