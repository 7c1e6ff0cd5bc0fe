package transferhttp

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"

	"github.com/mongotransfer/transfer"
)

// listPage is how many transfers, or accounts, a page has.
const listPage = 50

// choice is a list of transfers that the reader may choose.
type choice struct {
	Value, Name string
	query       func(w *window) transfer.Query
}

// choices are the lists of transfers, each of which has an index.
func choices() []choice {
	state := func(states ...transfer.State) func(*window) transfer.Query {
		return func(*window) transfer.Query { return transfer.Query{States: states} }
	}
	only := func(q transfer.Query) func(*window) transfer.Query { return func(*window) transfer.Query { return q } }
	return []choice{
		{"", "all", only(transfer.Query{})},
		{"unfinished", "unfinished", only(transfer.Query{Unfinished: true})},
		{"stuck", "stuck", only(transfer.Query{Stuck: true})},
		{"late", "late, and not touched for a minute", only(transfer.Query{IdleFor: lateAfter})},
		{"held", "held", only(transfer.Query{Holds: true})},
		{"overdue", "held, and expired", func(w *window) transfer.Query { return transfer.Query{ExpiresBefore: w.now()} }},
		{"submitted", "submitted, and not begun", state(transfer.StateInitiated)},
		{"preparing", "Preparing", state(transfer.StatePreparing)},
		{"committed", "Committed", state(transfer.StateCommitted)},
		{"rollback", "Rollback", state(transfer.StateRollback)},
		{"failed", "failed", state(transfer.StateFail)},
		{"undelivered", "with undelivered events", only(transfer.Query{Undelivered: true})},
	}
}

// list is what the template of the list of transfers shows.
type list struct {
	Choices []choice
	// Show, Ledger, Account and Reverses are what was chosen.
	Show, Ledger, Account, Reverses string
	Rows                            []transferRow
	// First and Next lead to other pages, "" where there is none.
	First, Next template.URL
	// Note says what is missing.
	Note string
}

// transfers shows a list of transfers.
func (w *window) transfers(ctx context.Context, r *http.Request) (page, error) {
	asked := r.URL.Query()
	l := list{
		Choices: choices(), Show: asked.Get("show"), Ledger: asked.Get("ledger"), Account: asked.Get("account"),
		Reverses: asked.Get("reverses"),
	}
	query, err := w.chosen(l.Show)
	if err != nil {
		return page{}, err
	}
	query.Ledger, query.Account, query.Reverses = l.Ledger, l.Account, l.Reverses
	query.Beyond = asked.Get("beyond")
	done, err := w.read(ctx)
	if err != nil {
		return page{}, err
	}
	defer done()
	if err := w.fill(ctx, &l, query, asked); err != nil {
		return page{}, err
	}
	if query.Beyond != "" {
		l.First = l.link(asked, "")
	}
	return page{body: "transfers.html", Title: "Transfers", Here: "transfers", Body: l}, nil
}

// fill reads a page of a list.
func (w *window) fill(ctx context.Context, l *list, query transfer.Query, asked url.Values) error {
	most, keep := listPage, func(transfer.Record) bool { return true }
	if l.Show == "late" {
		most, keep = maxExamined, w.isLate
	}
	query.Limit = most + 1
	seen, last, more := 0, "", false
	for rec, err := range w.coordinator.List(ctx, query) {
		seen++
		switch {
		case errors.Is(err, transfer.ErrTransferNotFound):
			return &badRequest{"The transfer at which this page begins is not there, or not any more: begin with the first page."}
		case err != nil && transfer.OutcomeOf(err) == transfer.InDoubt:
			l.Rows = append(l.Rows, transferRow{Unread: clip(err.Error(), maxErrorBytes)})
			continue
		case err != nil:
			return err
		case seen <= most && !keep(rec):
			last = rec.ID
			continue
		}
		if more = seen > most || len(l.Rows) >= listPage; more && last != "" {
			break
		}
		l.Rows = append(l.Rows, w.row(rec))
		last = rec.ID
	}
	if more || seen > most {
		l.goOn(asked, last, most)
	}
	return nil
}

// goOn leads to the next page, behind the last transfer that was read of so many.
func (l *list) goOn(asked url.Values, last string, most int) {
	switch {
	case last == "":
		l.Note = "There may be more, which this page can't lead to, as it ends with what can't be read: the audit names that."
		return
	case len(l.Rows) == 0:
		l.Note = fmt.Sprintf("None of the %d that this page has looked at is late. Go on with the next one.", most)
	}
	l.Next = l.link(asked, last)
}

// chosen returns the query of a choice.
func (w *window) chosen(show string) (transfer.Query, error) {
	for _, c := range choices() {
		if c.Value == show {
			return c.query(w), nil
		}
	}
	return transfer.Query{}, &badRequest{"There is no such choice of transfers."}
}

// link returns the address of another page of the same list.
func (l list) link(asked url.Values, beyond string) template.URL {
	values := url.Values{}
	for _, name := range []string{"show", "ledger", "account", "reverses"} {
		if value := asked.Get(name); value != "" {
			values.Set(name, value)
		}
	}
	if beyond != "" {
		values.Set("beyond", beyond)
	}
	return link("transfers", values)
}
