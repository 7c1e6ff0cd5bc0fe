package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/transferhttp"
)

// Every error of the library has an answer under its own name, a new one included.
func TestEveryErrorHasAnAnswer(t *testing.T) {
	t.Parallel()
	answers := answeredErrors(t)
	for _, name := range libraryErrors(t) {
		assert.Equal(t, codeOf(name), answers[name], "which answer is for %s?", name)
		delete(answers, name)
	}
	assert.Empty(t, answers)
	once := map[string]bool{}
	for _, k := range kinds() {
		assert.False(t, once[k.code], k.code)
		once[k.code] = true
	}
}

// libraryErrors returns the names of the exported errors that the library declares.
func libraryErrors(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("../../*.go")
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		ast.Inspect(parsed(t, file), func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			for i := 0; ok && i < len(spec.Names); i++ {
				if strings.HasPrefix(spec.Names[i].Name, "Err") {
					names = append(names, spec.Names[i].Name)
				}
			}
			return true
		})
	}
	require.Greater(t, len(names), 25)
	return names
}

// answeredErrors returns the codes of the kinds by the names of their errors, as they
// stand in the source.
func answeredErrors(t *testing.T) map[string]string {
	t.Helper()
	codes := map[string]string{}
	ast.Inspect(parsed(t, "kinds.go"), func(n ast.Node) bool {
		row, ok := n.(*ast.CompositeLit)
		if !ok || len(row.Elts) < 2 {
			return true
		}
		code, isText := row.Elts[0].(*ast.BasicLit)
		name, isError := row.Elts[1].(*ast.SelectorExpr)
		if isText && isError {
			text, err := strconv.Unquote(code.Value)
			require.NoError(t, err)
			assert.NotContains(t, codes, name.Sel.Name, "it has two answers")
			codes[name.Sel.Name] = text
		}
		return true
	})
	return codes
}

func parsed(t *testing.T, file string) *ast.File {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	return tree
}

// codeOf returns an error's name without Err, in lower camel case.
func codeOf(name string) string {
	name = strings.TrimPrefix(name, "Err")
	capitals := strings.IndexFunc(name, unicode.IsLower)
	capitals = max(1, capitals-1)
	return strings.ToLower(name[:capitals]) + name[capitals:]
}

// written returns what a handler without a server writes.
func written(t *testing.T, write func(h *handler, w http.ResponseWriter, r *http.Request)) reply {
	t.Helper()
	recorder := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/transfers", nil)
	write(newHandler(nil, "", slog.New(slog.DiscardHandler)), recorder, request)
	return reply{t, recorder}
}

// answeredWith returns the answer to a request for a transfer.
func answeredWith(t *testing.T, rec transfer.Record, err error) reply {
	t.Helper()
	return written(t, func(h *handler, w http.ResponseWriter, r *http.Request) {
		h.succeed(w, r, http.StatusCreated, rec, err)
	})
}

// The answer says what the error says: where the money is, and what to do.
// A client that repeats by itself does so exactly where that can help.
// What may name hosts, users or validators stays in the log.
func TestAnswersTellErrorsApart(t *testing.T) {
	t.Parallel()
	const secret = "db-7.internal:27017"
	stored := transfer.Record{ID: "order-17", State: transfer.StateCommitted}
	for _, k := range kinds() {
		assert.Equal(t, k.next == repeatRequest, transient(k.status), "curl repeats %s", k.code)
		if k.err == nil {
			continue
		}
		told := answeredWith(t, stored, fmt.Errorf("%s: %w", secret, k.err))
		if transfer.OutcomeOf(k.err) == transfer.Moved {
			assert.Equal(t, k.status, told.Code)
			assert.Equal(t, stateMoved, decoded[transferJSON](told).State)
			assert.Equal(t, "/transfers/order-17", told.Header().Get("Location"))
			continue
		}
		p := told.is(k.status).problem()
		assert.Equal(t, k.code, p.Code)
		assert.Equal(t, k.next == repeatRequest, told.Header().Get("Retry-After") != "", k.code)
		assert.Equal(t, k.hidden, !strings.Contains(told.Body.String(), secret), k.code)

		doubtful := answeredWith(t, stored, fmt.Errorf("%w: %s: %w", k.err, secret, transfer.ErrInDoubt))
		assert.Equal(t, "inDoubt", doubtful.is(http.StatusServiceUnavailable).errorCode(), k.code)
		assert.NotContains(t, doubtful.Body.String(), secret)
		assert.NotEmpty(t, doubtful.Header().Get("Retry-After"))

		refused := answeredWith(t, transfer.Record{}, &transfer.RefusedError{Err: k.err})
		if k.code != "inDoubt" {
			assert.Equal(t, k.code, refused.is(http.StatusUnprocessableEntity).errorCode())
		}
	}
	for code, err := range map[string]error{
		"unavailable": context.DeadlineExceeded,
		"inDoubt":     errors.New(secret),
	} {
		told := answeredWith(t, transfer.Record{}, err).is(http.StatusServiceUnavailable)
		assert.Equal(t, code, told.errorCode())
		assert.NotContains(t, told.Body.String(), secret)
	}
}

// Every failure that is stored has an answer of its own: final, about the transfer, and
// the same as long as the record stays.
func TestAnswersToStoredFailures(t *testing.T) {
	t.Parallel()
	codes := []string{document.RepairedCode}
	for reason := protocol.NotFound; reason <= protocol.Expired; reason++ {
		codes = append(codes, reason.String())
	}
	for _, code := range codes {
		rec := transfer.Record{
			ID: "order-17", State: transfer.StateRollback, Failure: &transfer.Failure{Code: code, Account: "alice", Message: "by db-7"},
		}
		first := answeredWith(t, rec, transfer.ErrCancelled).is(http.StatusUnprocessableEntity)
		assert.Equal(t, code, first.errorCode())
		assert.Equal(t, "/transfers/order-17", first.problem().Instance)
		assert.Equal(t, stateFailed, first.problem().Transfer.State)
		assert.Equal(t, kindOfFailure(code).hidden, !strings.Contains(first.Body.String(), "db-7"), code)
		assert.NotContains(t, []next{repeatRequest, lookAtIt}, first.problem().Next, code)
		rec.State = transfer.StateFail
		again := answeredWith(t, rec, &transfer.RefusedError{Err: transfer.ErrAccountClosed})
		assert.Equal(t, first.Body.String(), again.Body.String(), code)
		for _, other := range []error{transfer.ErrIDConflict, transfer.ErrInDoubt} { // not about what is stored
			assert.Equal(t, kindOf(other).code, answeredWith(t, rec, other).is(kindOf(other).status).errorCode())
		}
	}
	rec := transfer.Record{ID: "order-17", State: transfer.StateFail, Failure: &transfer.Failure{Code: "unheardOf", Message: "why"}}
	assert.Equal(t, "cancelled", answeredWith(t, rec, transfer.ErrCancelled).is(http.StatusUnprocessableEntity).errorCode())
}

// A refund that came too late was refused by a transfer, which is no account.
func TestLateRefundNamesNoAccount(t *testing.T) {
	t.Parallel()
	for account, want := range map[string]string{"order-17": "", "alice": "alice"} {
		rec := transfer.Record{
			ID: "back", State: transfer.StateFail, Reverses: "order-17",
			Failure: &transfer.Failure{Code: "reversalExceeds", Account: account, Message: "why"},
		}
		told := answeredWith(t, rec, &transfer.RefusedError{Err: transfer.ErrReversalExceeds}).is(http.StatusUnprocessableEntity)
		assert.Equal(t, want, told.problem().Transfer.Failure.Account)
	}
}

// A transfer that is rolled back for good, though not all of the money is back, was
// cancelled as it was asked for.
func TestRolledBackAndStuck(t *testing.T) {
	t.Parallel()
	rec := transfer.Record{
		ID: "order-17", State: transfer.StateRollback, Failure: &transfer.Failure{Code: "cancelled", Message: "moved out"},
		Stuck: &transfer.Failure{Code: "unwritable"},
	}
	for _, err := range []error{transfer.ErrCancelled, transfer.ErrExpired, &transfer.RefusedError{Err: transfer.ErrAccountClosed}} {
		told := written(t, func(h *handler, w http.ResponseWriter, r *http.Request) { h.giveBack(w, r, rec, err) })
		assert.Equal(t, stateFailed, decoded[transferJSON](told.is(http.StatusAccepted)).State)
	}
}

// The type of each problem leads to a page.
func TestProblemPages(t *testing.T) {
	t.Parallel()
	h := newHandler(nil, "", slog.New(slog.DiscardHandler))
	h.phase.Store(serving)
	s := &service{t, h}
	for _, k := range kinds() {
		page := s.get(k.uri()).is(http.StatusOK)
		assert.Contains(t, page.Body.String(), k.title)
		assert.NotEqual(t, string(k.next), k.next.explained())
	}
	s.get(problemsPath + "none").is(http.StatusNotFound)
}

// A request that has no route is answered by a problem, too, and with the methods that
// the path has.
func TestNoRoute(t *testing.T) {
	t.Parallel()
	for request, want := range map[[2]string]struct {
		kind  kind
		allow string
	}{
		{http.MethodGet, "/nowhere"}:             {kindNoSuchPath, ""},
		{http.MethodGet, "/no//where"}:           {kindNoSuchPath, ""},
		{http.MethodGet, problemsPath + "none"}:  {kindNoSuchPath, ""},
		{http.MethodDelete, "/accounts/alice"}:   {kindWrongMethod, "GET, HEAD"},
		{http.MethodGet, "/transfers/a/refunds"}: {kindWrongMethod, "POST"},
	} {
		h := newHandler(nil, "", slog.New(slog.DiscardHandler))
		h.phase.Store(serving)
		recorder := httptest.NewRecorder()
		h.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), request[0], request[1], nil))
		answer := reply{t, recorder}.is(want.kind.status)
		assert.Equal(t, want.kind.code, answer.errorCode(), request)
		assert.Equal(t, want.allow, answer.Header().Get("Allow"), request)
		assert.Empty(t, answer.Header().Get("Location"), request)
	}
}

// An error after which nothing is stored sends nobody for a new key: none was used up.
func TestUnstoredErrorsUseUpNoKey(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		if k.err == nil || transfer.OutcomeOf(k.err) == transfer.Failed {
			continue
		}
		assert.NotEqual(t, newKey, kindOf(k.err).next, k.code)
	}
	assert.Equal(t, lookAtIt, kindOf(transfer.ErrAccountNotFound).next, "of an account that was asked for")
	assert.Equal(t, newKey, kindOf(&transfer.RefusedError{Err: transfer.ErrAccountNotFound}).next, "of a transfer")
}

// The statuses here are those that the library has for a service.
func TestStatusesAreTheLibrarys(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		if k.err != nil {
			require.Equal(t, transferhttp.StatusOf(k.err), kindOf(k.err).status, k.code)
			refused := &transfer.RefusedError{Err: k.err}
			require.Equal(t, transferhttp.StatusOf(refused), kindOf(refused).status, k.code)
		}
	}
}
