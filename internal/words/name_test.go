package words

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

// A name that can be an ID takes at most 64 bytes in a text, in one line of valid UTF-8.
// Two names that differ at the beginning or at the end stay distinct.
func TestNamesAreShort(t *testing.T) {
	t.Parallel()
	assert.Equal(t, `"order-17"`, Quote("order-17"))
	assert.Equal(t, "order-17", Clip("order-17"))
	assert.Equal(t, `""`, Quote(""))
	for _, unit := range []string{"x", "ü", "日", "🙂", "\x00", "\xff", "\"", "\\", "\n", "\u2028"} {
		for n := range 256 {
			name := strings.Repeat(unit, n)
			for _, text := range []string{Quote(name), Clip(name)} {
				assert.LessOrEqual(t, len(text), maxNameBytes, "%q", name)
				assert.True(t, utf8.ValidString(text), "%q", name)
			}
			assert.NotContains(t, Quote(name), "\n")
			assert.False(t, strings.ContainsFunc(Quote(name), unicode.IsControl), "%q", name)
		}
		if long := strings.Repeat(unit, 200); unit != "\xff" {
			assert.NotEqual(t, Quote("a"+long), Quote("b"+long))
			assert.NotEqual(t, Quote(long+"a"), Quote(long+"b"))
			assert.NotEqual(t, Clip(long+"a"), Clip(long+"b"))
			assert.Greater(t, len(Quote(long)), maxNameBytes/2)
		}
	}
	assert.Equal(t, strings.Repeat("x", 30)+"…"+strings.Repeat("y", 20), Short(strings.Repeat("x", 500)+strings.Repeat("y", 30), 53))
}
