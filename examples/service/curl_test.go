package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// curl is a client that repeats a request by the rules of curl, as its manual has them
// under --retry, --retry-all-errors and --max-time.
// Its pauses are recorded and not made.
type curl struct {
	t *testing.T
	// retry is how often it repeats a request.
	retry int
	// allErrors repeats after a broken connection as well.
	allErrors bool
	client    *http.Client

	pauses []time.Duration
	tries  int
	timeUp context.CancelFunc // for the request under way, as --max-time would have it
}

// errTimeUp ends a request that has taken longer than --max-time.
var errTimeUp = errors.New("the time is up")

// transient reports whether curl --retry repeats a request after an answer with this
// status.
func transient(status int) bool {
	return slices.Contains([]int{408, 429, 500, 502, 503, 504, 522, 524}, status)
}

// result is what curl ends with.
type result struct {
	status int
	header http.Header
	body   string
	err    error
}

func newCurl(t *testing.T, retry int, allErrors bool) *curl {
	t.Helper()
	// Go's client would repeat a request with an Idempotency-Key by itself, if it was
	// sent over a used connection.
	transport := &http.Transport{DisableKeepAlives: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &curl{t: t, retry: retry, allErrors: allErrors, client: &http.Client{Transport: transport}}
}

// post sends a request until there is an answer that curl takes.
func (c *curl) post(url, key, body string) result {
	c.t.Helper()
	for pause, left := time.Second, c.retry; ; pause, left = 2*pause, left-1 {
		got := c.once(url, key, body)
		again := transient(got.status) || errors.Is(got.err, errTimeUp) || c.allErrors
		if got.err == nil {
			again = transient(got.status)
		}
		if !again || left == 0 {
			return got
		}
		wait := pause
		if after, err := strconv.Atoi(got.header.Get("Retry-After")); err == nil {
			wait = time.Duration(after) * time.Second
		}
		c.pauses = append(c.pauses, wait)
	}
}

// once sends the request once.
func (c *curl) once(url, key, body string) result {
	c.t.Helper()
	c.tries++
	ctx, cancel := context.WithCancelCause(c.t.Context())
	defer cancel(nil)
	c.timeUp = func() { cancel(errTimeUp) }
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	require.NoError(c.t, err)
	request.Header.Set(keyHeader, strconv.Quote(key))
	answer, err := c.client.Do(request)
	if err != nil {
		return result{err: errors.Join(context.Cause(ctx), err)}
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return result{err: errors.Join(context.Cause(ctx), err)}
	}
	return result{status: answer.StatusCode, header: answer.Header, body: string(text)}
}

const payOne = `{"from": "alice", "to": "bob", "amount": 1}`

// call is a request that moves a unit, or none, however often it is sent.
type call struct {
	name, path, body string
	status           int
	alice, bob       int64 // what it changes
	before           func(p *proxy, id string)
}

// calls are requests of all kinds.
func calls() []call {
	return []call{
		{name: "a transfer", path: "/transfers", body: payOne, status: 201, alice: -1, bob: 1},
		{name: "a refund", path: "/transfers/order-17/refunds", body: `{"amount": 1}`, status: 201, alice: 1, bob: -1},
		{name: "a refusal", path: "/transfers", body: `{"from": "bob", "to": "alice", "amount": 10001}`, status: 422},
		{
			name: "a post of a hold", path: "/transfers/%s-held/post", body: `{"amount": 1}`, status: 200, alice: -1, bob: 1,
			before: func(p *proxy, id string) {
				p.service.post("/transfers", id+"-held", `{"from": "alice", "to": "bob", "amount": 3, "holdFor": "1h"}`).is(http.StatusAccepted)
			},
		},
	}
}

// check makes a call through the faults, and checks that the last answer is the true one
// and that the money has moved once.
func (p *proxy) check(c call, id string, script ...fault) {
	p.t.Helper()
	if c.before != nil {
		c.before(p, id)
	}
	path := strings.ReplaceAll(c.path, "%s", id)
	var story []string
	for _, f := range script {
		story = append(story, f.name)
	}
	p.plan(script...)
	got := p.curl.post(p.url+path, id, c.body)
	for again := 0; (got.err != nil || transient(got.status)) && again < len(script); again++ {
		require.False(p.t, p.curl.allErrors, "%s: curl has given up: %v", story, got)
		got = p.curl.post(p.url+path, id, c.body) // whoever runs curl does it again
	}
	require.NoError(p.t, got.err, "%s: %s", c.name, story)
	if got.status != http.StatusAccepted { // committed, and the rest of it follows
		require.Equal(p.t, c.status, got.status, "%s: %s: %s", c.name, story, got.body)
	}
	for _, answer := range p.deliverLate() {
		require.Equal(p.t, got.body, answer.Body.String(), "%s: %s", c.name, story)
	}
	require.Equal(p.t, got.body, p.post(path, id, c.body).is(c.status).Body.String(), "%s: %s", c.name, story)
	p.alice, p.bob = p.alice+c.alice, p.bob+c.bob
	p.balances(p.alice, p.bob)
	require.False(p.t, p.t.Failed(), "%s: %s", c.name, story)
}

// start moves the money that refunds are of.
func (p *proxy) start() {
	p.t.Helper()
	p.service.post("/transfers", "order-17", `{"from": "alice", "to": "bob", "amount": 1000}`).is(http.StatusCreated)
	p.alice, p.bob = 9000, 1000
}

// Whatever happens to a try, curl --retry, and whoever runs it again where it gives up,
// moves the money once and learns the truth.
func TestCurlRetries(t *testing.T) {
	for name, allErrors := range map[string]bool{"retry": false, "retry-all-errors": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, 3, allErrors)
			p.start()
			for i, f := range faults() {
				for j, c := range calls() {
					p.check(c, fmt.Sprintf("call-%d-%d", i, j), f)
				}
			}
		})
	}
}

// Two faults, one after the other, are no worse than one.
func TestCurlRetriesTwice(t *testing.T) {
	t.Parallel()
	p := newProxy(t, 3, true)
	p.start()
	for i, first := range faults() {
		for j, second := range faults() {
			for k, c := range calls()[:2] {
				p.check(c, fmt.Sprintf("call-%d-%d-%d", i, j, k), first, second)
			}
		}
	}
}

// The imitation does what curl's manual says.
// A pause takes a second, and each one twice as long as the one before; Retry-After
// counts more.
// A broken connection is repeated after --retry-all-errors alone, and what is final never
// is.
func TestCurlsRules(t *testing.T) {
	t.Parallel()
	const second = time.Second
	for name, c := range map[string]struct {
		allErrors bool
		script    string // B breaks the connection, T ends the time, R sends Retry-After
		tries     int
		status    int
		pauses    []time.Duration
	}{
		"success":               {false, "201", 1, 201, nil},
		"a refusal is final":    {true, "422 201", 1, 422, nil},
		"a conflict is final":   {true, "409 201", 1, 409, nil},
		"transient":             {false, "503 504 500 201", 4, 201, []time.Duration{second, 2 * second, 4 * second}},
		"given up":              {false, "503 429 408 502 201", 4, 502, []time.Duration{second, 2 * second, 4 * second}},
		"Retry-After":           {false, "503 R 503 201", 4, 201, []time.Duration{second, 9 * second, 4 * second}},
		"the time is up":        {false, "T 201", 2, 201, []time.Duration{second}},
		"broken, and given up":  {false, "B 201", 1, 0, nil},
		"broken, and once more": {true, "B B 201", 3, 201, []time.Duration{second, 2 * second}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, script := newCurl(t, 3, c.allErrors), strings.Fields(c.script)
			p := &proxy{service: &service{t: t}}
			var mu sync.Mutex
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.ReadAll(r.Body)
				mu.Lock()
				next := script[0]
				script = script[1:]
				mu.Unlock()
				switch next {
				case "B":
					p.reset(w)
				case "T":
					client.timeUp()
					<-r.Context().Done()
				case "R":
					w.Header().Set("Retry-After", "9")
					w.WriteHeader(http.StatusServiceUnavailable)
				default:
					status, err := strconv.Atoi(next)
					assert.NoError(t, err)
					w.WriteHeader(status)
				}
			}))
			defer server.Close()
			got := client.post(server.URL, "key", "{}")
			assert.Equal(t, c.status, got.status)
			assert.Equal(t, c.tries, client.tries)
			assert.Equal(t, c.pauses, client.pauses)
		})
	}
}
