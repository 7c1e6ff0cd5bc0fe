package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/mongotransfer/transfer"
)

const (
	// bodyLimit is how many bytes the body of a request may have.
	bodyLimit = 16 << 10
	// requestLimit is how long a request may take.
	// A transfer that takes longer continues in the background.
	requestLimit = 10 * time.Second
	// probeLimit is how long the servers may take to answer a probe.
	probeLimit = 2 * time.Second
	// defaultReason is stored with a transfer that is cancelled without a reason.
	defaultReason = "cancelled by request"
)

// The phases of a process.
const (
	starting int32 = iota
	serving
	stopping
)

// handler answers the requests.
type handler struct {
	coord *transfer.Coordinator
	log   *slog.Logger
	// clientHeader is the header field that names the client, "" if there is one client.
	clientHeader string
	// webhook gets the events. Where it is nil, the log does.
	webhook *webhook
	phase   atomic.Int32
	mux     *http.ServeMux
}

// newHandler returns a handler with all routes.
func newHandler(coord *transfer.Coordinator, clientHeader string, log *slog.Logger) *handler {
	mux := http.NewServeMux()
	h := &handler{coord: coord, clientHeader: clientHeader, log: log, mux: mux}
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("GET /readyz", h.ready)
	mux.HandleFunc("POST /accounts", h.openAccount)
	mux.HandleFunc("GET /accounts/{id}", h.getAccount)
	mux.HandleFunc("POST /transfers", h.transfer)
	mux.HandleFunc("GET /transfers/{id}", h.getTransfer)
	mux.HandleFunc("POST /transfers/{id}/cancel", h.cancel)
	mux.HandleFunc("POST /transfers/{id}/post", h.post)
	mux.HandleFunc("POST /transfers/{id}/void", h.void)
	mux.HandleFunc("POST /transfers/{id}/refunds", h.refund)
	mux.HandleFunc("GET "+problemsPath+"{code}", h.problem)
	return h
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.phase.Load() == starting && r.URL.Path != "/livez" && r.URL.Path != "/readyz" {
		h.fail(w, r, failure(kindStarting, errors.New("the service is starting")))
		return
	}
	if router, route := h.mux.Handler(r); route == "" {
		h.unrouted(w, r, router)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestLimit)
	defer cancel()
	r.Body = http.MaxBytesReader(w, r.Body, bodyLimit)
	h.mux.ServeHTTP(w, r.WithContext(ctx))
}

// ready reports whether this process should get requests: it has started, the servers
// that it needs answer, and its worker works.
// Where not, it says why, to those who operate it.
// The probe asks several times before it takes the process from the others: while a
// primary is replaced, all of them answer that it is away.
func (h *handler) ready(w http.ResponseWriter, r *http.Request) {
	if h.phase.Load() != serving {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), probeLimit)
	defer cancel()
	if err := h.coord.Healthy(ctx); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// openAccount opens an account.
func (h *handler) openAccount(w http.ResponseWriter, r *http.Request) {
	var body struct {
		ID      string          `json:"id"`
		Balance transfer.Amount `json:"balance"`
		NoFloor bool            `json:"noFloor"`
	}
	if err := decode(r, &body); err != nil {
		h.fail(w, r, err)
		return
	}
	opened, err := h.coord.OpenAccount(r.Context(), transfer.Account{ID: body.ID, Balance: body.Balance, NoFloor: body.NoFloor})
	if err != nil {
		h.fail(w, r, err)
		return
	}
	w.Header().Set("Location", "/accounts/"+url.PathEscape(opened.ID))
	h.answer(w, http.StatusCreated, accountAnswer(opened))
}

// getAccount reads an account.
func (h *handler) getAccount(w http.ResponseWriter, r *http.Request) {
	account, err := h.coord.GetAccount(r.Context(), r.PathValue("id"))
	if err != nil {
		h.fail(w, r, err)
		return
	}
	h.answer(w, http.StatusOK, accountAnswer(account))
}

// transfer moves the money.
// With a holdFor it holds the money, and with a notBefore it leaves the transfer to the
// worker.
// A repeated request gets the same answer: see transferID.
// HoldFor and notBefore say when, not what: they don't make it another request.
func (h *handler) transfer(w http.ResponseWriter, r *http.Request) {
	id, err := h.transferID(r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	var body struct {
		From      string          `json:"from"`
		To        string          `json:"to"`
		Amount    transfer.Amount `json:"amount"`
		NotBefore time.Time       `json:"notBefore"`
		HoldFor   string          `json:"holdFor"`
	}
	if err := decode(r, &body); err != nil {
		h.fail(w, r, err)
		return
	}
	request := transfer.Request{ID: id, From: body.From, To: body.To, Amount: body.Amount, NotBefore: body.NotBefore}
	ask, err := h.verb(body.HoldFor, body.NotBefore)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	rec, err := ask(r.Context(), request)
	status := http.StatusCreated
	if !rec.State.Decided() {
		status = http.StatusAccepted
	}
	h.succeed(w, r, status, rec, err)
}

// refund pays money of a transfer back: an amount, or all that is left.
// It is a transfer with a key of its own.
func (h *handler) refund(w http.ResponseWriter, r *http.Request) {
	id, err := h.transferID(r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	original, err := h.pathID(r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	var body struct {
		Amount transfer.Amount `json:"amount"`
		All    bool            `json:"all"`
	}
	if err := decode(r, &body); err != nil {
		h.fail(w, r, err)
		return
	}
	rec, err := h.coord.Reverse(r.Context(), transfer.Reversal{ID: id, Of: original, All: body.All, Amount: body.Amount})
	h.succeed(w, r, http.StatusCreated, rec, err)
}

// verb returns the method of the coordinator that a request asks for.
func (h *handler) verb(
	holdFor string, notBefore time.Time,
) (func(context.Context, transfer.Request) (transfer.Record, error), error) {
	switch {
	case holdFor != "":
		expiresIn, err := time.ParseDuration(holdFor)
		if err != nil {
			return nil, badRequest(fmt.Errorf("holdFor: %w", err))
		}
		return func(ctx context.Context, request transfer.Request) (transfer.Record, error) {
			return h.coord.Hold(ctx, request, expiresIn)
		}, nil
	case !notBefore.IsZero():
		return h.coord.Submit, nil
	}
	return h.coord.Transfer, nil
}

// getTransfer reads a transfer.
func (h *handler) getTransfer(w http.ResponseWriter, r *http.Request) {
	id, err := h.pathID(r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	rec, err := h.coord.Get(r.Context(), id)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	h.answer(w, http.StatusOK, h.transferNow(rec))
}

// cancel rolls back a transfer that is not committed yet.
// The body, which holds a reason, may be empty.
func (h *handler) cancel(w http.ResponseWriter, r *http.Request) {
	id, err := h.pathID(r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	var body struct {
		Reason string `json:"reason"`
	}
	if err := decode(r, &body); err != nil && !errors.Is(err, io.EOF) {
		h.fail(w, r, err)
		return
	}
	if body.Reason == "" {
		body.Reason = defaultReason
	}
	rec, err := h.coord.Cancel(r.Context(), id, body.Reason)
	h.giveBack(w, r, rec, err)
}

// post posts a hold: all of it, or the amount in the body.
func (h *handler) post(w http.ResponseWriter, r *http.Request) {
	id, err := h.pathID(r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	var body struct {
		Amount *transfer.Amount `json:"amount"`
	}
	if err := decode(r, &body); err != nil && !errors.Is(err, io.EOF) {
		h.fail(w, r, err)
		return
	}
	var part []transfer.PostOption
	if body.Amount != nil {
		part = append(part, transfer.PostAmount(*body.Amount))
	}
	rec, err := h.coord.Post(r.Context(), id, part...)
	h.succeed(w, r, http.StatusOK, rec, err)
}

// void gives the held money back.
func (h *handler) void(w http.ResponseWriter, r *http.Request) {
	id, err := h.pathID(r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	rec, err := h.coord.Void(r.Context(), id)
	h.giveBack(w, r, rec, err)
}

// decode reads a request's body, which is one JSON value with known fields.
// Its error is an httpError, and wraps io.EOF if the body is empty.
func decode(r *http.Request, into any) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if err == nil {
		if _, err = decoder.Token(); errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = errors.New("there is more than one JSON value")
		}
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return failure(kindTooLarge, fmt.Errorf("the body has more than %d bytes", tooLarge.Limit))
	}
	return badRequest(fmt.Errorf("the body can't be read: %w", err))
}
