package browsertest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	browserlog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// eventually is how long something may take that must happen, also on a machine that
// others keep busy.
const eventually = 2 * time.Minute

// tab is a tab of the browser that a test looks at.
type tab struct {
	t    *testing.T
	ctx  context.Context
	root string // the address of the window's overview

	mu       sync.Mutex
	troubles []string // dialogs, exceptions, and what the browser complains about
	foreign  []string // addresses that were asked for elsewhere
	loads    int
}

// newTab opens a tab for a window.
func newTab(t *testing.T, root string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx, root: root}
	require.NoError(t, chromedp.Do(ctx))
	require.NoError(t, chromedp.Listen(ctx, b.hear))
	_, err := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	require.NoError(t, err)
	return b
}

// hear records what the browser reports of the tab.
func (b *tab) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *page.EventJavascriptDialogOpening:
		b.troubles = append(b.troubles, "dialog: "+e.Message)
		go func() {
			_, _ = chromedp.Call(b.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true})
		}()
	case *runtime.EventExceptionThrown:
		b.troubles = append(b.troubles, "exception: "+e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		b.troubles = append(b.troubles, "console: "+string(e.Type))
	case *browserlog.EventEntryAdded: // it complains about something
		said, err := json.Marshal(e)
		if err == nil && strings.Contains(string(said), "status of 503") {
			return // a busy server was too late with a page, which says so
		}
		b.troubles = append(b.troubles, fmt.Sprint("log: ", string(said), err))
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, b.root) {
			b.foreign = append(b.foreign, e.Request.URL)
		}
	case *page.EventLoadEventFired:
		b.loads++
	}
}

// count returns how many pages were loaded.
func (b *tab) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.loads
}

// requireQuiet requires that no script has shown itself, that the browser has nothing to
// complain about, and that nothing was asked for elsewhere.
func (b *tab) requireQuiet() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(b.t, b.troubles)
	require.Empty(b.t, b.foreign)
}

// goTo loads a page of the window, by its relative address.
// The page before it may be about to load itself anew, which breaks this off.
func (b *tab) goTo(address string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, eventually)
	defer cancel()
	for {
		err := chromedp.Do(ctx, chromedp.Navigate(b.root+strings.TrimPrefix(address, "./")))
		if err != nil && ctx.Err() == nil && strings.Contains(err.Error(), "net::ERR_ABORTED") {
			continue
		}
		require.NoError(b.t, err, address)
		return
	}
}

// eval returns what an expression is in the page.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, eventually)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	require.NoError(b.t, err, expression)
	return value
}

// run runs a statement in the page.
func (b *tab) run(statement string) {
	b.t.Helper()
	eval[bool](b, "(() => { "+statement+"; return true })()")
}

// number counts the elements of a page.
func (b *tab) number(selector string) int {
	b.t.Helper()
	return eval[int](b, "document.querySelectorAll("+quoted(selector)+").length")
}

// parameters returns a parameter of each of some links, as the browser reads it.
func (b *tab) parameters(selector, name string) []string {
	b.t.Helper()
	return eval[[]string](b, "Array.from(document.querySelectorAll("+quoted(selector)+"),"+
		"(a) => new URL(a.href).searchParams.get("+quoted(name)+"))")
}

// await waits until an expression is true in the page.
func (b *tab) await(expression string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		ctx, cancel := context.WithTimeout(b.ctx, eventually)
		defer cancel()
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool](expression))
		return err == nil && is // an error: the page is being replaced
	}, eventually, 50*time.Millisecond, expression)
}

// call sends a command about the tab to the browser.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, command, params)
	require.NoError(b.t, err)
}

// size gives the tab the size of a screen.
func (b *tab) size(width, height int64, opts ...chromedp.EmulateViewportOption) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Do(b.ctx, chromedp.EmulateViewport(width, height, opts...)))
}

// paint chooses the colors, light or dark.
func (b *tab) paint(scheme string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
}

// links are the addresses in the window that the page leads to, as the browser reads
// them.
func (b *tab) links() []string {
	b.t.Helper()
	var links []string
	for _, link := range eval[[]string](b, `Array.from(document.querySelectorAll("a[href]"), (a) => a.href)`) {
		link, _, _ = strings.Cut(link, "#")
		require.True(b.t, strings.HasPrefix(link, b.root), "a link out of the window: %s", link)
		links = append(links, strings.TrimPrefix(link, b.root))
	}
	return links
}

// What the browser complains about is kept, but for a page that a busy server is late
// with.
func TestComplaints(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/late" {
			w.WriteHeader(http.StatusServiceUnavailable)
		} else {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write([]byte("<h1>no page</h1>"))
	}))
	t.Cleanup(server.Close)
	b := newTab(t, server.URL+"/")
	b.goTo("late")
	b.requireQuiet()
	b.goTo("gone")
	require.Eventually(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.troubles) > 0 && strings.Contains(b.troubles[0], "status of 404")
	}, eventually, 10*time.Millisecond)
}
