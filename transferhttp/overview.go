package transferhttp

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
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
	// Age is how long ago the server was read, "" if that is just now.
	Age string
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
	// Count says how many there are.
	Count string
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
	// Count counts all findings.
	Count int
	// MoreSums counts the sums that are not shown.
	MoreSums int
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
	p.refreshing(r, overviewEvery, url.Values{})
	var o overview
	if w.recorder != nil {
		o.Recorded, o.Activity, o.Audit = true, w.recorder.activity(), w.auditView()
	}
	seen, err := w.sight(ctx)
	if err == nil {
		o.Seen, o.States = seen, statesOf(seen.Stats)
		o.Groups = w.groupsOf(seen)
		o.Calm = len(o.Groups) == 0 && seen.Unhealthy == "" && seen.GivenUp == 0 && !seen.MayGiveUp && o.Audit.Count == 0
		if age := w.now().Sub(seen.At); age > 2*leastAge {
			o.Age = shortDuration(age)
		}
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
			Count: fmt.Sprint(seen.Stats.Stuck), Rows: w.rows(seen.Stuck), More: []string{"show", "stuck"},
		},
		{
			Name: "Overdue holds", Hint: "They have expired, and nobody has voided them. Does some process call Run?",
			Count: fmt.Sprint(seen.Stats.Overdue), Rows: w.rows(seen.Overdue), More: []string{"show", "overdue"},
		},
		{
			Name: "Late", Hint: "Nothing has happened to them for more than a minute. Does some process call Run?",
			Count: seen.Late.count(), Rows: w.rows(seen.Late), More: []string{"show", "late"},
		},
	} {
		if len(g.Rows) > 0 || g.Count != "0" {
			groups = append(groups, g)
		}
	}
	switch {
	case !seen.isOld() || len(seen.Late.Records)+len(seen.Late.Unread) > 0:
	case seen.Late.More:
		groups = append(groups, attention{
			Name: "Late, perhaps", Count: "?", More: []string{"show", "late"},
			Hint: fmt.Sprintf("Too many have stood still to look at all. Of the newest %d none is late, but the oldest of all may be.", maxExamined),
		})
	case len(groups) == 0:
		groups = append(groups, attention{
			Name: "Late, and under way", Count: "1 or more", More: []string{"show", "unfinished"},
			Hint: "Something has happened to them within the last minute, but the oldest should have come to its end more than a minute ago.",
		})
	}
	return groups
}

// count says how many there are.
func (g group) count() string {
	n := len(g.Records) + len(g.Unread)
	if n > 0 && g.More {
		return fmt.Sprint(n, " or more")
	}
	return fmt.Sprint(n)
}

// isOld reports whether some transfer should have come to its end a while ago, whether it
// was looked at or not.
func (s *sight) isOld() bool {
	oldest := s.Stats.Oldest
	return !oldest.IsZero() && oldest.Before(s.At.Add(-lateAfter))
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
		v.Count = len(last.report.Findings) + last.report.Omitted
		v.MoreSums = last.sums - len(last.report.Ledgers)
		v.More = v.Count - len(v.Findings)
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
func (w *window) rows(g group) (rows []transferRow) {
	for _, rec := range g.Records {
		rows = append(rows, w.row(rec))
	}
	for _, unread := range g.Unread {
		rows = append(rows, transferRow{Unread: unread})
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
		if rec.Posted != nil && rec.Posted.Cmp(row.To.Amount) != 0 {
			row.Amount = rec.Posted.String() + " of " + row.Amount
		}
	} else {
		row.Others = parties(rec)
	}
	for _, why := range []*transfer.Failure{rec.Stuck, rec.Waiting, rec.Failure} {
		if why != nil && row.Why == "" {
			row.Why = why.Message
		}
	}
	for _, u := range rec.Undelivered {
		if u.GivenUp && row.Why == "" {
			row.Why = fmt.Sprintf("the event %s was given up after %s", u.Kind, count(u.Attempts, "attempt"))
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
