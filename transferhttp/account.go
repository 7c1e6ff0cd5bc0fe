package transferhttp

import (
	"context"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"time"

	"github.com/mongotransfer/transfer"
)

const (
	// statementPage is how many entries a page of a statement has.
	statementPage = 25
	// maxMarkers is how many transfers in flight on an account are shown.
	maxMarkers = 20
)

// accountView is what the template of an account shows.
type accountView struct {
	transfer.Account
	// Unread says what is wrong with a document that is no account, which has an ID only.
	Unread string
	// Flags are what else it is: closed, frozen, without a floor.
	Flags []string
	// Markers are the transfers in flight on it, and what each moves here.
	Markers []markerRow
	// MoreMarkers says that there are others, and MarkersRead that this is known.
	MoreMarkers, MarkersRead bool
	// Entries are a page of the statement, newest first.
	Entries []entryRow
	// First and Next lead to other pages, "" where there is none.
	First, Next template.URL
	// Note says why the statement ends.
	Note string
	// Ended says that the page of the statement was read to its end.
	Ended bool
}

// markerRow is a transfer in flight on an account.
type markerRow struct {
	transferRow
	// Here are the legs on the account.
	Here []string
}

// entryRow is an entry of a statement.
type entryRow struct {
	transfer.Entry
	Ago string
	// Others are the other accounts.
	Others []transfer.Leg
	// MoreOthers counts those that are not shown.
	MoreOthers int
}

// maxOthers is how many other accounts an entry names.
const maxOthers = 3

// account shows one account.
func (w *window) account(ctx context.Context, r *http.Request) (page, error) {
	asked := r.URL.Query()
	id, name := asked.Get("id"), asked.Get("ledger")
	if id == "" {
		return page{}, &badRequest{"Which account? Its ID is missing."}
	}
	query := transfer.StatementQuery{NewestFirst: true, Limit: statementPage + 1}
	if beyond := asked.Get("beyond"); beyond != "" || asked.Get("at") != "" {
		at, err := time.Parse(time.RFC3339Nano, asked.Get("at"))
		if err != nil || beyond == "" {
			return page{}, &badRequest{"This is no page of a statement: begin with the first one."}
		}
		query.Beyond = transfer.Entry{TransferID: beyond, At: at}
	}
	ledger, err := w.coordinator.Ledger(name)
	if err != nil {
		return page{}, err
	}
	done, err := w.read(ctx)
	if err != nil {
		return page{}, err
	}
	defer done()
	view := accountView{}
	view.Account, err = ledger.Get(ctx, id)
	switch {
	case errors.Is(err, transfer.ErrAmountKind):
		view.Account, view.Unread = transfer.Account{ID: id, Ledger: name}, clip(err.Error(), maxErrorBytes)
	case err != nil:
		return page{}, err
	}
	view.Flags = accountFlags(view.Account)
	p := page{body: "account.html", Title: "Account " + visible(id), Here: "account"}
	if err = w.addMarkers(ctx, &view); err == nil {
		view.MarkersRead = true
	}
	if err == nil && view.Unread == "" {
		err = w.addStatement(ctx, ledger, query, &view)
		view.Ended = err == nil
	}
	if query.Beyond.TransferID != "" {
		view.First = accountLink(name, id)
	}
	p.Body = view
	return p, err
}

// addMarkers adds the transfers in flight on an account.
func (w *window) addMarkers(ctx context.Context, view *accountView) error {
	query := transfer.Query{Ledger: view.Ledger, Account: view.ID, Unfinished: true, Limit: maxMarkers + 1}
	for rec, err := range w.coordinator.List(ctx, query) {
		switch {
		case err != nil && transfer.OutcomeOf(err) != transfer.InDoubt:
			return err
		case len(view.Markers) == maxMarkers:
			view.MoreMarkers = true
			return nil
		case err != nil: // one that can't be read
			view.Markers = append(view.Markers, markerRow{transferRow: transferRow{Unread: clip(err.Error(), maxErrorBytes)}})
			continue
		}
		row := markerRow{transferRow: w.row(rec)}
		for _, leg := range rec.Legs {
			if leg.Ledger == view.Ledger && leg.Account == view.ID {
				row.Here = append(row.Here, signed(leg.Amount))
			}
		}
		view.Markers = append(view.Markers, row)
	}
	return nil
}

// addStatement adds a page of an account's statement.
func (w *window) addStatement(
	ctx context.Context, ledger *transfer.Ledger, query transfer.StatementQuery, view *accountView,
) error {
	now := w.now()
	for entry, err := range ledger.Statement(ctx, view.ID, query) {
		switch {
		case errors.Is(err, transfer.ErrHistoryGone):
			view.Note = "What was before is not kept any more."
			return nil
		case errors.Is(err, transfer.ErrUnauthorized) && len(view.Entries) > 0:
			view.Note = "The rest can't be told for certain without the right to write to the transfers, which this user doesn't have."
			return nil
		case err != nil:
			return err
		case len(view.Entries) == statementPage:
			last := view.Entries[statementPage-1]
			values := url.Values{"id": {view.ID}, "beyond": {last.TransferID}, "at": {stamp(last.At)}}
			if view.Ledger != "" {
				values.Set("ledger", view.Ledger)
			}
			view.Next = link("account", values)
			return nil
		}
		view.Entries = append(view.Entries, entryOf(now, view.Account, entry))
	}
	return nil
}

// entryOf returns an entry as the page has it.
func entryOf(now time.Time, a transfer.Account, e transfer.Entry) entryRow {
	row := entryRow{Entry: e, Ago: relative(now, e.At)}
	for _, leg := range e.Legs {
		switch {
		case leg.Ledger == a.Ledger && leg.Account == a.ID:
		case len(row.Others) == maxOthers:
			row.MoreOthers++
		default:
			row.Others = append(row.Others, leg)
		}
	}
	return row
}

// accountFlags returns what else an account is.
func accountFlags(a transfer.Account) (flags []string) {
	if a.Closed {
		flags = append(flags, "closed")
	}
	if a.Frozen {
		flags = append(flags, "frozen")
	}
	if a.NoFloor {
		flags = append(flags, "no floor")
	}
	return flags
}

// accountList is what the template of the list of accounts shows.
type accountList struct {
	Ledger string
	Rows   []accountRow
	// First and Next lead to other pages, "" where there is none.
	First, Next template.URL
}

// accountRow is an account in a table.
type accountRow struct {
	transfer.Account
	Flags []string
	// Unread is the error of a document that is no account.
	Unread string
}

// accounts shows the accounts of a ledger.
func (w *window) accounts(ctx context.Context, r *http.Request) (page, error) {
	asked := r.URL.Query()
	l := accountList{Ledger: asked.Get("ledger")}
	query := transfer.AccountQuery{Ledger: l.Ledger, Beyond: asked.Get("beyond"), Limit: listPage + 1}
	address := func(beyond string) template.URL {
		values := url.Values{}
		if l.Ledger != "" {
			values.Set("ledger", l.Ledger)
		}
		if beyond != "" {
			values.Set("beyond", beyond)
		}
		return link("accounts", values)
	}
	done, err := w.read(ctx)
	if err != nil {
		return page{}, err
	}
	defer done()
	for a, err := range w.coordinator.Accounts(ctx, query) {
		row := accountRow{Account: a, Flags: accountFlags(a)}
		switch {
		case err != nil && errors.Is(err, transfer.ErrAmountKind) && a.ID != "":
			row.Unread = clip(err.Error(), maxErrorBytes)
		case err != nil:
			return page{}, err
		}
		if len(l.Rows) == listPage {
			l.Next = address(l.Rows[listPage-1].ID)
			break
		}
		l.Rows = append(l.Rows, row)
	}
	if query.Beyond != "" {
		l.First = address("")
	}
	return page{body: "accounts.html", Title: "Accounts", Here: "accounts", Body: l}, nil
}
