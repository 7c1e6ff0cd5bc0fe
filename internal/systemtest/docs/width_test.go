package docs_test

import (
	"bufio"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// maxCommentColumns is how wide a comment may be, with tabs of four columns.
const maxCommentColumns = 90

// Comments are narrow enough to be read beside the code.
func TestCommentsAreNarrow(t *testing.T) {
	t.Parallel()
	read := 0
	err := filepath.WalkDir("../../..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == ".cache"):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		read++
		file, err := os.Open(path)
		require.NoError(t, err)
		defer func() { _ = file.Close() }()
		lines, output := bufio.NewScanner(file), false
		for n := 1; lines.Scan(); n++ {
			line := strings.ReplaceAll(lines.Text(), "\t", "    ")
			text := strings.TrimSpace(line)
			// What an example prints is as wide as it is.
			output = strings.HasPrefix(text, "// Output:") || output && strings.HasPrefix(text, "//")
			if output || !strings.HasPrefix(text, "//") || strings.HasPrefix(text, "//go:") || strings.Contains(text, "://") {
				continue
			}
			columns := utf8.RuneCountInString(line)
			assert.LessOrEqual(t, columns, maxCommentColumns, "%s:%d: a comment of %d columns", path, n, columns)
		}
		return lines.Err()
	})
	require.NoError(t, err)
	require.Greater(t, read, 100, "the sources were not found")
}
