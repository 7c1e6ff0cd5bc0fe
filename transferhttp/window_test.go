package transferhttp_test

import (
	"context"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
	"github.com/mongotransfer/transfer/transferhttp"
)

// prefix is where the tests mount the window.
const prefix = "/admin/window"

// pane is a window that a test looks through.
type pane struct {
	*httptest.Server
	t *testing.T
}

// answer is a page, or what else came.
type answer struct {
	*http.Response
	body string
}

func open(t *testing.T, c *transfer.Coordinator, opts ...transferhttp.Option) pane {
	t.Helper()
	return mount(t, transferhttp.Handler(c, opts...))
}

func mount(t *testing.T, h http.Handler) pane {
	t.Helper()
	server := httptest.NewServer(http.StripPrefix(prefix, h))
	t.Cleanup(server.Close)
	return pane{server, t}
}

// ask asks for a relative address, and follows no redirection.
func (p pane) ask(method, address string) answer {
	p.t.Helper()
	base, err := url.Parse(p.URL + prefix + "/")
	require.NoError(p.t, err)
	relative, err := url.Parse(address)
	require.NoError(p.t, err)
	request, err := http.NewRequestWithContext(p.t.Context(), method, base.ResolveReference(relative).String(), nil)
	require.NoError(p.t, err)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	require.NoError(p.t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(p.t, err)
	return answer{response, string(body)}
}

// get asks for a page that is there.
func (p pane) get(address string) answer {
	p.t.Helper()
	a := p.ask(http.MethodGet, address)
	require.Equal(p.t, http.StatusOK, a.StatusCode, "%s: %s", address, a.body)
	return a
}

// withID returns the address of a page about an ID.
func withID(page, id string) string { return page + "?" + url.Values{"id": {id}}.Encode() }

// links returns the addresses that a page leads to, as a browser reads them.
func (a answer) links() (links []string) {
	for _, found := range regexp.MustCompile(`(?:href|src)="([^"]*)"`).FindAllStringSubmatch(a.body, -1) {
		links = append(links, html.UnescapeString(found[1]))
	}
	return links
}

// text returns what a reader sees.
func (a answer) text() string {
	body := regexp.MustCompile(`(?s)<head>.*</head>`).ReplaceAllString(a.body, "")
	plain := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(body, " ")
	return strings.Join(strings.Fields(html.UnescapeString(plain)), " ")
}

// requireSafe requires the header fields that each answer has.
func (a answer) requireSafe(t *testing.T) {
	t.Helper()
	assert.Equal(t, transferhttp.Policy, a.Header.Get("Content-Security-Policy"))
	assert.Equal(t, "nosniff", a.Header.Get("X-Content-Type-Options"))
	assert.Equal(t, "no-referrer", a.Header.Get("Referrer-Policy"))
}

// requireOnlyOurs requires that a page has no elements and attributes but the window's.
func (a answer) requireOnlyOurs(t *testing.T, address string) {
	t.Helper()
	values := regexp.MustCompile(`="[^"<>]*"`)
	ours := regexp.MustCompile(`^(!DOCTYPE|html|head|meta|title|link|noscript|script|body|a|header|nav|form|label|input|button|main|` +
		`p|strong|time|h[1-3]|section|ul|ol|li|span|div|figure|figcaption|svg|path|table|caption|thead|tbody|tr|th|td|dl|dt|dd|` +
		`code|pre|bdi|br|select|option)$`)
	attributes := regexp.MustCompile(`\s(on\w+|style|srcdoc|formaction)\b`)
	for _, tag := range regexp.MustCompile(`<[^/][^>]*>`).FindAllString(values.ReplaceAllString(a.body, "="), -1) {
		name := strings.FieldsFunc(tag, func(r rune) bool { return strings.ContainsRune("<> \n", r) })[0]
		assert.Regexp(t, ours, name, "%s: %s", address, tag)
		assert.NotRegexp(t, attributes, tag, address)
	}
	assert.LessOrEqual(t, strings.Count(a.body, "<script"), 1, address)
}

// hostileIDs are IDs that would mean something else in a page, or in an address.
func hostileIDs() []string {
	return append(bank.OddIDs(),
		"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "' onmouseover='alert(1)", "javascript:alert(1)", "{{.}}",
		"</textarea><b>",
		"a/b", "/", "//", "../../etc", "./", "a/../b", "?id=x", "a?b#c", "#", "a&id=b", "a;b", "a+b", "a b", "a=b", "%2e%2e", "%2F", "\\",
		"line\nbreak\r\n", "\u202eright to left", "שלום", "\u200bzero width\u2066", "\u00a0", "\u3164", "<!--", "]]>", "&lt;b&gt;", "&#x3c;",
	)
}

// Each page that a link leads to is there, for accounts and transfers with any IDs and
// metadata, and none of them is taken for markup.
// All links are relative, so that this works below any prefix.
func TestEveryLinkLeads(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	hostile := hostileIDs()
	for i, id := range hostile {
		_, err := b.OpenAccount(t.Context(), transfer.Account{
			ID: id, Balance: transfer.Units(10), Metadata: map[string]any{"name": id},
		})
		require.NoError(t, err)
		if i == 0 {
			continue
		}
		req := bank.Move(id, hostile[i-1], id, 1)
		req.Metadata = map[string]any{"<b>": id, "list": []any{id, map[string]any{"$x": id}}}
		_, err = b.Transfer(t.Context(), req)
		require.NoError(t, err)
	}
	p := open(t, b.Coordinator)
	absolute := regexp.MustCompile(`^(/|[a-z]+:)`)
	seen, waiting := map[string]bool{}, []string{"./"}
	shown := map[string]map[string]bool{"transfer": {}, "account": {}}
	for len(waiting) > 0 {
		address := waiting[0]
		waiting = waiting[1:]
		if seen[address] {
			continue
		}
		seen[address] = true
		a := p.get(address)
		a.requireSafe(t)
		parsed, err := url.Parse(address)
		require.NoError(t, err)
		if ids := shown[parsed.Path]; ids != nil {
			ids[parsed.Query().Get("id")] = true
			assert.Contains(t, html.UnescapeString(a.body), transferhttp.Visible(parsed.Query().Get("id")))
		}
		if !strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") {
			continue
		}
		a.requireOnlyOurs(t, address)
		for _, link := range a.links() {
			require.NotRegexp(t, absolute, link, "a link that is not relative, on %s", address)
			if !strings.HasPrefix(link, "#") {
				waiting = append(waiting, link)
			}
		}
	}
	for i, id := range hostile {
		assert.True(t, shown["account"][id], "the account %q is not reached", id)
		assert.True(t, i == 0 || shown["transfer"][id], "the transfer %q is not reached", id)
	}
	require.Empty(t, b.MustAudit().Findings)
}

// The window answers GET and HEAD, and changes nothing.
// It sends no command that writes, except for the statement of an account that has
// transfers under way, which changes nothing about these: see Coordinator.Statement.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0, 0).WithIndexes()
	b.MustMove("t", 10)
	b.MustHold("held", 10, time.Hour)
	_, err := b.Transfer(t.Context(), bank.Move("u", "b", "c", 10))
	require.NoError(t, err)
	before := func() (contents []string, rec transfer.Record) {
		rec, err := b.Get(t.Context(), "held")
		require.NoError(t, err)
		return b.Contents()["accounts"], rec
	}
	accounts, held := before()
	sent := &commands{}
	p := open(t, b.NewCoordinator(b.Through(sent.client())))
	for _, address := range []string{
		"./", "transfers", "transfers?show=held", "accounts", "transfer?id=t", "transfer?id=held", "account?id=c",
	} {
		full := p.get(address)
		require.Equal(t, "no-store", full.Header.Get("Cache-Control"))
		head := p.ask(http.MethodHead, address)
		require.Equal(t, http.StatusOK, head.StatusCode)
		require.Empty(t, head.body)
		require.Equal(t, full.Header.Get("Content-Type"), head.Header.Get("Content-Type"))
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions} {
			a := p.ask(method, address)
			require.Equal(t, http.StatusMethodNotAllowed, a.StatusCode)
			require.Equal(t, "GET, HEAD", a.Header.Get("Allow"))
			a.requireSafe(t)
		}
	}
	require.Empty(t, sent.but("find", "aggregate", "getMore", "hello", "ping", "listCollections", "endSessions"))
	p.get("account?id=a")
	accountsAfter, heldAfter := before()
	require.Equal(t, accounts, accountsAfter)
	require.Equal(t, held, heldAfter)
	_, err = b.Void(t.Context(), "held")
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(1000, 0, 0))
}

// An address that can't be answered has the status that says why, and a page.
func TestBadAddresses(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0).WithIndexes()
	b.MustMove("t", 1)
	p := open(t, b.Coordinator)
	long := strings.Repeat("x", 1<<10)
	for address, status := range map[string]int{
		"nothing":                              http.StatusNotFound,
		"transfers/":                           http.StatusNotFound,
		"transfer/t":                           http.StatusNotFound,
		"window.css/../x":                      http.StatusNotFound,
		"layout.html":                          http.StatusNotFound,
		"assets/window.css":                    http.StatusNotFound,
		"transfer":                             http.StatusBadRequest,
		"transfer?id=":                         http.StatusBadRequest,
		"transfer?id=x":                        http.StatusNotFound,
		"transfer?id=" + long:                  http.StatusBadRequest,
		"transfer?id=%ff":                      http.StatusBadRequest,
		"account":                              http.StatusBadRequest,
		"account?id=x":                         http.StatusNotFound,
		"account?id=" + long:                   http.StatusBadRequest,
		"account?id=a&ledger=x":                http.StatusBadRequest,
		"account?id=a&beyond=t":                http.StatusBadRequest,
		"account?id=a&at=2026-01-01T00:00:00Z": http.StatusBadRequest,
		"account?id=a&beyond=t&at=yesterday":   http.StatusBadRequest,
		"account?id=a&beyond=t&at=0001-01-01T00:00:00Z":            http.StatusBadRequest,
		"account?id=a&beyond=" + long + "&at=2026-01-01T00:00:00Z": http.StatusBadRequest,
		"transfers?beyond=x":         http.StatusBadRequest,
		"transfers?beyond=" + long:   http.StatusBadRequest,
		"transfers?show=x":           http.StatusBadRequest,
		"transfers?ledger=x":         http.StatusBadRequest,
		"transfers?account=" + long:  http.StatusBadRequest,
		"transfers?reverses=" + long: http.StatusBadRequest,
		"accounts?ledger=x":          http.StatusBadRequest,
		"accounts?beyond=%ff":        http.StatusBadRequest,
	} {
		a := p.ask(http.MethodGet, address)
		assert.Equal(t, status, a.StatusCode, "%s: %s", address, a.text())
		assert.Contains(t, a.body, `role="alert"`, address)
		assert.Empty(t, a.Header.Get("Retry-After"), address)
		a.requireSafe(t)
	}
}

// Where the links start from, there is a slash at the end of the address: without it the
// reader is led there, wherever the window is mounted, and nowhere else.
func TestOverviewHasASlash(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 10, 0)
	h := transferhttp.Handler(b.Coordinator)
	for mounted, want := range map[string]string{prefix: "./window/", "/a b": "./a%20b/", "/x:y": "./x:y/", "/" + "\\": "./%5C/"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RequestURI = (&url.URL{Path: mounted}).EscapedPath()
		r.URL = &url.URL{Path: ""}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, http.StatusFound, w.Code)
		require.Equal(t, want, w.Header().Get("Location"))
	}
	p := mount(t, h)
	response, err := http.Get(p.URL + prefix)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, prefix+"/", response.Request.URL.Path)
	require.Equal(t, http.StatusOK, response.StatusCode)
}

// Where the server is away each page says so, within the limit: 503, and when to ask
// again.
// The overview still shows what the process itself knows.
func TestServerAway(t *testing.T) {
	t.Parallel()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1/?directConnection=true"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	recorder := transferhttp.NewRecorder()
	c, err := transfer.NewCoordinator(client.Database("away"), transfer.WithObserver(recorder.Observer(transfer.Observer{})))
	require.NoError(t, err)
	t.Cleanup(func() { bank.Kill(c) })
	recorder.Audited(transfer.AuditReport{Accounts: 4711}, nil)
	p := open(t, c, transferhttp.WithRecorder(recorder), transferhttp.WithLimit(200*time.Millisecond))
	for _, address := range []string{"./", "transfers", "accounts", "transfer?id=t", "account?id=a"} {
		begun := time.Now()
		a := p.ask(http.MethodGet, address)
		require.Less(t, time.Since(begun), 20*time.Second)
		require.Equal(t, http.StatusServiceUnavailable, a.StatusCode, address)
		require.Equal(t, "5", a.Header.Get("Retry-After"))
		require.Contains(t, a.text(), "MongoDB has not answered within 200ms")
		a.requireSafe(t)
	}
	overview := p.ask(http.MethodGet, "./").text()
	require.Contains(t, overview, "not known now")
	require.NotContains(t, overview, "Nothing is stuck")
	require.Contains(t, overview, "Calls a second")
	require.Contains(t, overview, "4711 accounts")
	require.NoError(t, c.Close(t.Context()))
	require.Equal(t, http.StatusServiceUnavailable, p.ask(http.MethodGet, "transfers").StatusCode, "closed")
}

// Where only the server of another ledger is away, the overview says so, and shows the
// rest; the pages that need that server say that it is away.
func TestOtherServerAway(t *testing.T) {
	t.Parallel()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1/?directConnection=true"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	b := bank.New(t, 10, 0).WithIndexes()
	b.MustMove("t", 1)
	b.MustHold("overdue", 1, time.Hour)
	b.Expire("overdue")
	c := b.NewCoordinator(b.DB, transfer.WithLedger("far", client.Database("far").Collection("accounts")))
	p := open(t, c, transferhttp.WithLimit(2*time.Second))
	attention := p.get("./").section("attention")
	require.Contains(t, attention, "Not healthy:")
	require.Contains(t, attention, "Overdue holds 1")
	require.NotContains(t, attention, "Nothing is stuck")
	require.Contains(t, p.get("transfer?id=t").section("explained"), "settled")
	require.Equal(t, http.StatusServiceUnavailable, p.ask(http.MethodGet, "account?id=a&ledger=far").StatusCode)
	require.Equal(t, http.StatusServiceUnavailable, p.ask(http.MethodGet, "accounts?ledger=far").StatusCode)
	_, err = b.Void(t.Context(), "overdue")
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(10, 0))
}
