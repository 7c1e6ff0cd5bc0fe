package transferhttp

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
)

// link returns the relative address of a page.
// IDs are always in the query: in a path a browser would take ".." and "/" for folders.
func link(page string, values url.Values) template.URL {
	if len(values) == 0 {
		return template.URL(page)
	}
	return template.URL(page + "?" + values.Encode())
}

// transferLink returns the address of a transfer's page.
func transferLink(id string) template.URL { return link("transfer", url.Values{"id": {id}}) }

// accountLink returns the address of an account's page.
func accountLink(ledger, id string) template.URL {
	values := url.Values{"id": {id}}
	if ledger != "" {
		values.Set("ledger", ledger)
	}
	return link("account", values)
}

// listLink returns the address of a list of transfers, by pairs of names and values.
func listLink(pairs ...string) template.URL {
	values := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			values.Set(pairs[i], pairs[i+1])
		}
	}
	return link("transfers", values)
}

// visible returns a text whose every character can be seen: what is invisible, or changes
// the direction of writing, is written as a number.
func visible(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == ' ', unicode.IsGraphic(r) && !unicode.Is(unicode.Zs, r) && !blank(r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, "\\u{%x}", r)
		}
	}
	return b.String()
}

// blank reports whether a letter or mark is drawn as nothing.
func blank(r rune) bool {
	return slices.Contains([]rune{'\u034f', '\u115f', '\u1160', '\u17b4', '\u17b5', '\u2800', '\u3164', '\uffa0'}, r) ||
		unicode.Is(unicode.Variation_Selector, r)
}

// clip shortens a text to a number of bytes.
func clip(text string, most int) string {
	if len(text) <= most {
		return strings.ToValidUTF8(text, "\ufffd")
	}
	for end := most; most > max(end-utf8.UTFMax, 0) && !utf8.RuneStart(text[most]); {
		most--
	}
	return strings.ToValidUTF8(text[:most], "\ufffd") + "…"
}

// clock returns a time for people, in UTC.
func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05.000 UTC")
}

// stamp returns a time for programs.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// shortDuration returns a duration with two or three digits.
func shortDuration(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + shortDuration(-d)
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 10*time.Minute:
		return strconv.FormatFloat(math.Round(d.Minutes()*10)/10, 'f', -1, 64) + " min"
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	}
	return fmt.Sprintf("%.0f days", d.Hours()/24)
}

// relative writes a time as seen from now: "3 min ago", "in 20 s".
func relative(now, t time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return ""
	case d >= time.Second:
		return shortDuration(d) + " ago"
	case d <= -time.Second:
		return "in " + shortDuration(-d)
	}
	return "now"
}

// signed returns an amount with its sign.
func signed(a transfer.Amount) string {
	if a.Sign() > 0 {
		return "+" + a.String()
	}
	return strings.Replace(a.String(), "-", "−", 1)
}

// stateClass returns the class of a state in the style sheet.
func stateClass(s transfer.State) string {
	switch s {
	case transfer.StateInitiated:
		return "waits"
	case transfer.StatePreparing, transfer.StateCommitted:
		return "works"
	case transfer.StateSuccess:
		return "good"
	case transfer.StateRollback:
		return "back"
	case transfer.StateFail:
		return "failed"
	}
	return "unknown"
}

// maxExtendedBytes bounds how much of a document is shown: more than metadata may have,
// and less than a browser is slow with.
const maxExtendedBytes = 128 << 10

// extended returns a value as MongoDB's extended JSON, the keys of maps in alphabetical
// order.
func extended(value any) string {
	whole, err := bson.MarshalExtJSONIndent(bson.D{{Key: "v", Value: sorted(value)}}, false, false, "", "  ")
	if err != nil {
		return "(it can't be shown: " + err.Error() + ")"
	}
	inner := strings.TrimSpace(string(whole))
	inner = strings.TrimSuffix(strings.TrimPrefix(inner, "{"), "}")
	_, inner, _ = strings.Cut(inner, ":")
	inner = strings.ReplaceAll(strings.TrimSpace(inner), "\n  ", "\n")
	text, more := clip(inner, maxExtendedBytes), ""
	if cut := len(inner) - maxExtendedBytes; cut > 0 {
		more = fmt.Sprintf("\n(and %d bytes more)", cut)
	}
	return multiline(text) + more
}

// multiline is visible, line by line.
func multiline(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = visible(lines[i])
	}
	return strings.Join(lines, "\n")
}

// sorted returns a value in which maps are documents in the order of their keys.
func sorted(value any) any {
	switch v := value.(type) {
	case map[string]any:
		d := make(bson.D, 0, len(v))
		for key, inner := range v {
			d = append(d, bson.E{Key: key, Value: sorted(inner)})
		}
		slices.SortFunc(d, func(a, b bson.E) int { return cmp.Compare(a.Key, b.Key) })
		return d
	case bson.M:
		return sorted(map[string]any(v))
	case bson.D:
		d := make(bson.D, len(v))
		for i, e := range v {
			d[i] = bson.E{Key: e.Key, Value: sorted(e.Value)}
		}
		return d
	case bson.A:
		return sorted([]any(v))
	case []any:
		a := make(bson.A, len(v))
		for i := range v {
			a[i] = sorted(v[i])
		}
		return a
	}
	return value
}
