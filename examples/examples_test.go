package examples_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/outside"
)

// playLimit is how long building and running a program may take.
const playLimit = 5 * time.Minute

func TestMain(m *testing.M) { os.Exit(mongotest.Main(m)) }

// programs returns the names of the examples in the library's own module.
func programs(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	for _, e := range entries {
		_, err := os.Stat(filepath.Join(e.Name(), "go.mod"))
		if e.IsDir() && os.IsNotExist(err) {
			names = append(names, e.Name())
		}
	}
	return names
}

// copied copies an example as a user does, and builds it there.
func copied(t *testing.T, name string) (program string) {
	t.Helper()
	folder := t.TempDir()
	require.NoError(t, outside.Copy(name, folder))
	program, err := outside.Build(t.Context(), folder)
	require.NoError(t, err)
	return program
}

// Each example can be copied out of the repository and built there.
// Each story prints what is in its output.txt.
func TestExamplesOutsideOfTheRepository(t *testing.T) {
	stories := 0
	for _, name := range programs(t) {
		want, err := os.ReadFile(filepath.Join(name, "output.txt"))
		isStory := !os.IsNotExist(err)
		if isStory {
			require.NoError(t, err)
			stories++
		}
		t.Run(name, func(t *testing.T) {
			program := copied(t, name)
			if !isStory {
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), playLimit)
			defer cancel()
			cmd := exec.CommandContext(ctx, program)
			cmd.Env = append(os.Environ(), "MONGODB_URI="+mongotest.URI())
			cmd.Stderr = os.Stderr
			told, err := cmd.Output()
			require.NoError(t, err)
			assert.Equal(t, string(want), string(told))
		})
	}
	assert.Equal(t, 5, stories)
}

// Without a server, a story says what is missing.
func TestStoryWithoutServer(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), copied(t, "refund"))
	cmd.Env = []string{"HOME=" + os.Getenv("HOME")}
	told, err := cmd.CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(told), "MONGODB_URI is not set")
}

// The demo is a module of its own, and imports nothing internal either.
func TestDemoAsksForNothingInternal(t *testing.T) {
	sources, err := filepath.Glob("demo/*.go")
	require.NoError(t, err)
	require.NotEmpty(t, sources)
	for _, source := range sources {
		text, err := os.ReadFile(source)
		require.NoError(t, err)
		assert.NotContains(t, string(text), "transfer/internal/", source)
	}
}
