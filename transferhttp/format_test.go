package transferhttp_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/transferhttp"
)

// Every character of a text can be seen: none is invisible, breaks the line, or changes
// the direction of what follows.
func TestVisible(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"order 17 <b>": "order 17 <b>", "שלום": "שלום", "日本 🙂": "日本 🙂",
		"a\nb\t\x00": `a\u{a}b\u{9}\u{0}`, "\u202egnp": `\u{202e}gnp`, "\u2066x\u2069": `\u{2066}x\u{2069}`, "\u200b\ufeff": `\u{200b}\u{feff}`,
		"a\u00a0b\u3164\u2800": `a\u{a0}b\u{3164}\u{2800}`, "\xff": "\ufffd",
	} {
		require.Equal(t, want, transferhttp.Visible(text))
	}
}

// Times are shown as seen from now.
func TestRelative(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for d, want := range map[time.Duration]string{
		0: "now", 999 * time.Millisecond: "now", -999 * time.Millisecond: "now", 3 * time.Second: "3.0 s ago", 90 * time.Second: "90 s ago",
		10 * time.Minute: "10 min ago", 5 * time.Hour: "5 h ago", 72 * time.Hour: "3 days ago", -10 * time.Minute: "in 10 min",
	} {
		require.Equal(t, want, transferhttp.Relative(now, now.Add(-d)))
	}
	require.Empty(t, transferhttp.Relative(now, time.Time{}))
}

// Any value of a document can be shown, the same way each time.
func TestExtended(t *testing.T) {
	t.Parallel()
	value := map[string]any{
		"b": bson.A{bson.M{"d": 2, "c": nil}}, "a": bson.D{{Key: "x", Value: []any{}}, {Key: "y", Value: 1}},
	}
	for range 20 {
		words := strings.Fields(transferhttp.Extended(value))
		require.Equal(t, strings.Fields(`{ "a": { "x": [], "y": 1 }, "b": [ { "c": null, "d": 2 } ] }`), words)
	}
	for _, value := range []any{nil, "x", 1.5, math.NaN(), int64(7), bson.NewObjectID(), bson.Binary{Data: []byte{1}}, true, bson.MinKey{}} {
		require.NotContains(t, transferhttp.Extended(value), "can't be shown", "%v", value)
	}
	require.Equal(t, `"\u{202e}"`, transferhttp.Extended("\u202e"))
	require.Contains(t, transferhttp.Extended(make(chan int)), "can't be shown")
}
