package simulate_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// hunts are how the simulator looks for a violation: the quick way first.
func hunts() [][]string {
	return [][]string{
		{"-cores", "1", "-seeds", "0-100000"},
		{"-search"},
		{"-cores", "1", "-seeds", "100000-3000000"},
	}
}

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
var verdict = regexp.MustCompile(`(?:seed (\d+) )?breaks invariant (\d): .*`)

// hunt lets the simulator look for a violation.
func (m mutant) hunt(t *testing.T) {
	start, binary := time.Now(), m.build(t)
	ways := hunts()
	if m.survives != "" {
		ways = [][]string{{"-cores", "1", "-seeds", "0-30000"}}
	}
	for _, args := range ways {
		output, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput()
		if err == nil {
			continue
		}
		found := verdict.FindStringSubmatch(string(output))
		require.NotNil(t, found, "%s", output)
		require.Empty(t, m.survives, "%s", output)
		t.Logf("%s, by %s, after %s", found[0], strings.Join(args, " "), time.Since(start).Round(time.Millisecond))
		if seed := found[1]; seed != "" {
			again, err := exec.CommandContext(t.Context(), binary, "-seeds", seed).CombinedOutput()
			require.Error(t, err)
			require.Equal(t, found[0], verdict.FindString(string(again)), "the seed replays what it has found")
		}
		return
	}
	require.NotEmpty(t, m.survives, "it survives")
	t.Logf("survives: %s", m.survives)
}
