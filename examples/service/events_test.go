package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

// shop is a system that gets the events of the service. It fails the first time that it
// gets one of a hold.
type shop struct {
	mu     sync.Mutex
	events map[string]eventJSON
	tries  map[string]int
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var e eventJSON
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil || r.Header.Get(keyHeader) == "" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries[e.ID]++
	if e.Kind == transfer.EventHeld && s.tries[e.ID] == 1 {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	s.events[e.ID] = e
	w.WriteHeader(http.StatusNoContent)
}

// running is a process of the service on a network, with its two addresses.
type running struct {
	t             *testing.T
	public, admin string
}

// newRunning starts a process, which ends with the test in good order.
func newRunning(t *testing.T, p process) *running {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var addresses []net.Listener
	for range 2 {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "localhost:0")
		require.NoError(t, err)
		addresses = append(addresses, listener)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.serve(ctx, addresses[0], addresses[1]) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
	})
	r := &running{t, "http://" + addresses[0].Addr().String(), "http://" + addresses[1].Addr().String()}
	require.Eventually(t, func() bool { return r.ask(http.MethodGet, r.public+"/readyz", "", "").status == http.StatusOK },
		30*time.Second, 10*time.Millisecond)
	return r
}

// ask sends a request of the client named acme.
func (r *running) ask(method, address, key, body string) result {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), method, address, strings.NewReader(body))
	require.NoError(r.t, err)
	request.Header.Set("X-Client", "acme & sons")
	if key != "" {
		request.Header.Set(keyHeader, strconv.Quote(key))
	}
	answer, err := http.DefaultClient.Do(request)
	require.NoError(r.t, err)
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	require.NoError(r.t, err)
	return result{status: answer.StatusCode, header: answer.Header, body: string(text)}
}

// The webhook gets each event with the key and the name of the client: also one that it
// has refused before. Those who operate the service see what it does, and what keeps a
// transfer.
func TestEvents(t *testing.T) {
	hook := &shop{events: map[string]eventJSON{}, tries: map[string]int{}}
	receiver := httptest.NewServer(hook)
	defer receiver.Close()
	to, err := newWebhook(receiver.URL)
	require.NoError(t, err)
	db := mongotest.Database(t)
	r := newRunning(t, process{
		db: db, stall: defaultStall, clientHeader: "X-Client", webhook: to, log: slog.New(slog.DiscardHandler),
	})
	post := func(path, key, body string, status int) {
		t.Helper()
		got := r.ask(http.MethodPost, r.public+path, key, body)
		require.Equal(t, status, got.status, got.body)
	}
	post("/accounts", "", `{"id": "world", "noFloor": true}`, http.StatusCreated)
	post("/accounts", "", `{"id": "alice"}`, http.StatusCreated)
	post("/transfers", "pay", `{"from": "world", "to": "alice", "amount": 60}`, http.StatusCreated)
	post("/transfers", "too much", `{"from": "alice", "to": "world", "amount": 61}`, http.StatusUnprocessableEntity)
	post("/transfers", "room", `{"from": "alice", "to": "world", "amount": 1, "holdFor": "1h"}`, http.StatusAccepted)
	want := map[string]transferJSON{
		"pay:succeeded":   {ID: "pay", State: stateMoved},
		"too much:failed": {ID: "too much", State: stateFailed},
		"room:held":       {ID: "room", State: stateHeld},
	}
	require.Eventually(t, func() bool {
		hook.mu.Lock()
		defer hook.mu.Unlock()
		return len(hook.events) == len(want)
	}, 30*time.Second, 10*time.Millisecond)
	for id, as := range want {
		e, got := hook.events["acme+%26+sons:"+id]
		require.True(t, got, "%s of %v", id, hook.events)
		assert.Equal(t, "acme & sons", e.Client)
		assert.Equal(t, as.ID, e.Transfer.ID)
		assert.Equal(t, as.State, e.Transfer.State)
		assert.WithinDuration(t, time.Now(), e.At, time.Minute)
	}
	assert.Equal(t, 2, hook.events["acme+%26+sons:room:held"].Attempt)

	coord := coordinator(t, db)
	require.Eventually(t, func() bool {
		n, err := coord.Count(t.Context(), transfer.Query{Undelivered: true})
		return err == nil && n == 0
	}, 3*time.Minute, 10*time.Millisecond)
	var seen struct {
		Calls, Events             map[string]int
		Goroutines, LiveHeapBytes int
	}
	vars := r.ask(http.MethodGet, r.admin+"/debug/vars", "", "")
	require.NoError(t, json.Unmarshal([]byte(vars.body), &seen), vars.body)
	assert.Equal(t, map[string]int{"transfer Moved": 1, "transfer Failed": 1, "hold Moved": 1}, seen.Calls)
	assert.Equal(t, map[string]int{"succeeded delivered": 1, "failed delivered": 1, "held failed": 1, "held delivered": 1}, seen.Events)
	assert.Positive(t, seen.Goroutines)
	assert.Positive(t, seen.LiveHeapBytes)
	explained := r.ask(http.MethodGet, r.admin+"/explain/acme+%2526+sons:room", "", "")
	assert.Equal(t, http.StatusOK, explained.status)
	assert.Contains(t, explained.body, "held")
	assert.Equal(t, http.StatusNotFound, r.ask(http.MethodGet, r.admin+"/explain/none", "", "").status)
	assert.Equal(t, http.StatusNotFound, r.ask(http.MethodGet, r.public+"/debug/vars", "", "").status, "clients don't see it")
}

// An address to which nothing can be sent is refused at the start.
func TestWebhookAddress(t *testing.T) {
	for _, address := range []string{"shop.example.org/events", "ftp://shop.example.org", "https://", "://"} {
		c := config{uri: "mongodb://localhost", webhook: address}
		assert.ErrorContains(t, run(t.Context(), c, slog.New(slog.DiscardHandler)), "WEBHOOK_URL", address)
	}
}
