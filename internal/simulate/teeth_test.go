package simulate_test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/simulate"
)

const (
	// hunted is how many seeds are played against a mutant that must be caught. Most fall
	// within the first hundred.
	hunted = 3_000_000
	// spared is how many are played against one that equals the original.
	spared = "0-3000"
)

// TestMutantsAreCaught promises that the simulator has teeth: a broken rule of the
// protocol, or a condition missing from a filter, breaks an invariant, and the simulator
// reports it.
// Each mutant is made from the real sources.
// The few that can't be distinguished from the original are named as such, with the
// reason.
// They are played too.
// While nothing has changed since all were caught, every thirtieth is played.
func TestMutantsAreCaught(t *testing.T) {
	all := readMutants(t)
	shared := blendOf(t, all)
	program := build(t, shared.texts())
	t.Run("none in force", func(t *testing.T) {
		t.Parallel()
		for seed := range uint64(20) {
			output, err := simulator{program, 0}.play(t, fmt.Sprint(seed))
			require.NoError(t, err)
			require.Contains(t, output, simulate.Tell(seed))
		}
	})
	share := 1
	if !simulate.PlaysAll(t) {
		share = 30
	}
	for i, m := range all {
		if i%share != 0 {
			continue
		}
		t.Run(m.rule, func(t *testing.T) {
			t.Parallel()
			s := simulator{program, i + 1}
			if !shared.mutant[i+1] {
				s.program = build(t, m.sources(t))
				t.Log("built alone")
			}
			m.hunt(t, s)
		})
	}
}

// simulator is a program with mutants, and the number of the one that it runs.
type simulator struct {
	program string
	number  int
}

func (s simulator) play(t *testing.T, seeds string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), s.program, "-cores", "1", "-seeds", seeds)
	command.Env = append(os.Environ(), fmt.Sprint(chooser, "=", s.number), "GOGC=800") // Little lives on.
	output, err := command.CombinedOutput()
	return string(output), err
}

// verdict matches the simulator's report of a broken invariant.
func verdict() *regexp.Regexp { return regexp.MustCompile(`seed (\d+) breaks invariant \d: .*`) }

// hunt lets the simulator search for a violation, and replays it.
func (m mutant) hunt(t *testing.T, s simulator) {
	t.Helper()
	start := time.Now()
	if m.survives != "" {
		output, err := s.play(t, spared)
		require.NoError(t, err, "%s", output)
		t.Logf("survives: %s", m.survives)
		return
	}
	output, err := s.play(t, fmt.Sprintf("%d-%d", m.from, m.from+hunted))
	require.Error(t, err, "it survives")
	found := verdict().FindStringSubmatch(output)
	require.NotNil(t, found, "%s", output)
	again, err := s.play(t, found[1])
	require.Error(t, err)
	require.Equal(t, found[0], verdict().FindString(again), "the seed replays what it has found")
	t.Logf("%s, after %s", found[0], time.Since(start).Round(time.Millisecond))
}
