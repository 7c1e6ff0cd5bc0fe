package browsertest

import (
	_ "embed"
	"encoding/json"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// quoted returns a text as JavaScript has it.
func quoted(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		return `""`
	}
	return string(quoted)
}

// On a phone no page is wider than the screen, however long an ID is.
func TestPhone(t *testing.T) {
	t.Parallel()
	s, ids := newHostileScene(t)
	b := newTab(t, s.root)
	for _, width := range []int64{320, 412} {
		b.size(width, 740, chromedp.EmulateMobile, chromedp.EmulateTouch)
		for _, address := range append(s.pages(ids[len(ids)-4:]...), missing()...) {
			b.goTo(address)
			require.LessOrEqual(t, eval[int64](b, `document.documentElement.scrollWidth`), width, "%s at %d", address, width)
			require.Equal(t, width, eval[int64](b, `window.innerWidth`), "%s is not scaled", address)
			require.GreaterOrEqual(t, eval[float64](b, `parseFloat(getComputedStyle(document.querySelector("main p")).fontSize)`), 12.0)
		}
	}
}

// However long an ID or a text is, it takes no more of a table than its share: the other
// columns are in sight.
func TestTables(t *testing.T) {
	t.Parallel()
	s, ids := newHostileScene(t)
	b := newTab(t, s.root)
	for _, size := range []struct {
		width, most int64
		opts        []chromedp.EmulateViewportOption
	}{{1080, 1080, nil}, {320, 440, []chromedp.EmulateViewportOption{chromedp.EmulateMobile, chromedp.EmulateTouch}}} {
		b.size(size.width, 740, size.opts...)
		for _, address := range s.pages(ids[len(ids)-4:]...) {
			b.goTo(address)
			for _, widest := range eval[[]int64](b, `Array.from(document.querySelectorAll(".scroll table"), (e) => Math.ceil(e.scrollWidth))`) {
				require.LessOrEqual(t, widest, size.most, "%s at %d", address, size.width)
			}
			narrow := eval[[]string](b, `Array.from(document.querySelectorAll("tbody :is(th, td):not(.number, .stages, .columns *)"))
				.filter((e) => e.offsetWidth > 0 && e.offsetWidth < 40 && e.textContent.length > 3).map((e) => e.textContent)`)
			require.Empty(t, narrow, "%s at %d", address, size.width)
		}
	}
}

// contrasts returns the texts of a page that are hard to read: less than 4.5 to 1, and
// the parts of charts that are hard to see, less than 3 to 1.
//
//go:embed testdata/contrasts.js
var contrasts string

// In light and in dark colors every text is easy to read, and every part of a chart to
// see.
func TestColors(t *testing.T) {
	t.Parallel()
	s, ids := newHostileScene(t)
	b := newTab(t, s.root)
	s.drive(b)
	for _, scheme := range []string{"light", "dark"} {
		b.paint(scheme)
		for _, address := range append(s.pages(ids[:3]...), missing()...) {
			b.goTo(address)
			found := eval[struct {
				Seen int
				Bad  []string
				Dark bool
			}](b, contrasts)
			require.Greater(t, found.Seen, 5, address)
			require.Empty(t, found.Bad, "%s, %s", address, scheme)
			require.Equal(t, scheme == "dark", found.Dark)
		}
	}
}

// faults returns what a page lacks for those who don't see it, or use no mouse.
//
//go:embed testdata/faults.js
var faults string

// Who doesn't see the page, or has no mouse, gets everything that it has.
func TestAccessible(t *testing.T) {
	t.Parallel()
	s, ids := newHostileScene(t)
	b := newTab(t, s.root)
	s.drive(b)
	for _, address := range append(s.pages(append(ids[:3:3], "a")...), missing()...) {
		b.goTo(address)
		require.Empty(t, eval[[]string](b, faults), address)
	}
}
