package simulate_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mutant is the protocol, or its world, with one rule forgotten: the sources as they are, but for a few lines.
type mutant struct {
	rule     string
	survives string // why it can't be told from the original, if that is so
	from     uint64 // the seed that the hunt begins with
	edits    []edit
}

// edit changes the lines of a file.
type edit struct {
	file       string // in internal
	before     []string
	afterwards []string
}

// readMutants reads the files in testdata/mutants. A mutant begins with "== " and what it does; "survives: " and a reason may
// follow, or "from: " and a seed, if it takes a hundred thousand runs to catch it, and one that does so is known. Then comes each place
// that changes: a file's name, and lines as a diff shows them, whose indentation doesn't matter. The lines that begin with "- " or two
// spaces must stand in the file exactly once.
func readMutants(t *testing.T) []mutant {
	t.Helper()
	files, err := filepath.Glob("testdata/mutants/*.txt")
	require.NoError(t, err)
	var all []mutant
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, text := range strings.Split(string(data), "\n== ")[1:] {
			all = append(all, parseMutant(t, text))
		}
	}
	return all
}

func parseMutant(t *testing.T, text string) mutant {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	m := mutant{rule: lines[0]}
	for _, line := range lines[1:] {
		mark, content, _ := strings.Cut(line+" ", " ")
		content = strings.TrimSpace(content)
		var last *edit
		if len(m.edits) > 0 {
			last = &m.edits[len(m.edits)-1]
		}
		switch {
		case mark == "survives:":
			m.survives = content
		case mark == "from:":
			var err error
			m.from, err = strconv.ParseUint(content, 10, 64)
			require.NoError(t, err)
		case strings.HasSuffix(mark, ".go"):
			m.edits = append(m.edits, edit{file: mark})
		case mark == "-":
			last.before = append(last.before, content)
		case mark == "+":
			last.afterwards = append(last.afterwards, content)
		case mark == "":
			last.before, last.afterwards = append(last.before, content), append(last.afterwards, content)
		default:
			require.Fail(t, "a line that can't be understood", "%s: %q", m.rule, line)
		}
	}
	return m
}

// build builds the simulator with the mutant's sources in place of the real ones, and returns the binary's path.
func (m mutant) build(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	internal, err := filepath.Abs("..")
	require.NoError(t, err)
	sources := map[string][]string{}
	for _, e := range m.edits {
		path := filepath.Join(internal, e.file)
		if sources[path] == nil {
			original, err := os.ReadFile(path)
			require.NoError(t, err)
			sources[path] = strings.Split(string(original), "\n")
		}
		sources[path] = e.apply(t, sources[path])
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for path, lines := range sources {
		overlay.Replace[path] = filepath.Join(folder, fmt.Sprint(len(overlay.Replace), ".go"))
		require.NoError(t, os.WriteFile(overlay.Replace[path], []byte(strings.Join(lines, "\n")), 0o600))
	}
	data, err := json.Marshal(overlay)
	require.NoError(t, err)
	list, binary := filepath.Join(folder, "overlay.json"), filepath.Join(folder, "simulate")
	require.NoError(t, os.WriteFile(list, data, 0o600))
	output, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", list, "-o", binary, "./cmd").CombinedOutput()
	require.NoError(t, err, "%s", output)
	return binary
}

func (e edit) apply(t *testing.T, lines []string) []string {
	t.Helper()
	var places []int
	for i := range len(lines) - len(e.before) + 1 {
		if slices.EqualFunc(lines[i:i+len(e.before)], e.before, func(line, want string) bool { return strings.TrimSpace(line) == want }) {
			places = append(places, i)
		}
	}
	require.Len(t, places, 1, "places in %s with the lines %q: the mutant must follow the code", e.file, e.before)
	return slices.Concat(lines[:places[0]], e.afterwards, lines[places[0]+len(e.before):])
}
