package transferhttp

import (
	"context"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/mongotransfer/transfer"
)

const (
	// pageLimit is how long a page may take, so that a slow query ends by itself.
	pageLimit = 5 * time.Second
	// maxReads is how many pages may be read from the server at once.
	// The others wait.
	maxReads = 8
	// policy lets a page load the window's own style, script and icon, and nothing else.
	// The script asks for the page again, which is what connect-src is for.
	policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
		"frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)

// Option changes a default of [Handler].
type Option func(*window)

// WithRecorder sets where rates, latencies, recent calls and the last audit come from.
// Defaults to none: then the pages show what is stored, and no charts.
func WithRecorder(r *Recorder) Option { return func(w *window) { w.recorder = r } }

// window is what the pages have in common.
type window struct {
	coordinator *transfer.Coordinator
	recorder    *Recorder // nil: there is none
	pages       *template.Template
	assets      map[string]asset
	now         func() time.Time
	limit       time.Duration
	reads       chan struct{} // holds a value for each page that reads
	sights      sights
}

// Handler returns the window on a Coordinator.
//
// It may be mounted anywhere, by http.StripPrefix: all of its links are relative.
//
//	window := transferhttp.Handler(coord)
//	admin.Handle("/transfers/", http.StripPrefix("/transfers", window))
//
// It answers GET and HEAD, and nothing else.
// It has no users and no passwords: see the package's documentation.
//
// A page takes five seconds at most.
// Where the server doesn't answer by then it is a 503, which says so.
// Any number of requests for the overview share one look at the server.
//
// It panics where there is no Coordinator, or an option is nil.
func Handler(c *transfer.Coordinator, opts ...Option) http.Handler {
	if c == nil {
		panic("transferhttp: Handler needs a Coordinator, and got nil") //nolint:forbidigo // as http.Handle does: no error is returned
	}
	w := &window{
		coordinator: c, now: time.Now, limit: pageLimit, // the process's clock comes in here
		reads: make(chan struct{}, maxReads),
	}
	for i, opt := range opts {
		if opt == nil {
			panic(fmt.Sprintf("transferhttp: option %d of Handler is nil", i)) //nolint:forbidigo // as http.Handle does: no error is returned
		}
		opt(w)
	}
	w.assets = loadAssets()
	w.pages = w.loadPages()
	return w
}

// ServeHTTP implements http.Handler.
func (w *window) ServeHTTP(answer http.ResponseWriter, r *http.Request) {
	header := answer.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		w.fail(answer, r, http.StatusMethodNotAllowed, "The window only shows. It answers GET and HEAD.")
		return
	}
	path := strings.TrimPrefix(r.URL.Path, "/")
	if file, found := w.assets[path]; found {
		file.serve(answer, r)
		return
	}
	if path == "" {
		if folder := withoutSlash(r); folder != "" {
			header.Set("Location", folder)
			answer.WriteHeader(http.StatusFound)
			return
		}
	}
	show, found := map[string]func(context.Context, *http.Request) (page, error){
		"":          w.overview,
		"transfers": w.transfers,
		"transfer":  w.transfer,
		"accounts":  w.accounts,
		"account":   w.account,
	}[path]
	if !found {
		w.fail(answer, r, http.StatusNotFound, "There is no such page.")
		return
	}
	w.serve(answer, r, show)
}

// withoutSlash returns the relative address of the overview where it was asked for
// without the slash at its end, from which the links start, and "" otherwise.
// The prefix that was stripped is in RequestURI.
func withoutSlash(r *http.Request) string {
	asked, err := url.ParseRequestURI(r.RequestURI)
	if err != nil || asked.Path == "" || strings.HasSuffix(asked.Path, "/") {
		return ""
	}
	return "./" + url.PathEscape(asked.Path[strings.LastIndex(asked.Path, "/")+1:]) + "/"
}

// serve reads what a page shows, and shows it.
func (w *window) serve(
	answer http.ResponseWriter, r *http.Request, show func(context.Context, *http.Request) (page, error),
) {
	ctx, cancel := context.WithTimeout(r.Context(), w.limit)
	defer cancel()
	p, err := show(ctx, r)
	if err != nil {
		status, text := w.explain(err)
		if status == http.StatusServiceUnavailable {
			answer.Header().Set("Retry-After", "5")
		}
		p.status, p.Trouble = status, text
		switch {
		case p.body != "":
		case status == http.StatusServiceUnavailable: // it may be there in a moment: its reader sees it then
			w.troubled(answer, r, p)
			return
		default:
			w.fail(answer, r, status, text)
			return
		}
	}
	w.write(answer, r, p)
}

// read waits until a page may read from the server.
// It has to call done afterwards.
func (w *window) read(ctx context.Context) (done func(), err error) {
	select {
	case w.reads <- struct{}{}:
		return func() { <-w.reads }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
