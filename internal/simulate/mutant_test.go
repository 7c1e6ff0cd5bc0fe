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

// mutant is the protocol, or its world, with one rule forgotten: the sources with a few
// changed lines.
type mutant struct {
	rule     string
	survives string // why it can't be distinguished from the original, if that is so
	from     uint64 // the first seed of the hunt
	edits    []edit
}

// edit changes the lines of a file.
type edit struct {
	file       string // in internal
	before     []string
	afterwards []string
}

// readMutants reads the files in testdata/mutants.
// A mutant begins with "== " and its description.
// A line with "survives: " and a reason may follow, or one with "from: " and a seed, if a
// hundred thousand runs are needed to catch it and a seed that does so is known.
// Then each changed place follows: a file's name, and lines as in a diff, whose
// indentation doesn't matter.
// The lines that begin with "- " or two spaces must occur in the file exactly once.
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

// sources returns the texts of the files that the mutant changes, by their names in
// internal.
func (m mutant) sources(t *testing.T) map[string]string {
	t.Helper()
	lines := map[string][]string{}
	for _, e := range m.edits {
		if lines[e.file] == nil {
			lines[e.file] = strings.Split(original(t, e.file), "\n")
		}
		lines[e.file] = e.apply(t, lines[e.file])
	}
	texts := map[string]string{}
	for file, changed := range lines {
		texts[file] = strings.Join(changed, "\n")
	}
	return texts
}

// original returns the text of a file in internal.
func original(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", file))
	require.NoError(t, err)
	return string(text)
}

// build builds the simulator with these texts in place of the real files, by their names
// in internal.
// It returns the path of the program.
func build(t *testing.T, texts map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	internal, err := filepath.Abs("..")
	require.NoError(t, err)
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for file, text := range texts {
		path := filepath.Join(folder, fmt.Sprint(len(overlay.Replace), ".go"))
		overlay.Replace[filepath.Join(internal, file)] = path
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	data, err := json.Marshal(overlay)
	require.NoError(t, err)
	list, program := filepath.Join(folder, "overlay.json"), filepath.Join(folder, "simulate")
	require.NoError(t, os.WriteFile(list, data, 0o600))
	command := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-overlay", list, "-o", program, "./cmd")
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s", output)
	return program
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
