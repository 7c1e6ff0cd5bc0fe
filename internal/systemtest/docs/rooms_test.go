package docs_test

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// docs/architecture.md names every room, and each arrow of its picture is an import.
func TestArchitectureIsTrue(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/architecture.md")
	require.NoError(t, err)
	rooms, err := os.ReadDir("../..")
	require.NoError(t, err)
	for _, room := range rooms {
		if room.IsDir() {
			assert.Contains(t, string(page), "internal/"+room.Name(), "a room that the page doesn't name")
		}
	}

	arrow := regexp.MustCompile(`(?m)^ +(\w+)(?:\[.*?\])? --> (\w+)`)
	arrows := arrow.FindAllStringSubmatch(string(page), -1)
	require.Greater(t, len(arrows), 20, "the picture has no arrows that can be read")
	for _, a := range arrows {
		if from, to := a[1], a[2]; from != "service" {
			assert.Contains(t, importsOf(t, from), to, "the picture says that %s imports %s", from, to)
		}
	}
}

// importsOf returns the rooms that a room imports.
func importsOf(t *testing.T, room string) map[string]bool {
	t.Helper()
	folder := filepath.Join("../..", room)
	if room == "transfer" {
		folder = "../../.."
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	imports := map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, spec := range file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			if _, room, ours := strings.Cut(path, "mongotransfer/transfer/internal/"); ours {
				imports[room] = true
			}
		}
	}
	return imports
}

// A newcomer finds what the library begins with in the root, between few other files.
func TestFrontDoor(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"go.mod", "go.sum", "README.md", "transfer.go", "state.go", "recovery.go", "rollback.go", "options.go",
		"errors.go", "internal", "examples", "transfer_test.go", "Makefile",
	} {
		_, err := os.Stat(filepath.Join("../../..", name))
		require.NoError(t, err)
	}
	files, err := filepath.Glob("../../../*.go")
	require.NoError(t, err)
	assert.LessOrEqual(t, len(files), 45)
}
