package browsertest

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/stretchr/testify/require"
)

// withID returns the address of a page about an ID.
func withID(page, id string) string { return page + "?" + url.Values{"id": {id}}.Encode() }

// maxLists is how many lists of transfers are looked at, which are all alike.
const maxLists = 20

// No script runs but the window's, nothing is asked for elsewhere, and the browser has
// nothing to complain about, whatever IDs and metadata are.
// That doesn't hang on the policy: it is the same where the browser doesn't heed it.
// Each link leads to the page of its ID, whatever that is.
func TestNoForeignScriptRuns(t *testing.T) {
	t.Parallel()
	s, ids := newHostileScene(t)
	b := newTab(t, s.root)
	call(b, page.SetBypassCSP, page.SetBypassCSPParams{Enabled: true})
	shown := map[string]int{}
	seen, waiting := map[string]bool{}, []string{"./"}
	for len(waiting) > 0 {
		address := waiting[0]
		waiting = waiting[1:]
		kind, _, _ := strings.Cut(address, "?")
		if seen[address] || strings.Contains(address, "still=1") || kind == "transfers" && shown[kind] == maxLists {
			continue
		}
		seen[address] = true
		shown[kind]++
		b.goTo(address)
		b.requireOnlyOurs(address)
		if kind == "transfer" {
			require.Equal(t, []string{idOf(t, address)}, b.parameters(`main a[href^="transfers?reverses="]`, "reverses"))
		}
		waiting = append(waiting, b.links()...)
	}
	b.requireQuiet()
	require.Equal(t, len(ids), shown["transfer"])
	require.Equal(t, len(ids)+2, shown["account"], "the hostile ones, a and b")
	for _, list := range []string{"transfers", "accounts"} {
		b.goTo(list)
		require.Subset(t, b.parameters(`main a[href^="`+strings.TrimSuffix(list, "s")+`?"]`, "id"), ids)
	}
}

// The browser heeds the policy, and nothing of the window is against it.
func TestPolicy(t *testing.T) {
	t.Parallel()
	s, ids := newHostileScene(t)
	b := newTab(t, s.root)
	for _, address := range s.pages(ids[:5]...) {
		b.goTo(address)
		b.requireOnlyOurs(address)
	}
	b.requireQuiet()
	b.goTo("./")
	b.run(`const s = document.createElement("script"); s.textContent = "document.title = 'run'"; document.body.append(s)`)
	require.NotEqual(t, "run", eval[string](b, "document.title"))
}

// idOf returns the ID in an address.
func idOf(t *testing.T, address string) string {
	t.Helper()
	parsed, err := url.Parse(address)
	require.NoError(t, err)
	return parsed.Query().Get("id")
}

// requireOnlyOurs requires that a page has the window's elements, and no others.
func (b *tab) requireOnlyOurs(address string) {
	b.t.Helper()
	require.Equal(b.t, 1, b.number("main h1"), address)
	require.Zero(b.t, b.number("iframe, img, style, base, object, embed, [onclick], [style]"), address)
	require.LessOrEqual(b.t, b.number("script"), 1, address)
}

// What a reader types is looked up as it is.
func TestFind(t *testing.T) {
	t.Parallel()
	s, ids := newHostileScene(t)
	b := newTab(t, s.root)
	for _, id := range ids[:3] {
		for _, kind := range []string{"transfer", "account"} {
			b.goTo("accounts")
			input := `document.getElementById("find-` + kind + `")`
			eval[string](b, input+`.value = `+quoted(id))
			b.run(input + `.form.requestSubmit()`)
			b.await(`location.pathname.endsWith("/` + kind + `") && document.querySelector("main h1 bdi")?.textContent === ` + quoted(id))
		}
	}
	b.requireQuiet()
}

// Without scripts every page shows the same, and the overview refreshes itself.
func TestWithoutScripts(t *testing.T) {
	t.Parallel()
	s, ids := newHostileScene(t)
	b, plain := newTab(t, s.root), newTab(t, s.root)
	call(plain, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	// What the recorder shows changes with the time.
	structure := `Array.from(
		document.querySelectorAll("h1, main form label, section:not([aria-labelledby=lately]) :is(h2, h3, a, [scope=row])"),
		(e) => e.textContent)`
	for _, address := range s.pages(ids[0], ids[1]) {
		// A server that is busy for a while has no time for a statement.
		for deadline, same := time.Now().Add(eventually), false; !same; {
			b.goTo(address)
			plain.goTo(address)
			scripted, unscripted := eval[[]string](b, structure), eval[[]string](plain, structure)
			if same = slices.Equal(scripted, unscripted); !same && time.Now().After(deadline) {
				require.Equal(t, scripted, unscripted, address)
			}
		}
	}
	plain.goTo("./")
	loads := plain.count()
	require.Eventually(t, func() bool { return plain.count() > loads }, eventually, 50*time.Millisecond, "the overview asks for itself again")
	plain.goTo("./?still=1")
	require.Zero(t, plain.number("noscript"))
	plain.requireQuiet()
}
