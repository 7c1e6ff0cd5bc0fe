package docs_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each sentence of the documentation begins a line, so that a diff shows which changed.
func TestOneSentencePerLine(t *testing.T) {
	t.Parallel()
	_, paths := pages(t)
	read := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		read++
		for _, line := range crowded(string(text)) {
			t.Errorf("%s has more than one sentence in a line: %s", path, line)
		}
	}
	require.Greater(t, read, 20, "the pages were not found")
}

// Sentences that share a line are found, in lists, too. Tables, blocks and spans of code,
// and what is in brackets, don't count.
func TestSentencesThatShareALineAreFound(t *testing.T) {
	t.Parallel()
	text := "One. Two.\n- **First.** Second\nOne (a. B) two `a. B`.\n| a. B |\n\n```\na. B\n```\nSee `a`. `B` is next\n"
	assert.Equal(t, []string{"One. Two.", "- **First.** Second", "See `a`. `B` is next"}, crowded(text))
}

// crowded returns the lines that have more than one sentence.
func crowded(text string) (lines []string) {
	span := regexp.MustCompile("`[^`]*`")
	bracket := regexp.MustCompile(`\([^()]*\)`)
	second := regexp.MustCompile(`[\w)\]]{2}[.?!]\*{0,2} [A-Z*\[]`)
	fenced := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "```") {
			fenced = !fenced
			continue
		}
		if fenced || strings.HasPrefix(trimmed, "|") || strings.HasPrefix(trimmed, "#") {
			continue
		}
		plain := span.ReplaceAllString(trimmed, "Code")
		for bracket.MatchString(plain) {
			plain = bracket.ReplaceAllString(plain, "")
		}
		if second.MatchString(plain) {
			lines = append(lines, line)
		}
	}
	return lines
}
