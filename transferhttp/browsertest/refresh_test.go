package browsertest

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// The overview shows what is new by itself, in the same page: it is not loaded again, and
// neither focus nor place are lost.
func TestOverviewRefreshes(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.MustHold(strings.Repeat("long", 60), 1, time.Hour)
	s.ExpireAll()
	b := newTab(t, s.root)
	b.goTo("./")
	loads := b.count()
	b.size(200, 740)
	part := `document.querySelector("[aria-label='Calls by verb'], [aria-label='Transfers']")`
	b.run(part + `.scrollTo(17, 0)`)
	require.InDelta(t, 17, eval[float64](b, part+`.scrollLeft`), 1)
	b.run(`document.querySelector('main a[href="transfers?show=held"]').focus()`)
	held := `document.getElementById("unfinished").parentElement.textContent.replace(/\s+/g, " ").includes("2 Held")`
	require.False(t, eval[bool](b, held))
	s.MustHold("t", 1, time.Hour)
	b.await(held)
	require.Equal(t, "transfers?show=held", eval[string](b, `document.activeElement.getAttribute("href")`))
	require.InDelta(t, 17, eval[float64](b, part+`.scrollLeft`), 1, "what was scrolled stays so")
	require.Equal(t, loads, b.count())
	b.requireQuiet()
	b.run(part + `.focus()`)
	made := `document.querySelector(".made time").textContent`
	b.await(made + ` !== ` + quoted(eval[string](b, made)))
	require.True(t, eval[bool](b, part+` === document.activeElement`))

	b.run(`document.getSelection().selectAllChildren(document.querySelector("main h1"))`)
	_, err := s.Void(t.Context(), "t")
	require.NoError(t, err)
	other := newTab(t, s.root)
	other.goTo("./")
	other.await("!(" + held + ")")
	other.await(made + ` !== ` + quoted(eval[string](other, made)))
	require.True(t, eval[bool](b, held), "while something is selected the page stays")
	b.run(`document.getSelection().removeAllRanges()`)
	b.await("!(" + held + ")")

	b.goTo("./?still=1")
	require.Zero(t, b.number("script"))
	b.requireQuiet()
	_, err = s.Void(t.Context(), strings.Repeat("long", 60))
	require.NoError(t, err)
	s.CheckBooks(bank.Balances(1000, 0))
}

// What is selected while the server answers stays, too.
func TestSelectedMeanwhile(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := newTab(t, s.root)
	b.goTo("./")
	b.run(`document.getElementById("main").dataset.mine = "yes"`)
	b.run(`const parse = DOMParser.prototype.parseFromString;
		DOMParser.prototype.parseFromString = function (...page) {
			DOMParser.prototype.parseFromString = parse;
			document.getSelection().selectAllChildren(document.querySelector("main h1"));
			return parse.apply(this, page);
		}`)
	b.await(`!document.getSelection().isCollapsed`)
	require.Equal(t, "Overview", eval[string](b, `document.getSelection().toString()`))
	require.True(t, eval[bool](b, `"mine" in document.getElementById("main").dataset`))
	b.run(`document.getSelection().removeAllRanges()`)
	b.await(`!("mine" in document.getElementById("main").dataset)`)
	b.requireQuiet()
}

// Where the page can't be refreshed it says so, keeps what it has shown, and goes on once
// it can.
func TestRefreshFails(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := newTab(t, s.root)
	b.goTo("./")
	working := s.handler.Load()
	away := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(`<p>Please log in</p><script>alert("login")</script>`))
	}))
	s.handler.Store(&away)
	b.await(`!document.getElementById("stale").hidden`)
	require.Contains(t, eval[string](b, `document.getElementById("stale").textContent`), "could not be refreshed")
	require.Equal(t, "Overview", eval[string](b, `document.querySelector("main h1").textContent`))
	s.handler.Store(working)
	b.await(`document.getElementById("stale").hidden`)
	b.requireQuiet()
}

// The page of a transfer follows it to its end, and then stands still.
func TestTransferRefreshes(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.MustHold("t", 1, time.Hour)
	b := newTab(t, s.root)
	b.goTo("transfer?id=t")
	state := `document.querySelector("main .state").textContent`
	require.Equal(t, "Preparing", eval[string](b, state))
	_, err := s.Post(t.Context(), "t")
	require.NoError(t, err)
	b.await(state + ` === "Success"`)
	require.False(t, eval[bool](b, `"refresh" in document.getElementById("main").dataset`))
	b.requireQuiet()
	s.CheckBooks(bank.Balances(1000, 0))
}
