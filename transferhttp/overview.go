package transferhttp

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/mongotransfer/transfer"
)

// overviewEvery is how often an open overview asks again.
const overviewEvery = 5 * time.Second

// overview is what the template of the overview shows.
type overview struct {
	// Seen is nil where the server could not be read.
	Seen *sight
	// Groups are the transfers that need attention, the worst first.
	Groups []attention
	// Calm says that nothing needs attention.
	Calm bool
	// States are the counts of what is unfinished.
	States []stateRow
	// Oldest is since when the oldest should have come to its end, for people.
	Oldest string
	// Recorded says that there is a Recorder, and Activity is what it has seen.
	Recorded bool
	Activity activity
	// Audit is the last audit.
	Audit auditView
}

// attention is a group of transfers that need it.
type attention struct {
	// Name says what is wrong with them, and Hint what to do.
	Name, Hint string
	Count      int64
	// Rows are the first of them.
	Rows []transferRow
	// More leads to all of them.
	More []string
}

// stateRow is a count of Stats.
type stateRow struct {
	Name, Meaning string
	Count         int64
	// Bad says that there should be none.
	Bad bool
	// Filter leads to a list of them.
	Filter []string
}

// auditView is the last audit as the overview shows it.
type auditView struct {
	// Report is nil where there was none.
	Report *transfer.AuditReport
	// Ago is when it was, for people.
	Ago string
	// More counts the findings that are not shown.
	More int
	// Findings are the first findings.
	Findings []transfer.Finding
	// Failed is the error of a later one.
	Failed string
	// FailedAt is when that was.
	FailedAt time.Time
}

// maxFindings is how many findings the overview shows.
const maxFindings = 20

// overview shows what is stuck or late, and how the rest does.
func (w *window) overview(ctx context.Context, r *http.Request) (page, error) {
	p := page{body: "overview.html", Title: "Overview", Here: "./"}
	p.refreshing(r, overviewEvery)
	var o overview
	if w.recorder != nil {
		o.Recorded, o.Activity, o.Audit = true, w.recorder.activity(), w.auditView()
	}
	seen, err := w.sight(ctx)
	if err == nil {
		o.Seen, o.States = seen, statesOf(seen.Stats)
		o.Groups = w.groupsOf(seen)
		o.Calm = len(o.Groups) == 0 && seen.Unhealthy == "" && len(o.Audit.Findings) == 0
		if !seen.Stats.Oldest.IsZero() {
			o.Oldest = relative(w.now(), seen.Stats.Oldest)
		}
	}
	p.Body = o
	return p, err
}

// groupsOf returns what needs attention, the worst first.
func (w *window) groupsOf(seen *sight) (groups []attention) {
	for _, g := range []attention{
		{
			Name: "Stuck", Hint: "They can't be finished until what is in their way is repaired.",
			Count: seen.Stats.Stuck, Rows: w.rows(seen.Stuck.Records), More: []string{"show", "stuck"},
		},
		{
			Name: "Overdue holds", Hint: "They have expired, and nobody has voided them. Does some process call Run?",
			Count: seen.Stats.Overdue, Rows: w.rows(seen.Overdue.Records), More: []string{"show", "overdue"},
		},
		{
			Name: "Late", Hint: "Nothing has happened to them for more than a minute. Does some process call Run?",
			Count: int64(len(seen.Late.Records)), Rows: w.rows(seen.Late.Records), More: []string{"show", "late"},
		},
	} {
		if len(g.Rows) > 0 {
			groups = append(groups, g)
		}
	}
	return groups
}

// statesOf returns the counts of what is unfinished.
func statesOf(s transfer.Stats) []stateRow {
	return []stateRow{
		{"Stuck", "could not be finished when that was last tried", s.Stuck, true, []string{"show", "stuck"}},
		{"Overdue", "holds that have expired", s.Overdue, true, []string{"show", "overdue"}},
		{"Preparing", "money is being reserved", s.Preparing, false, []string{"show", "preparing"}},
		{"Committed", "will happen; being paid, or cleared", s.Committed, false, []string{"show", "committed"}},
		{"Rollback", "will not happen; being undone", s.Rollback, false, []string{"show", "rollback"}},
		{"Due", "submitted; a worker may begin", s.Due, false, []string{"show", "submitted"}},
		{"Scheduled", "submitted; waits for its time, or for funds", s.Scheduled, false, []string{"show", "submitted"}},
		{"Held", "money is reserved until posted or voided", s.Held, false, []string{"show", "held"}},
		{"Undelivered", "transfers with an event that was not delivered", s.Undelivered, false, []string{"show", "undelivered"}},
	}
}

// auditView returns the last audit as the overview shows it.
func (w *window) auditView() auditView {
	last := w.recorder.lastAudit()
	v := auditView{Report: last.report, Failed: last.failed, FailedAt: last.failedAt}
	if last.report != nil {
		v.Ago = relative(w.now(), last.report.At)
		v.Findings = last.report.Findings[:min(len(last.report.Findings), maxFindings)]
		v.More = len(last.report.Findings) - len(v.Findings) + last.report.Omitted
	}
	return v
}

// transferRow is a transfer in a table.
type transferRow struct {
	transfer.Record
	// Unread is the error of one that can't be read, and the record is empty.
	Unread string
	// Flags are what else it is: held, stuck, waiting.
	Flags []string
	// Pair says that it moves Amount from one account to another.
	Pair     bool
	From, To transfer.Leg
	Amount   string
	// Others says what it moves otherwise.
	Others string
	// Created and Touched are for people.
	Created, Touched string
	// Why is what is in its way.
	Why string
}

// rows returns transfers as a table has them.
func (w *window) rows(records []transfer.Record) []transferRow {
	rows := make([]transferRow, len(records))
	for i, rec := range records {
		rows[i] = w.row(rec)
	}
	return rows
}

func (w *window) row(rec transfer.Record) transferRow {
	now := w.now()
	row := transferRow{
		Record: rec, Flags: flagsOf(now, rec), Created: relative(now, rec.CreatedAt), Touched: relative(now, rec.LastModified),
	}
	if len(rec.Legs) == 2 && rec.Legs[0].Currency == rec.Legs[1].Currency {
		row.Pair, row.From, row.To = true, rec.Legs[0], rec.Legs[1]
		if row.From.Amount.Sign() > 0 {
			row.From, row.To = row.To, row.From
		}
		row.Amount = amountIn(row.To.Amount, row.To.Currency)
	} else {
		row.Others = parties(rec)
	}
	for _, why := range []*transfer.Failure{rec.Stuck, rec.Waiting, rec.Failure} {
		if why != nil && row.Why == "" {
			row.Why = why.Message
		}
	}
	for _, u := range rec.Undelivered {
		if u.GivenUp {
			row.Why = fmt.Sprintf("the event %s was given up after %d attempts", u.Kind, u.Attempts)
		}
	}
	return row
}

// parties says how many accounts and documents a transfer changes.
func parties(rec transfer.Record) string {
	text := count(len(rec.Legs), "account")
	if len(rec.Effects) > 0 {
		text += ", " + count(len(rec.Effects), "document")
	}
	return text
}

// count returns a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// amountIn returns an amount with its currency.
func amountIn(a transfer.Amount, currency string) string {
	if currency == "" {
		return a.String()
	}
	return a.String() + " " + visible(currency)
}

// flagsOf returns what else a transfer is than its state.
func flagsOf(now time.Time, rec transfer.Record) (flags []string) {
	switch {
	case rec.Held && rec.ExpiresAt.Before(now):
		flags = append(flags, "overdue")
	case rec.Held:
		flags = append(flags, "held")
	}
	if rec.Stuck != nil {
		flags = append(flags, "stuck")
	}
	if rec.Waiting != nil {
		flags = append(flags, "waits for funds")
	}
	if rec.State == transfer.StateInitiated && rec.NotBefore.After(now) {
		flags = append(flags, "scheduled")
	}
	if len(rec.Undelivered) > 0 {
		flags = append(flags, "undelivered")
	}
	if rec.Reverses != "" {
		flags = append(flags, "reversal")
	}
	return flags
}
