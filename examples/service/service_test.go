package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

func TestMain(m *testing.M) { os.Exit(mongotest.Main(m)) }

// service is the service under test, without a network.
type service struct {
	t       *testing.T
	handler http.Handler
}

// newService returns a service in which alice has 100 and bob has nothing.
func newService(t *testing.T, opts ...*options.ClientOptions) *service {
	t.Helper()
	coord := coordinator(t, mongotest.Database(t, opts...))
	h := newHandler(coord, "", slog.New(slog.DiscardHandler))
	h.phase.Store(serving)
	s := &service{t, h}
	s.post("/accounts", "", `{"id": "world", "noFloor": true}`).is(http.StatusCreated)
	s.post("/accounts", "", `{"id": "alice"}`).is(http.StatusCreated)
	s.post("/accounts", "", `{"id": "bob"}`).is(http.StatusCreated)
	s.post("/transfers", "deposit-1", `{"from": "world", "to": "alice", "amount": 100}`).is(http.StatusCreated)
	return s
}

func coordinator(t *testing.T, db *mongo.Database) *transfer.Coordinator {
	t.Helper()
	coord, err := transfer.NewCoordinator(db, transfer.WithEvents(transfer.EventHandler{}))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, coord.Close(ctx))
	})
	t.Cleanup(func() { audit(t, coord) })
	require.NoError(t, coord.Setup(t.Context()))
	return coord
}

// audit finishes what is left, and checks that nothing is wrong and no money is missing:
// it came from accounts without a floor, or by opening one.
func audit(t *testing.T, coord *transfer.Coordinator) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	_, err := coord.Recover(ctx, transfer.UntilFinished())
	require.NoError(t, err)
	report, err := coord.Audit(ctx)
	require.NoError(t, err)
	assert.Empty(t, report.Findings)
}

// reply is a response of the service.
type reply struct {
	t *testing.T
	*httptest.ResponseRecorder
}

func (s *service) send(r *http.Request) reply {
	s.t.Helper()
	recorder := httptest.NewRecorder()
	s.handler.ServeHTTP(recorder, r)
	return reply{s.t, recorder}
}

func (s *service) post(path, key, body string) reply {
	s.t.Helper()
	return s.send(post(s.t.Context(), path, key, body))
}

func post(ctx context.Context, path, key, body string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(body))
	if key != "" {
		r.Header.Set(keyHeader, strconv.Quote(key))
	}
	return r
}

func (s *service) get(path string) reply {
	s.t.Helper()
	return s.send(httptest.NewRequestWithContext(s.t.Context(), http.MethodGet, path, nil))
}

// is checks the status.
func (r reply) is(status int) reply {
	r.t.Helper()
	require.Equal(r.t, status, r.Code, r.Body.String())
	return r
}

// errorCode returns the code of a failed response.
func (r reply) errorCode() string { return r.problem().Code }

// problem returns the body of a failed response, which is a whole one as RFC 9457 has it.
func (r reply) problem() problemJSON {
	r.t.Helper()
	p := decoded[problemJSON](r)
	assert.Equal(r.t, "application/problem+json", r.Header().Get("Content-Type"))
	assert.Equal(r.t, problemsPath+p.Code, p.Type)
	assert.Equal(r.t, r.Code, p.Status)
	for _, text := range []string{p.Title, p.Detail, p.Instance, p.Code, string(p.Next)} {
		assert.NotEmpty(r.t, text, r.Body.String())
	}
	return p
}

func decoded[T any](r reply) (body T) {
	r.t.Helper()
	require.NoError(r.t, json.Unmarshal(r.Body.Bytes(), &body), r.Body.String())
	return body
}

// balances checks the balances of alice and bob, and that nothing is in flight.
func (s *service) balances(alice, bob int64) {
	s.t.Helper()
	for id, want := range map[string]int64{"alice": alice, "bob": bob} {
		got := decoded[accountJSON](s.get("/accounts/" + id).is(http.StatusOK))
		assert.Equal(s.t, accountJSON{id, transfer.Units(want), transfer.Units(want), transfer.Units(0)}, got)
	}
}

const pay60 = `{"from": "alice", "to": "bob", "amount": 60}`

// A repeated key gets the same response, and the money moves once.
func TestSameKeyMovesOnce(t *testing.T) {
	s := newService(t)
	first := s.post("/transfers", "order-17", pay60).is(http.StatusCreated)
	second := s.post("/transfers", "order-17", pay60).is(http.StatusCreated)
	assert.Equal(t, "/transfers/order-17", first.Header().Get("Location"))
	stored := s.get(first.Header().Get("Location")).is(http.StatusOK)
	assert.Equal(t, first.Body.String(), second.Body.String())
	assert.Equal(t, first.Header(), second.Header())
	assert.Equal(t, decoded[transferJSON](first), decoded[transferJSON](stored))
	assert.Equal(t, stateMoved, decoded[transferJSON](first).State)
	s.balances(40, 60)
}

// If many clients use the same key at the same time, the money moves once, too.
func TestSameKeyAtOnceMovesOnce(t *testing.T) {
	s := newService(t)
	var all sync.WaitGroup
	codes := make([]int, 8)
	for i := range codes {
		all.Go(func() {
			recorder := httptest.NewRecorder()
			s.handler.ServeHTTP(recorder, post(t.Context(), "/transfers", "order-17", pay60))
			codes[i] = recorder.Code
		})
	}
	all.Wait()
	for _, code := range codes {
		assert.Equal(t, http.StatusCreated, code)
	}
	s.balances(40, 60)
}

// A key can't be reused for another request.
func TestKeyOfAnotherTransfer(t *testing.T) {
	s := newService(t)
	s.post("/transfers", "order-17", pay60).is(http.StatusCreated)
	conflict := s.post("/transfers", "order-17", `{"from": "alice", "to": "bob", "amount": 10}`).is(http.StatusUnprocessableEntity)
	assert.Equal(t, "idConflict", conflict.errorCode())
	assert.Equal(t, transfer.Units(60), conflict.problem().Transfer.Legs[1].Amount, "it names the other request")
	assert.Equal(t, "invalidRequest", s.post("/transfers/order-17/refunds", "order-17", `{"amount": 60}`).
		is(http.StatusBadRequest).errorCode())
	s.balances(40, 60)
}

// A refusal moves nothing and stays a refusal, even if the money arrives later.
func TestRefusal(t *testing.T) {
	s := newService(t)
	const payBack = `{"from": "bob", "to": "alice", "amount": 60}`
	first := s.post("/transfers", "back", payBack).is(http.StatusUnprocessableEntity)
	assert.Equal(t, "insufficientFunds", first.errorCode())
	assert.Equal(t, stateFailed, first.problem().Transfer.State)
	assert.Equal(t, "bob", first.problem().Transfer.Failure.Account)
	assert.Equal(t, "/transfers/back", first.problem().Instance)
	assert.Equal(t, newKey, first.problem().Next)
	s.balances(100, 0)

	s.post("/transfers", "order-17", pay60).is(http.StatusCreated)
	second := s.post("/transfers", "back", payBack).is(http.StatusUnprocessableEntity)
	assert.Equal(t, first.Body.String(), second.Body.String())
	assert.Equal(t, first.Header(), second.Header())
	s.balances(40, 60)

	nobody := s.post("/transfers", "nobody", `{"from": "alice", "to": "nobody", "amount": 1}`).is(http.StatusUnprocessableEntity)
	assert.Equal(t, "accountNotFound", nobody.errorCode())
	s.balances(40, 60)
}

// A transfer that waits for its time can be cancelled, again and again, and moves
// nothing.
func TestCancel(t *testing.T) {
	s := newService(t)
	const later = `{"from": "alice", "to": "bob", "amount": 60, "notBefore": "2100-01-01T00:00:00Z"}`
	waiting := s.post("/transfers", "rent", later).is(http.StatusAccepted)
	assert.Equal(t, stateScheduled, decoded[transferJSON](waiting).State)
	assert.Equal(t, time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), decoded[transferJSON](waiting).NotBefore.UTC())
	assert.NotContains(t, waiting.Body.String(), "expiresAt")
	cancelled := decoded[transferJSON](s.post("/transfers/rent/cancel", "", `{"reason": "moved out"}`).is(http.StatusOK))
	assert.Equal(t, stateFailed, cancelled.State)
	assert.Equal(t, &failureJSON{Code: "cancelled", Message: "moved out"}, cancelled.Failure)
	s.post("/transfers/rent/cancel", "", "").is(http.StatusOK)
	assert.Equal(t, "cancelled", s.post("/transfers", "rent", later).is(http.StatusUnprocessableEntity).errorCode())
	s.balances(100, 0)

	s.post("/transfers", "order-17", pay60).is(http.StatusCreated)
	late := s.post("/transfers/order-17/cancel", "", "").is(http.StatusConflict)
	assert.Equal(t, "alreadyCommitted", late.errorCode())
	s.balances(40, 60)
}

// A hold is taken in part, and the rest goes back. A voided one gives everything back,
// and can't be taken any more.
func TestHold(t *testing.T) {
	s := newService(t)
	const hold60 = `{"from": "alice", "to": "bob", "amount": 60, "holdFor": "1h"}`
	held := s.post("/transfers", "room-1", hold60).is(http.StatusAccepted)
	assert.Equal(t, stateHeld, decoded[transferJSON](held).State)
	assert.Equal(t, time.Hour, decoded[transferJSON](held).ExpiresAt.Sub(decoded[transferJSON](held).CreatedAt))
	assert.NotContains(t, held.Body.String(), "notBefore")
	for range 2 {
		posted := decoded[transferJSON](s.post("/transfers/room-1/post", "", `{"amount": 45}`).is(http.StatusOK))
		assert.Equal(t, transfer.Units(45), *posted.Posted)
		assert.Equal(t, transfer.Units(60), posted.Legs[1].Amount, "what was held")
	}
	s.balances(55, 45)
	assert.Equal(t, "alreadyCommitted", s.post("/transfers/room-1/void", "", "").is(http.StatusConflict).errorCode())

	s.post("/transfers", "room-2", `{"from": "alice", "to": "bob", "amount": 50, "holdFor": "1h"}`).is(http.StatusAccepted)
	s.post("/transfers/room-2/void", "", "").is(http.StatusOK)
	assert.Equal(t, "voided", s.post("/transfers/room-2/post", "", "").is(http.StatusUnprocessableEntity).errorCode())
	s.balances(55, 45)
	s.post("/transfers", "order-17", `{"from": "alice", "to": "bob", "amount": 5}`).is(http.StatusCreated)
	assert.Equal(t, "notHeld", s.post("/transfers/order-17/post", "", "").is(http.StatusConflict).errorCode())
}

// A process reports that it is ready once it is, and no longer once it stops.
// Before that it turns all other requests away.
func TestProbes(t *testing.T) {
	s := newService(t)
	h, ok := s.handler.(*handler)
	require.True(t, ok)
	for phase, want := range map[int32]int{
		starting: http.StatusServiceUnavailable, serving: http.StatusOK, stopping: http.StatusServiceUnavailable,
	} {
		h.phase.Store(phase)
		s.get("/readyz").is(want)
		s.get("/livez").is(http.StatusOK)
	}
	h.phase.Store(serving)
	whole := h.coord
	closed, err := transfer.NewCoordinator(mongotest.Database(t))
	require.NoError(t, err)
	require.NoError(t, closed.Close(t.Context()))
	h.coord = closed
	s.get("/readyz").is(http.StatusServiceUnavailable)
	s.get("/livez").is(http.StatusOK)
	h.coord = whole
	h.phase.Store(starting)
	assert.Equal(t, "starting", s.post("/transfers", "early", pay60).is(http.StatusServiceUnavailable).errorCode())
	h.phase.Store(serving)
	s.get("/transfers/early").is(http.StatusNotFound)
}

// A malformed request is refused with a reason, and stores nothing.
func TestBadRequests(t *testing.T) {
	s := newService(t)
	for name, c := range map[string]struct {
		path, key, body string
		status          int
		text            string
	}{
		"no key":         {"/transfers", "", pay60, http.StatusBadRequest, "choose a key"},
		"long key":       {"/transfers", strings.Repeat("k", 256), pay60, http.StatusBadRequest, "256 bytes"},
		"no body":        {"/transfers", "k", "", http.StatusBadRequest, "can't be read"},
		"no JSON":        {"/transfers", "k", "from=alice", http.StatusBadRequest, "can't be read"},
		"two values":     {"/transfers", "k", pay60 + pay60, http.StatusBadRequest, "more than one JSON value"},
		"unknown field":  {"/transfers", "k", `{"from": "alice", "to": "bob", "sum": 60}`, http.StatusBadRequest, "sum"},
		"a float":        {"/transfers", "k", `{"from": "alice", "to": "bob", "amount": 0.5}`, http.StatusBadRequest, "12.50"},
		"no amount":      {"/transfers", "k", `{"from": "alice", "to": "bob"}`, http.StatusBadRequest, "must be positive"},
		"to oneself":     {"/transfers", "k", `{"from": "alice", "to": "alice", "amount": 1}`, http.StatusBadRequest, "nothing moves"},
		"large body":     {"/transfers", "k", `{"from": "` + strings.Repeat("a", bodyLimit) + `"}`, http.StatusRequestEntityTooLarge, "16384"},
		"account again":  {"/accounts", "", `{"id": "alice", "balance": 5}`, http.StatusConflict, "exists"},
		"empty account":  {"/accounts", "", `{"balance": 5}`, http.StatusBadRequest, "empty"},
		"cancel nothing": {"/transfers/k/cancel", "", "", http.StatusNotFound, "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := (&service{t, s.handler}).post(c.path, c.key, c.body).is(c.status)
			assert.Contains(t, answer.problem().Detail, c.text)
		})
	}
	assert.Equal(t, "transferNotFound", s.get("/transfers/k").is(http.StatusNotFound).errorCode())
	assert.Equal(t, "accountNotFound", s.get("/accounts/nobody").is(http.StatusNotFound).errorCode())
	s.balances(100, 0)
}

// A client that goes away in the middle learns how to find out the outcome, and that
// moves the money once.
func TestInDoubt(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	answered := make(chan struct{})
	var armed atomic.Bool
	// The client leaves when the server has stored the transfer.
	// It gets the answer before the transfer goes on.
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if name, _ := e.Command.Lookup("update").StringValueOK(); name == "accounts" && armed.Load() {
			leave()
			<-answered
		}
	}}
	s := newService(t, options.Client().SetMonitor(monitor))
	armed.Store(true)
	recorder := httptest.NewRecorder()
	s.handler.ServeHTTP(recorder, post(ctx, "/transfers", "order-17", pay60))
	close(answered)
	doubtful := reply{t, recorder}.is(http.StatusServiceUnavailable)
	assert.Equal(t, "inDoubt", doubtful.errorCode())
	assert.NotEmpty(t, doubtful.Header().Get("Retry-After"))
	assert.Equal(t, repeatRequest, doubtful.problem().Next)
	assert.Contains(t, doubtful.problem().Detail, "same Idempotency-Key")

	s.post("/transfers", "order-17", pay60).is(http.StatusCreated)
	s.balances(40, 60)
}

// The service runs a transfer that was submitted before its start, answers over the
// network, and ends in good order on request.
func TestServe(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	db := mongotest.Database(t)
	coord := coordinator(t, db)
	for _, account := range []transfer.Account{{ID: "alice", Balance: transfer.Units(100)}, {ID: "bob"}} {
		_, err := coord.OpenAccount(ctx, account)
		require.NoError(t, err)
	}
	_, err := coord.Submit(ctx, transfer.Request{ID: "order-17", From: "alice", To: "bob", Amount: transfer.Units(60)})
	require.NoError(t, err)

	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "localhost:0")
	require.NoError(t, err)
	ended := make(chan error, 1)
	admin, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "localhost:0")
	require.NoError(t, err)
	served := process{db: db, stall: defaultStall, log: slog.New(slog.DiscardHandler)}
	go func() { ended <- served.serve(ctx, listener, admin) }()
	_, err = coord.Wait(ctx, "order-17")
	require.NoError(t, err)

	address := "http://" + listener.Addr().String() + "/accounts/bob"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	require.Equal(t, http.StatusOK, answer.StatusCode)
	var bob accountJSON
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&bob))
	assert.Equal(t, transfer.Units(60), bob.Available)

	stop()
	require.NoError(t, <-ended)
}

// Without a server, the service says what is missing.
func TestNoURI(t *testing.T) {
	assert.ErrorContains(t, run(t.Context(), config{}, slog.New(slog.DiscardHandler)), "MONGODB_URI is not set")
}
