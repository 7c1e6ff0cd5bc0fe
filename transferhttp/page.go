package transferhttp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/mongotransfer/transfer"
)

//go:embed assets
var files embed.FS

// asset is a file of the window that is no page.
type asset struct {
	content     []byte
	contentType string
}

// version returns what is in the asset's address, so that this changes with the content.
func (a asset) version() string {
	sum := sha256.Sum256(a.content)
	return "v=" + hex.EncodeToString(sum[:6])
}

// loadAssets returns the files that are no pages, by their names.
func loadAssets() map[string]asset {
	assets := map[string]asset{}
	for name, contentType := range map[string]string{
		"window.css": "text/css; charset=utf-8",
		"window.js":  "text/javascript; charset=utf-8",
		"window.svg": "image/svg+xml",
	} {
		content, err := files.ReadFile(path.Join("assets", name))
		if err == nil { // they are embedded
			assets[name] = asset{content, contentType}
		}
	}
	return assets
}

// serve answers with the file.
// It may be kept under the address that changes with its content, and under no other: a
// page of another version of the service asks for another content.
func (a asset) serve(answer http.ResponseWriter, r *http.Request) {
	answer.Header().Set("Content-Type", a.contentType)
	if r.URL.RawQuery == a.version() {
		answer.Header().Set("Cache-Control", "private, max-age=86400")
	}
	http.ServeContent(answer, r, "", time.Time{}, bytes.NewReader(a.content))
}

// page is what a template shows.
type page struct {
	body   string // the template's name
	status int    // 0 stands for 200

	// Title is the page's name.
	Title string
	// Here is the part of the window that it belongs to: a link's address.
	Here string
	// Now is when it was made.
	Now time.Time
	// Up leads from the address that was asked for to where the pages are.
	Up template.URL
	// Refresh is after how many seconds it is worth asking again.
	// Zero: it doesn't change by itself, or the reader has stopped it.
	Refresh int
	// Toggle leads to the same page that refreshes itself, or doesn't.
	Toggle template.URL
	// Still says that the reader has stopped it.
	Still bool
	// Trouble says what went wrong.
	Trouble string
	// Body is what the page shows.
	Body any
}

// loadPages returns the templates.
func (w *window) loadPages() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"visible":      visible,
		"transferLink": transferLink,
		"accountLink":  accountLink,
		"listLink":     listLink,
		"clock":        clock,
		"stamp":        stamp,
		"short":        shortDuration,
		"stateClass":   stateClass,
		"asset":        w.assetLink,
		"extended":     extended,
		"signed":       signed,
		"count":        count,
	}).ParseFS(files, "assets/*.html"))
}

// assetLink returns the address of an asset, which changes with its content.
func (w *window) assetLink(name string) template.URL {
	return template.URL(name + "?" + w.assets[name].version())
}

// refreshing makes a page refresh itself, unless its reader has stopped that.
// Values are what its address has to say.
func (p *page) refreshing(r *http.Request, every time.Duration, values url.Values) {
	p.Still = r.URL.Query().Has("still")
	if !p.Still {
		p.Refresh = int(every / time.Second)
		values.Set("still", "1")
	}
	p.Toggle = link(p.Here, values)
}

// write answers with a page.
func (w *window) write(answer http.ResponseWriter, r *http.Request, p page) {
	below := strings.Count(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	p.Up = template.URL(strings.Repeat("../", min(below, maxBelow)))
	p.Now = w.now()
	var content bytes.Buffer
	if err := w.pages.ExecuteTemplate(&content, p.body, p); err != nil {
		http.Error(answer, "The page could not be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	answer.Header().Set("Content-Type", "text/html; charset=utf-8")
	answer.Header().Set("Content-Length", fmt.Sprint(content.Len()))
	if p.status != 0 {
		answer.WriteHeader(p.status)
	}
	_, _ = answer.Write(content.Bytes()) // an error: the reader has gone
}

// maxBelow is from how far below the pages a page that is not there leads to them.
const maxBelow = 100

// fail answers with a page that has only a trouble.
func (w *window) fail(answer http.ResponseWriter, r *http.Request, status int, text string) {
	w.troubled(answer, r, page{status: status, Trouble: text})
}

// troubled answers with what a page still has when it could not be read.
func (w *window) troubled(answer http.ResponseWriter, r *http.Request, p page) {
	p.body, p.Title = "trouble.html", http.StatusText(p.status)
	w.write(answer, r, p)
}

// badRequest is an error of the address of a page.
type badRequest struct{ text string }

// Error returns what is wrong with it.
func (e *badRequest) Error() string { return e.text }

// explain returns the status and the text of an error.
func (w *window) explain(err error) (status int, text string) {
	var bad *badRequest
	text = clip(err.Error(), maxTroubleBytes)
	switch {
	case errors.As(err, &bad):
		return http.StatusBadRequest, bad.text
	case errors.Is(err, transfer.ErrInvalidRequest):
		return http.StatusBadRequest, text
	case errors.Is(err, transfer.ErrTransferNotFound):
		return http.StatusNotFound, "There is no transfer with this ID, or not any more."
	case errors.Is(err, transfer.ErrAccountNotFound):
		return http.StatusNotFound, "There is no account with this ID."
	case errors.Is(err, transfer.ErrUnauthorized), errors.Is(err, transfer.ErrUnsupportedDeployment),
		errors.Is(err, transfer.ErrAmountKind), transfer.OutcomeOf(err) == transfer.InDoubt:
		return http.StatusInternalServerError, text
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable, fmt.Sprintf(
			"MongoDB has not answered within %s. It is away, or busy, or too much was asked for: %s", w.limit, text)
	}
	return http.StatusServiceUnavailable, text
}

// maxTroubleBytes bounds the text of an error.
const maxTroubleBytes = 1000
