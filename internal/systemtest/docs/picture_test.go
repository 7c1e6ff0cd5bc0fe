package docs_test

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The picture of the protocol is well-formed, needs nothing from elsewhere, can be read
// out, and has colors for both light and dark.
func TestPictureOfTheProtocol(t *testing.T) {
	t.Parallel()
	root, _ := pages(t)
	text, err := os.ReadFile(filepath.Join(root, "docs", "protocol.svg"))
	require.NoError(t, err)
	elements := map[string]int{}
	picture := xml.NewDecoder(strings.NewReader(string(text)))
	for {
		token, err := picture.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if start, ok := token.(xml.StartElement); ok {
			elements[start.Name.Local]++
			for _, attribute := range start.Attr {
				assert.NotEqual(t, "href", attribute.Name.Local)
			}
		}
	}
	assert.Equal(t, 1, elements["title"])
	assert.Equal(t, 1, elements["desc"])
	assert.Zero(t, elements["script"])
	assert.Contains(t, string(text), "prefers-color-scheme: dark")
	for _, word := range []string{"Preparing", "Committed", "Success", "AtCommit", "AtSettled"} {
		assert.Contains(t, string(text), ">"+word, "the picture's words")
	}
}
