package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each row of the table of guards names the functions that have its guard, and each of
// these exists.
func TestGuardsLiveWhereTheTableSays(t *testing.T) {
	t.Parallel()
	root, _ := pages(t)
	text, err := os.ReadFile(filepath.Join(root, "docs", "protocol.md"))
	require.NoError(t, err)
	rows := tableWith(string(text), "lives in")
	require.Greater(t, len(rows), 35, "the table of guards")
	rooms := map[string][]string{}
	for _, row := range rows {
		places := placesIn(row.cell)
		assert.NotEmpty(t, places, "%q says nowhere where it lives", row.name)
		for _, place := range places {
			if _, read := rooms[place.room]; !read {
				rooms[place.room], err = declaredIn(roomFolder(root, place.room))
				require.NoError(t, err, "%q lives in the package %q", row.name, place.room)
			}
		}
		for _, place := range places {
			if !slices.Contains(rooms[place.room], place.name) {
				t.Errorf("%q lives in %s: %s, which does not exist. Near it: %s",
					row.name, place.room, place.name, nearest(place, rooms))
			}
		}
	}
}

// Each test and fuzz target that a page names exists.
func TestNamedTestsExist(t *testing.T) {
	t.Parallel()
	root, paths := pages(t)
	tests := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, found := range declared.FindAllSubmatch(source, -1) {
			tests[string(found[1])] = true
		}
		return err
	}))
	named := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, found := range regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*)`").FindAllSubmatch(text, -1) {
			named++
			assert.True(t, tests[string(found[1])], "%s names %s, which does not exist", path, found[1])
		}
	}
	require.Greater(t, named, 50)
}

// Each mutant that the table of guards names exists.
func TestNamedMutantsExist(t *testing.T) {
	t.Parallel()
	root, _ := pages(t)
	mutants := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(root, "internal", "simulate", "testdata", "mutants", "*.txt"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			if rule, found := strings.CutPrefix(line, "== "); found {
				mutants[strings.TrimSpace(rule)] = true
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "protocol.md"))
	require.NoError(t, err)
	named := 0
	for _, row := range tableWith(string(text), "in the simulator") {
		for _, found := range regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(row.cell, -1) {
			named++
			assert.True(t, mutants[found[1]], "%q names the mutant %q, which does not exist", row.name, found[1])
		}
	}
	require.Greater(t, named, 100)
}

// Each error and option that a page names exists.
func TestNamedErrorsAndOptionsExist(t *testing.T) {
	t.Parallel()
	root, paths := pages(t)
	declared, err := declaredIn(root)
	require.NoError(t, err)
	others := []string{"WithTransaction"} // is the driver's
	named := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, found := range regexp.MustCompile("`(?:transfer\\.)?((?:Err|With)[A-Z]\\w+)").FindAllStringSubmatch(string(text), -1) {
			named++
			assert.True(t, slices.Contains(declared, found[1]) || slices.Contains(others, found[1]),
				"%s names %s, which does not exist", path, found[1])
		}
	}
	require.Greater(t, named, 100)
}

// The test of places finds a missing name, a row without a place, and a cell with other
// text than places.
func TestMissingPlacesAreFound(t *testing.T) {
	t.Parallel()
	rows := tableWith("| a | lives in |\n|---|---|\n| x | `one: F`, `two: T.M` |\n| y | – |\n| z | somewhere |\n\n| no | row |\n", "lives in")
	require.Equal(t, []tableRow{{"x", "`one: F`, `two: T.M`"}, {"y", "–"}, {"z", "somewhere"}}, rows)
	assert.Equal(t, []place{{"one", "F"}, {"two", "T.M"}}, placesIn(rows[0].cell))
	assert.Empty(t, placesIn(rows[1].cell))
	assert.Empty(t, placesIn(rows[2].cell))
	assert.Empty(t, placesIn("`one: F`, and more"))

	folder := t.TempDir()
	source := "package one\n\nconst C = 1\n\nvar V int\n\ntype T[K any] struct{}\n\n" +
		"func F() {}\n\nfunc (t *T[K]) M() {}\n\nfunc (T[K]) N() {}\n"
	require.NoError(t, os.WriteFile(filepath.Join(folder, "one.go"), []byte(source), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "one_test.go"), []byte("package one\n\nfunc G() {}\n"), 0o600))
	declared, err := declaredIn(folder)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"C", "V", "T", "F", "T.M", "T.N"}, declared)
	_, err = declaredIn(t.TempDir())
	require.Error(t, err)
	assert.Equal(t, "one: T.M, one: T", nearest(place{"two", "U.m"}, map[string][]string{"one": {"T.M", "T"}, "two": nil}))
}

// tableRow is a row of a table: its first cell, and its cell in the requested column.
type tableRow struct{ name, cell string }

// tableWith returns the rows of the tables that have a column of the given name.
func tableWith(text, column string) (rows []tableRow) {
	at := -1
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case !strings.HasPrefix(line, "|"):
			at = -1
		case slices.Contains(cells, column):
			at = slices.Index(cells, column)
		case at >= len(cells):
			rows = append(rows, tableRow{name: cells[0]})
		case at >= 0 && !strings.HasPrefix(cells[0], "---"):
			rows = append(rows, tableRow{cells[0], cells[at]})
		}
	}
	return rows
}

// place is the location of a guard: a declaration of a package, like F, T, or T.Method.
type place struct{ room, name string }

// placesIn returns the places that a cell lists, or none if it contains anything else.
func placesIn(cell string) (places []place) {
	form := regexp.MustCompile("^`([a-z]+): ([A-Za-z.]+)`$")
	for part := range strings.SplitSeq(cell, ", ") {
		found := form.FindStringSubmatch(part)
		if found == nil {
			return nil
		}
		places = append(places, place{found[1], found[2]})
	}
	return places
}

// roomFolder returns the folder of a package: internal/room, or the root for transfer.
func roomFolder(root, room string) string {
	if room == "transfer" {
		return root
	}
	return filepath.Join(root, "internal", room)
}

// declaredIn returns what the sources in a folder declare, without the tests: functions,
// types, constants, variables, and methods as T.Method.
func declaredIn(folder string) (names []string, err error) {
	sources, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, declaration := range file.Decls {
			names = append(names, namesOf(declaration)...)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("there are no sources in %s", folder)
	}
	return names, nil
}

// namesOf returns the names that a declaration declares.
func namesOf(declaration ast.Decl) (names []string) {
	switch d := declaration.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return []string{d.Name.Name}
		}
		return []string{receiverOf(d.Recv.List[0].Type) + "." + d.Name.Name}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
			case *ast.ValueSpec:
				for _, name := range s.Names {
					names = append(names, name.Name)
				}
			}
		}
	}
	return names
}

// receiverOf returns the name of a receiver's type.
func receiverOf(expression ast.Expr) string {
	switch e := expression.(type) {
	case *ast.StarExpr:
		return receiverOf(e.X)
	case *ast.IndexExpr:
		return receiverOf(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// nearest returns the likely new names of a missing one: the five most similar names in
// all packages of the table.
func nearest(missing place, rooms map[string][]string) string {
	type candidate struct {
		text     string
		distance int
	}
	var candidates []candidate
	for room, names := range rooms {
		for _, name := range names {
			c := candidate{room + ": " + name, distance(missing.name, name)}
			if _, method, ok := strings.Cut(name, "."); ok {
				_, wanted, _ := strings.Cut(missing.name, ".")
				c.distance = min(c.distance, 1+distance(wanted, method))
			}
			if room != missing.room {
				c.distance++
			}
			candidates = append(candidates, c)
		}
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		if a.distance != b.distance {
			return a.distance - b.distance
		}
		return strings.Compare(a.text, b.text)
	})
	var texts []string
	for _, c := range candidates[:min(len(candidates), 5)] {
		texts = append(texts, c.text)
	}
	return strings.Join(texts, ", ")
}

// distance returns how many letters must be added, removed or replaced to turn one name
// into another.
// Upper and lower case count as the same.
func distance(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	before := make([]int, len(b)+1)
	for j := range before {
		before[j] = j
	}
	for i := range len(a) {
		now := make([]int, len(b)+1)
		now[0] = i + 1
		for j := range len(b) {
			replaced := before[j]
			if a[i] != b[j] {
				replaced++
			}
			now[j+1] = min(replaced, before[j+1]+1, now[j]+1)
		}
		before = now
	}
	return before[len(b)]
}
