package simulate

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// played is the file that says on which sources everything was played last.
const played = "testdata/played"

// PlaysAll reports whether a test has to play everything, which takes a minute or two.
//
// What comes out depends on the sources alone: those of the protocol, of the simulator
// and of the mutants. `make teeth` plays everything and stores their hash. Where it is
// still theirs a share is played; after any change of them it is everything.
func PlaysAll(t *testing.T) bool {
	t.Helper()
	stored, err := os.ReadFile(played)
	if err == nil && strings.HasPrefix(string(stored), hashOfSources(t)+" ") {
		t.Log("these sources have passed as a whole: a share is played")
		return false
	}
	t.Log("these sources have not passed as a whole so far: make teeth stores that they have")
	return !testing.Short()
}

// hashOfSources returns the SHA-256 of the sources, one after the other.
func hashOfSources(t *testing.T) string {
	t.Helper()
	hash := sha256.New()
	var files []string
	for _, pattern := range []string{"../protocol/*.go", "*.go", "cmd/*.go", "testdata/mutants/*.txt"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		slices.Sort(found)
		files = append(files, found...)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		_, err = hash.Write(data)
		require.NoError(t, err)
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// The hash is another one after any change of the sources.
func TestHashOfSources(t *testing.T) {
	sources, err := filepath.Abs("..")
	require.NoError(t, err)
	copied := t.TempDir()
	for _, folder := range []string{"protocol", "simulate"} {
		require.NoError(t, os.CopyFS(filepath.Join(copied, folder), os.DirFS(filepath.Join(sources, folder))))
	}
	before := hashOfSources(t)
	t.Chdir(filepath.Join(copied, "simulate"))
	require.Equal(t, before, hashOfSources(t))
	for _, file := range []string{"../protocol/state.go", "world.go", "teeth_test.go", "cmd/main.go", "testdata/mutants/claims.txt"} {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, append(data, "\n// changed\n"...), 0o600))
		after := hashOfSources(t)
		require.NotEqual(t, before, after, file)
		before = after
	}
}
