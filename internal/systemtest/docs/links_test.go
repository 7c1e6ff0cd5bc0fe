// Package docs_test checks the documentation as a reader meets it.
package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/outside"
)

// pages returns the repository's folder and all Markdown files in it.
func pages(t *testing.T) (root string, paths []string) {
	t.Helper()
	root, err := outside.Root()
	require.NoError(t, err)
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", ".cache", "testdata"}, entry.Name()):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md":
			paths = append(paths, path)
		}
		return nil
	}))
	require.Contains(t, paths, filepath.Join(root, "README.md"))
	return root, paths
}

// Each link in a Markdown file leads to a file that exists, and each anchor to a heading.
func TestLinksResolve(t *testing.T) {
	t.Parallel()
	root, paths := pages(t)
	for _, path := range paths {
		broken, err := brokenLinks(root, path)
		require.NoError(t, err, path)
		assert.Empty(t, broken, path)
	}
}

// Every page and every picture in docs can be reached from the README.
func TestEveryPageIsLinked(t *testing.T) {
	t.Parallel()
	root, _ := pages(t)
	reached := map[string]bool{}
	waiting := []string{filepath.Join(root, "README.md")}
	for len(waiting) > 0 {
		path := waiting[0]
		waiting = waiting[1:]
		if reached[path] {
			continue
		}
		reached[path] = true
		if filepath.Ext(path) != ".md" {
			continue
		}
		p, err := readPage(path)
		require.NoError(t, err)
		for _, link := range p.links {
			if file, _, inside := target(root, path, link); inside {
				waiting = append(waiting, file)
			}
		}
	}
	require.NoError(t, filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if slices.Contains([]string{".md", ".svg", ".json"}, filepath.Ext(path)) {
			assert.True(t, reached[path], "no page links %s", path)
		}
		return err
	}))
}

// The README fits on one page.
func TestReadmeIsShort(t *testing.T) {
	t.Parallel()
	root, _ := pages(t)
	content, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	assert.LessOrEqual(t, strings.Count(string(content), "\n"), 150)
}

// A link to a missing file or heading is found, in text and in tables. Links in code
// don't count.
func TestBrokenLinksAreFound(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	first, second := filepath.Join(root, "first.md"), filepath.Join(root, "second.md")
	require.NoError(t, os.WriteFile(first, []byte("# First\n\n"+
		"[good](second.md#what-cant-be-2), [good](second.md), [good](#first), [away](https://example.com/none.md),\n"+
		"[gone](third.md), ![gone](picture.svg), [no heading](second.md#what-cant-be-3), [none here](#second)\n"+
		"| [in a table](second.md#What) |\n\n[below]: fourth.md\n\n"+
		"`[in code](fifth.md)`\n\n```\n[in a block](sixth.md)\n# No heading\n```\n\n"+
		"[by address](https://github.com/mongotransfer/transfer/blob/main/seventh.md)\n"), 0o600))
	require.NoError(t, os.WriteFile(second, []byte("## What can't be\n## What can't be\n## What can't be\n"), 0o600))
	broken, err := brokenLinks(root, first)
	require.NoError(t, err)
	assert.Equal(t, []string{
		"third.md", "picture.svg", "second.md#what-cant-be-3", "#second", "second.md#What", "fourth.md",
		"https://github.com/mongotransfer/transfer/blob/main/seventh.md",
	}, broken)
}
