package browsertest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
	"github.com/mongotransfer/transfer/transferhttp"
)

// hostile are texts that run, or break something, where they are taken for markup.
func hostile() []string {
	return []string{
		`<script>alert("element")</script>`, `"><img src=x onerror=alert("attribute")>`, `' autofocus onfocus='alert("quote")`,
		`javascript:alert("address")`, `</title><script>alert("title")</script>`, `</textarea><svg onload=alert("svg")>`,
		`</script><script>alert("end")</script>`, `<iframe srcdoc="<script>alert('frame')</script>"></iframe>`,
		`<base href="//example.invalid/">`, `<meta http-equiv="refresh" content="0;url=//example.invalid/">`, `<style>*{display:none}</style>`,
		`<link rel=stylesheet href="//example.invalid/">`, `<form action="//example.invalid/"><button>`,
		`{{constructor.constructor("alert(1)")()}}`,
		`a/b`, `..`, `../../x`, `//example.invalid`, `?id=x&a=b#c`, `%2e%2e%2f`, "line\nbreak", "\u202eesrever", "nul\x00nul", `\`, `a+b c;d`,
		strings.Repeat("W", 255), strings.Repeat("ש", 127),
	}
}

// scene is a bank with a window.
type scene struct {
	*bank.Bank
	recorder *transferhttp.Recorder
	handler  atomic.Pointer[http.Handler]
	root     string
}

// newScene returns a bank with one account.
func newScene(t *testing.T, opts ...transfer.Option) *scene {
	t.Helper()
	s := &scene{recorder: transferhttp.NewRecorder()}
	opts = append([]transfer.Option{transfer.WithObserver(s.recorder.Observer(transfer.Observer{}))}, opts...)
	s.Bank = bank.NewWith(t, opts, 1000, 0).WithIndexes()
	handler := transferhttp.Handler(s.Coordinator, transferhttp.WithRecorder(s.recorder))
	s.handler.Store(&handler)
	server := httptest.NewServer(http.StripPrefix("/admin/window", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(*s.handler.Load()).ServeHTTP(w, r)
	})))
	t.Cleanup(server.Close)
	s.root = server.URL + "/admin/window/"
	return s
}

// newHostileScene returns a bank whose IDs, metadata and errors are hostile, with all
// that a page can show.
func newHostileScene(t *testing.T) (s *scene, ids []string) {
	t.Helper()
	s = newScene(t, transfer.WithEvents(transfer.EventHandler{
		Handle: func(context.Context, transfer.Event) error { return errors.New(hostile()[0]) },
	}))
	ids = hostile()
	o := s.recorder.Observer(transfer.Observer{})
	var findings []transfer.Finding
	for i, id := range ids {
		metadata := map[string]any{"<b onclick=alert(1)>": id, "list": []any{id, map[string]any{"x": id}}}
		_, err := s.OpenAccount(t.Context(), transfer.Account{ID: id, Balance: transfer.Units(100), Metadata: metadata})
		require.NoError(t, err)
		from := "a"
		if i > 0 {
			from = ids[i-1]
		}
		req := bank.Move(id, from, id, 1)
		req.Metadata = metadata
		switch i % 3 {
		case 0:
			_, err = s.Transfer(t.Context(), req)
		case 1:
			_, err = s.Hold(t.Context(), req, time.Hour)
		case 2:
			_, err = s.Submit(t.Context(), req)
		}
		require.NoError(t, err)
		stuck := bson.M{"code": "accountNotFound", "ledger": "", "account": id, "message": id}
		if i%3 == 1 {
			s.SetField("transfers", id, "stuck", stuck)
		}
		o.TransferDone(transfer.TransferInfo{
			ID: id, Verb: id, Outcome: transfer.InDoubt, State: transfer.State(id), Err: errors.New(id), Took: time.Second,
			Begun: time.Now(), Stages: []transfer.Stage{{Name: id, Begun: time.Now(), Took: time.Second}},
		})
		findings = append(findings, transfer.Finding{Code: id, ID: id, Detail: id, Advice: id, Ledger: id})
	}
	s.recorder.Audited(transfer.AuditReport{
		Findings: findings, At: time.Now(), Ledgers: []transfer.LedgerTotal{{Ledger: ids[0], Currency: ids[1]}},
	}, nil)
	return s, ids
}

// pages are the pages of a scene, one of each kind, and those of some IDs.
func (s *scene) pages(ids ...string) []string {
	pages := []string{"./", "transfers", "transfers?show=stuck", "accounts"}
	for _, id := range ids {
		pages = append(pages, withID("transfer", id), withID("account", id))
	}
	return pages
}

// missing are pages that say what is missing.
func missing() []string { return []string{"nothing", "transfer?id=nothing", "account"} }

// drive makes some calls, and waits until the charts show them.
func (s *scene) drive(b *tab) {
	b.t.Helper()
	for i := range 20 {
		_, err := s.Transfer(b.t.Context(), bank.Move(fmt.Sprint("order-", i), "a", "b", 1))
		require.NoError(b.t, err)
	}
	b.goTo("./")
	b.await(`document.querySelectorAll("#chart-calls path.filled, #chart-latency path.curve").length >= 10`)
}
