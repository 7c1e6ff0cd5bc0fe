package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// proxy stands between curl and the service, and does to each try what its script says.
// It passes what comes after the script.
type proxy struct {
	*service
	curl  *curl
	url   string
	doubt *doubt

	mu     sync.Mutex
	script []fault
	late   []message // what it still has to deliver

	alice, bob int64 // what they should have
}

// fault is what happens to one try.
type fault struct {
	name string
	// lost says that the service has handled the try, and that its answer is lost.
	lost bool
	do   func(p *proxy, w http.ResponseWriter, r *http.Request, m message)
}

// message is a request as it was sent.
type message struct {
	path   string
	header http.Header
	body   []byte
}

// faults are all that can happen to a try.
func faults() []fault {
	return []fault{
		{"the connection breaks before it arrives", false, func(p *proxy, w http.ResponseWriter, _ *http.Request, _ message) {
			p.reset(w)
		}},
		{"the connection breaks before the answer", true, func(p *proxy, w http.ResponseWriter, _ *http.Request, m message) {
			p.deliver(p.t.Context(), m)
			p.reset(w)
		}},
		{"the answer is cut off", true, func(p *proxy, w http.ResponseWriter, _ *http.Request, m message) {
			p.cut(w, p.deliver(p.t.Context(), m))
		}},
		{"a gateway finds no service", false, func(_ *proxy, w http.ResponseWriter, _ *http.Request, _ message) {
			w.WriteHeader(http.StatusBadGateway)
		}},
		{"a gateway is overloaded", false, func(_ *proxy, w http.ResponseWriter, _ *http.Request, _ message) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		}},
		{"a gateway gives up", true, func(p *proxy, w http.ResponseWriter, _ *http.Request, m message) {
			p.deliver(p.t.Context(), m)
			w.WriteHeader(http.StatusGatewayTimeout)
		}},
		{"the time is up before it arrives", false, func(p *proxy, _ http.ResponseWriter, r *http.Request, m message) {
			p.curl.timeUp()
			<-r.Context().Done()
			p.deliver(r.Context(), m)
		}},
		{"the time is up before the answer", true, func(p *proxy, _ http.ResponseWriter, r *http.Request, m message) {
			p.deliver(p.t.Context(), m)
			p.curl.timeUp()
			<-r.Context().Done()
		}},
		{"it arrives after all others", false, func(p *proxy, _ http.ResponseWriter, r *http.Request, m message) {
			p.mu.Lock()
			p.late = append(p.late, m)
			p.mu.Unlock()
			p.curl.timeUp()
			<-r.Context().Done()
		}},
		{"it arrives twice at once", false, func(p *proxy, w http.ResponseWriter, _ *http.Request, m message) {
			var both sync.WaitGroup
			both.Go(func() { p.deliver(p.t.Context(), m) })
			pass(w, p.deliver(p.t.Context(), m))
			both.Wait()
		}},
		{"the service has just started", false, func(p *proxy, w http.ResponseWriter, _ *http.Request, m message) {
			h, _ := p.handler.(*handler)
			h.phase.Store(starting)
			answer := p.deliver(p.t.Context(), m)
			h.phase.Store(serving)
			pass(w, answer)
		}},
		{"the service stops waiting for the server", false, func(p *proxy, w http.ResponseWriter, _ *http.Request, m message) {
			ctx, answered := p.doubt.arm(p.t.Context())
			answer := p.deliver(ctx, m)
			answered()
			pass(w, answer)
		}},
	}
}

// newProxy returns a proxy before a service whose alice has money for many transfers.
func newProxy(t *testing.T, retry int, allErrors bool) *proxy {
	t.Helper()
	p := &proxy{curl: newCurl(t, retry, allErrors), doubt: &doubt{}}
	p.service = newService(t, options.Client().SetMonitor(p.doubt.monitor()))
	p.service.post("/transfers", "deposit-2", `{"from": "world", "to": "alice", "amount": 9900}`).is(http.StatusCreated)
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

// ServeHTTP takes a try of curl.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body) // the server sees that the client leaves only after that
	if err != nil {
		p.t.Error(err)
		return
	}
	m := message{r.URL.EscapedPath(), r.Header, body}
	if next := p.next(); next != nil {
		next.do(p, w, r, m)
		return
	}
	pass(w, p.deliver(p.t.Context(), m))
}

// next returns what happens to the next try, nil for nothing.
func (p *proxy) next() *fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.script) == 0 {
		return nil
	}
	f := p.script[0]
	p.script = p.script[1:]
	return &f
}

// plan says what happens to the next tries.
func (p *proxy) plan(script ...fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.script = script
}

// deliver brings a message to the service, and returns the answer.
func (p *proxy) deliver(ctx context.Context, m message) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, m.path, bytes.NewReader(m.body))
	r.Header = m.header.Clone()
	answer := httptest.NewRecorder()
	p.handler.ServeHTTP(answer, r)
	return answer
}

// deliverLate delivers what was held back.
func (p *proxy) deliverLate() (answers []*httptest.ResponseRecorder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.late {
		answers = append(answers, p.deliver(p.t.Context(), m))
	}
	p.late = nil
	return answers
}

// pass gives an answer of the service to the client.
func pass(w http.ResponseWriter, answer *httptest.ResponseRecorder) {
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// reset breaks the connection.
func (p *proxy) reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		p.t.Error(err)
		return
	}
	if tcp, ok := conn.(*net.TCPConn); assert.True(p.t, ok) {
		assert.NoError(p.t, tcp.SetLinger(0))
	}
	assert.NoError(p.t, conn.Close())
}

// cut gives the client the first half of an answer.
func (p *proxy) cut(w http.ResponseWriter, answer *httptest.ResponseRecorder) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		p.t.Error(err)
		return
	}
	body := answer.Body.Bytes()
	_, err = fmt.Fprintf(conn, "HTTP/1.1 %d Cut\r\nContent-Length: %d\r\n\r\n%s", answer.Code, len(body), body[:len(body)/2])
	assert.NoError(p.t, err)
	assert.NoError(p.t, conn.Close())
}

// doubt lets the service's request end in the middle of a transfer: when an account is
// about to be written.
type doubt struct{ armed atomic.Pointer[func()] }

// arm returns a context that ends in the middle of the next transfer.
// The transfer goes on after answered is called.
func (d *doubt) arm(ctx context.Context) (ending context.Context, answered func()) {
	ending, leave := context.WithCancel(ctx)
	goOn := make(chan struct{})
	stop := func() { leave(); <-goOn }
	d.armed.Store(&stop)
	return ending, func() { d.armed.Store(nil); leave(); close(goOn) }
}

// monitor watches the commands of a client.
func (d *doubt) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if name, _ := e.Command.Lookup("update").StringValueOK(); name != "accounts" {
			return
		}
		if stop := d.armed.Swap(nil); stop != nil {
			(*stop)()
		}
	}}
}

// The proxy lets a try through that the client knows nothing of.
// Whoever takes another key for the next try pays twice: that is what the key is for.
func TestNewKeysPayTwice(t *testing.T) {
	p := newProxy(t, 0, false)
	var paid int64
	for i, f := range faults() {
		p.plan(f)
		first := p.curl.post(p.url+"/transfers", fmt.Sprint("first-", i), payOne)
		if f.lost {
			require.True(t, first.err != nil || transient(first.status), f.name)
			paid++
		}
		if first.status == http.StatusCreated {
			paid++
			continue
		}
		second := p.curl.post(p.url+"/transfers", fmt.Sprint("second-", i), payOne)
		require.Equal(t, http.StatusCreated, second.status, f.name)
		paid++
	}
	for _, answer := range p.deliverLate() {
		require.Equal(t, http.StatusCreated, answer.Code)
		paid++
	}
	// What the service has stopped waiting for goes on, and moves the money as well.
	doubtful := p.service.post("/transfers", fmt.Sprint("first-", len(faults())-1), payOne).is(http.StatusCreated)
	require.Equal(t, stateMoved, decoded[transferJSON](doubtful).State)
	paid++
	assert.Greater(t, paid, int64(len(faults())))
	p.balances(10_000-paid, paid)
}
