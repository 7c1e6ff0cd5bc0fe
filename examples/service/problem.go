package main

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/mongotransfer/transfer"
)

// retryAfter is how many seconds a client should wait before it repeats a request.
const retryAfter = "1"

// problemsPath begins the URI of each type of problem.
// It leads to a page that says what the problem is.
const problemsPath = "/problems/"

// problemJSON is the body of every answer to a client that is not a success: problem
// details, as RFC 9457 has them.
type problemJSON struct {
	// Type identifies the problem, and leads to a page about it.
	Type string `json:"type"`
	// Title says what the problem is. It is the same for each of its type.
	Title string `json:"title"`
	// Status is that of the answer.
	Status int `json:"status"`
	// Detail says more about this one.
	Detail string `json:"detail,omitempty"`
	// Instance is the failed transfer, or the path of the request.
	Instance string `json:"instance"`
	// Code is the last part of Type.
	Code string `json:"code"`
	// Next says what the client does.
	Next next `json:"next"`
	// Transfer is the transfer that has failed, or that is not as the request needs it.
	Transfer *transferJSON `json:"transfer,omitempty"`
}

// httpError is an error with its kind of problem.
type httpError struct {
	kind  kind
	cause error
}

// failure returns an error that is answered as a kind of problem.
func failure(k kind, cause error) error { return &httpError{k, cause} }

// Error returns the text of the cause.
func (e *httpError) Error() string { return e.cause.Error() }

// Unwrap returns the cause.
func (e *httpError) Unwrap() error { return e.cause }

// badRequest returns an error that is answered with 400.
func badRequest(cause error) error { return failure(kindInvalidRequest, cause) }

// kindOf returns the kind of problem that an error is.
// What OutcomeOf doesn't know, or knows to be in doubt, is in doubt.
// What has stored nothing and isn't named here is a server that is away, or a request
// that has taken too long.
func kindOf(err error) kind {
	var known *httpError
	if errors.As(err, &known) {
		return known.kind
	}
	outcome := transfer.OutcomeOf(err)
	if outcome == transfer.InDoubt {
		return kindInDoubt
	}
	for _, k := range kinds() {
		if k.err == nil || !errors.Is(err, k.err) {
			continue
		}
		if outcome == transfer.Failed {
			return k.refused()
		}
		return k.unstored()
	}
	return kindUnavailable
}

// succeed answers a request that asked for a transfer, and that may have failed.
// What is committed and not in place everywhere has moved all the same (202).
// A client that repeats the request gets the same answer.
func (h *handler) succeed(w http.ResponseWriter, r *http.Request, status int, rec transfer.Record, err error) {
	if transfer.OutcomeOf(err) != transfer.Moved {
		h.refuse(w, r, rec, err)
		return
	}
	if err != nil {
		status = http.StatusAccepted
	}
	w.Header().Set("Location", h.location(rec))
	h.answer(w, status, h.transferAnswer(rec))
}

// giveBack answers a request that asked for a transfer to be rolled back.
// It may be rolled back for good while not all of the money is back: an account can't be
// written (202).
func (h *handler) giveBack(w http.ResponseWriter, r *http.Request, rec transfer.Record, err error) {
	if err != nil && transfer.OutcomeOf(err) == transfer.Failed && rec.State == transfer.StateRollback {
		h.answer(w, http.StatusAccepted, h.transferAnswer(rec))
		return
	}
	h.succeed(w, r, http.StatusOK, rec, err)
}

// refuse answers for a transfer that did not succeed.
// One that is stored as failed is answered from its record, and so in the same way each
// time the request is repeated.
func (h *handler) refuse(w http.ResponseWriter, r *http.Request, rec transfer.Record, err error) {
	if rec.Failure == nil || transfer.OutcomeOf(err) != transfer.Failed {
		h.failWith(w, r, rec, err)
		return
	}
	kind, stored := kindOfFailure(rec.Failure.Code).refused(), h.transferAnswer(rec)
	h.answerProblem(w, problemJSON{
		Type: kind.uri(), Title: kind.title, Status: kind.status, Detail: stored.Failure.Message,
		Instance: h.location(rec), Code: kind.code, Next: kind.next, Transfer: &stored,
	})
}

// fail answers with an error.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	h.failWith(w, r, transfer.Record{}, err)
}

// failWith answers with an error, and the transfer that is in the way.
func (h *handler) failWith(w http.ResponseWriter, r *http.Request, rec transfer.Record, err error) {
	kind := kindOf(err)
	if kind.hidden {
		h.log.Warn("a request has failed", "path", r.URL.Path, "problem", kind.code, "error", err)
	}
	problem := problemJSON{
		Type: kind.uri(), Title: kind.title, Status: kind.status, Detail: kind.says(err.Error()),
		Instance: r.URL.EscapedPath(), Code: kind.code, Next: kind.next,
	}
	if kind.next == repeatRequest {
		problem.Detail = kind.next.explained()
	}
	if rec.ID != "" && transfer.OutcomeOf(err) == transfer.Unchanged {
		other := h.transferNow(rec)
		problem.Transfer = &other
	}
	h.answerProblem(w, problem)
}

func (h *handler) answerProblem(w http.ResponseWriter, problem problemJSON) {
	if problem.Next == repeatRequest {
		w.Header().Set("Retry-After", retryAfter)
	}
	h.answerAs(w, "application/problem+json", problem.Status, problem)
}

// problem answers with the page to which the type of a problem leads.
func (h *handler) problem(w http.ResponseWriter, r *http.Request) {
	for _, k := range kinds() {
		if k.code == r.PathValue("code") {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = fmt.Fprintf(w, "%s\n\n%s\n", k.title, k.next.explained())
			return
		}
	}
	h.fail(w, r, failure(kindNoSuchPath, errors.New("there is no such problem")))
}

// unrouted answers a request that has no route.
// The router knows which methods the path has, and names them in the header.
func (h *handler) unrouted(w http.ResponseWriter, r *http.Request, router http.Handler) {
	routed := headerOnly{ResponseWriter: w}
	router.ServeHTTP(&routed, r)
	w.Header().Del("Location") // of a path that is written otherwise, and isn't there either
	if routed.status == http.StatusMethodNotAllowed {
		h.fail(w, r, failure(kindWrongMethod, fmt.Errorf("not %s: see the header Allow", r.Method)))
		return
	}
	h.fail(w, r, failure(kindNoSuchPath, errors.New("no request has this path")))
}

// headerOnly keeps what a handler writes from the client, except for the header's fields.
type headerOnly struct {
	http.ResponseWriter
	status int
}

func (w *headerOnly) WriteHeader(status int)         { w.status = status }
func (w *headerOnly) Write(body []byte) (int, error) { return len(body), nil }
