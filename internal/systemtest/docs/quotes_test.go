package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The code that a page of recipes shows stands, word for word, in examples/patterns,
// where tests run it. And each file there is shown by a page.
func TestRecipesAreQuoted(t *testing.T) {
	t.Parallel()
	root, _ := pages(t)
	folder := filepath.Join(root, "examples", "patterns")
	sources, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	sources = slices.DeleteFunc(sources, func(name string) bool {
		return strings.HasSuffix(name, "_test.go") || filepath.Base(name) == "doc.go"
	})
	require.NotEmpty(t, sources)
	shown := map[string]bool{}
	for _, name := range []string{"patterns.md", "migrating.md"} {
		text, err := os.ReadFile(filepath.Join(root, "docs", name))
		require.NoError(t, err)
		quotes := quotesIn(string(text))
		require.NotEmpty(t, quotes, name)
		for _, quote := range quotes {
			source := sourceOf(t, quote, sources)
			assert.NotEmpty(t, source, "%s shows code that is not in %s:\n%s", name, folder, quote)
			shown[source] = true
		}
	}
	for _, source := range sources {
		assert.True(t, shown[source], "no page shows %s", source)
	}
}

// Code that was changed on the page alone is found, and blocks of other languages are
// none.
func TestChangedQuotesAreFound(t *testing.T) {
	t.Parallel()
	source := filepath.Join(t.TempDir(), "one.go")
	require.NoError(t, os.WriteFile(source, []byte("package one\n\nfunc F() {\n\tg(1)\n}\n"), 0o600))
	quotes := quotesIn("Text\n\n```go\nfunc F() {\n\tg(1)\n}\n```\n\n```js\nf()\n```\n\n```go\nfunc F() {\n\tg(2)\n}\n```\n")
	require.Len(t, quotes, 2)
	assert.Equal(t, source, sourceOf(t, quotes[0], []string{source}))
	assert.Empty(t, sourceOf(t, quotes[1], []string{source}))
}

// The test and the mutant that CONTRIBUTING.md takes for examples are there.
func TestExamplesForContributorsExist(t *testing.T) {
	t.Parallel()
	root, _ := pages(t)
	text, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	require.NoError(t, err)
	one := regexp.MustCompile(`go test -count=1 -run (Test\w+) (\./\S+)`).FindStringSubmatch(string(text))
	require.Len(t, one, 3)
	require.Contains(t, sourcesIn(t, filepath.Join(root, one[2])), "func "+one[1]+"(t *testing.T)")
	mutant := regexp.MustCompile(`(?s)       == .*?\n\n`).FindString(string(text))
	require.NotEmpty(t, mutant)
	mutants, err := os.ReadFile(filepath.Join(root, "internal", "simulate", "testdata", "mutants", "fences.txt"))
	require.NoError(t, err)
	require.Contains(t, plainLines(string(mutants)), plainLines(mutant))
}

// sourcesIn returns the Go files of a folder, one behind the other.
func sourcesIn(t *testing.T, folder string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	var all strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		all.Write(text)
	}
	return all.String()
}

// plainLines returns a text without the space around its lines.
func plainLines(text string) string {
	var lines []string
	for line := range strings.Lines(strings.TrimSpace(text)) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n")
}

// quotesIn returns the blocks of Go code in a page.
func quotesIn(text string) (quotes []string) {
	for _, found := range regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		quotes = append(quotes, found[1])
	}
	return quotes
}

// sourceOf returns the file in which a quote stands, in one piece, or nothing.
func sourceOf(t *testing.T, quote string, sources []string) string {
	t.Helper()
	for _, name := range sources {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		if strings.Contains("\n"+string(text), "\n"+quote) {
			return name
		}
	}
	return ""
}
