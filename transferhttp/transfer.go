package transferhttp

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mongotransfer/transfer"
)

// transferEvery is how often the page of a transfer that is not final asks again.
const transferEvery = 5 * time.Second

// transferView is what the template of a transfer shows.
type transferView struct {
	transfer.Explanation
	Row transferRow
	// SinceAgo and NextTryIn are for people.
	SinceAgo, NextTryIn string
	// Missed says that the next try should have been a while ago.
	Missed bool
	// Timeline is what has happened, and is to come, in order.
	Timeline []moment
	// Calls are those of this process, newest first.
	Calls []callRow
	// Recorded says that there is a Recorder.
	Recorded bool
}

// moment is a point of a timeline.
type moment struct {
	At   time.Time
	What string
	// Ago is when it is, for people.
	Ago string
	// Future says that it is yet to come, and Now that it is the present.
	Future, Now bool
}

// callRow is a call about a transfer.
type callRow struct {
	transfer.TransferInfo
	Ago   string
	Error string
	// Parts are its stages, by their share of its time.
	Parts []callPart
}

// callPart is a stage of a call.
type callPart struct {
	Name         string
	Took         time.Duration
	Begin, Width float64 // in percent
}

// transfer shows one transfer.
func (w *window) transfer(ctx context.Context, r *http.Request) (page, error) {
	id := r.URL.Query().Get("id")
	if id == "" {
		return page{}, &badRequest{"Which transfer? Its ID is missing."}
	}
	p := page{Title: "Transfer " + visible(id), Here: "transfer"}
	refreshed := p
	refreshed.refreshing(r, transferEvery, url.Values{"id": {id}})
	done, err := w.read(ctx)
	if err != nil {
		return refreshed, err
	}
	defer done()
	e, err := w.coordinator.Explain(ctx, id)
	if err != nil {
		return refreshed, err
	}
	now := w.now()
	view := transferView{
		Explanation: e, Row: w.row(e.Record), Timeline: timeline(now, e),
		SinceAgo: relative(now, e.Since), NextTryIn: relative(now, e.NextTry),
		Missed: !e.NextTry.IsZero() && e.NextTry.Before(now.Add(-lateAfter)),
	}
	if w.recorder != nil {
		view.Recorded = true
		for _, call := range w.recorder.callsOf(id) {
			view.Calls = append(view.Calls, callOf(now, call))
		}
	}
	if !e.Record.State.Final() || refreshed.Still {
		p = refreshed
	}
	p.body, p.Body = "transfer.html", view
	return p, nil
}

// timeline returns what has happened to a transfer, and what is to come.
func timeline(now time.Time, e transfer.Explanation) []moment {
	rec := e.Record
	// What was to come, and was decided before, does not come any more.
	planned := []moment{{At: rec.NotBefore, What: "may begin"}, {At: rec.AwaitFundsUntil, What: "no longer waits for funds"}}
	if rec.Held || rec.Hold && rec.State.Final() {
		planned = append(planned, moment{At: rec.ExpiresAt, What: "the hold expires"})
	}
	if rec.State.Final() {
		planned = slices.DeleteFunc(planned, func(m moment) bool { return m.At.After(rec.LastModified) })
	}
	moments := slices.Concat(planned, []moment{
		{At: rec.CreatedAt, What: "stored"},
		{At: rec.CommittedAt, What: "committed: the money has moved, or will"},
		{At: rec.LastModified, What: lastChange(e)},
		{At: e.NextTry, What: "from here on recovery goes on with it"},
		{At: rec.PurgeAt, What: "removed, and its ID forgotten"},
	})
	for _, u := range rec.Undelivered {
		what := fmt.Sprintf("event %s: waits for its delivery", u.Kind)
		if u.Attempts > 0 {
			what = fmt.Sprintf("event %s: not delivered, after %s", u.Kind, count(u.Attempts, "attempt"))
		}
		if u.GivenUp {
			what += ", and given up"
		}
		moments = append(moments, moment{At: u.At, What: what})
	}
	moments = slices.DeleteFunc(moments, func(m moment) bool { return m.At.IsZero() })
	if !rec.State.Final() {
		moments = append(moments, moment{At: now, What: "now", Now: true})
	}
	slices.SortStableFunc(moments, func(a, b moment) int { return cmp.Compare(a.At.UnixNano(), b.At.UnixNano()) })
	for i := range moments {
		moments[i].Ago, moments[i].Future = relative(now, moments[i].At), moments[i].At.After(now)
	}
	return moments
}

// lastChange says what the last write to a transfer was.
func lastChange(e transfer.Explanation) string {
	rec := e.Record
	var what string
	switch {
	case rec.State == transfer.StateSuccess:
		what = "finished: Success"
	case rec.State == transfer.StateFail:
		what = "finished: Fail, nothing moved"
	case rec.Held:
		what = "held"
	default:
		what = "last written: " + string(rec.State)
	}
	if rec.Attempts > 0 {
		what += ", after " + count(rec.Attempts, "takeover")
	}
	return what
}

// callOf returns a call as the page has it.
func callOf(now time.Time, info transfer.TransferInfo) callRow {
	row := callRow{TransferInfo: info, Ago: relative(now, info.Begun)}
	if info.Err != nil {
		row.Error = info.Err.Error()
	}
	whole := float64(max(info.Took, 1))
	for _, stage := range info.Stages {
		row.Parts = append(row.Parts, callPart{
			Name: stage.Name, Took: stage.Took,
			Begin: 100 * float64(stage.Begun.Sub(info.Begun)) / whole, Width: max(100*float64(stage.Took)/whole, 0.5),
		})
	}
	return row
}

// Summary says the stages in words, for screen readers.
func (c callRow) Summary() string {
	parts := make([]string, len(c.Parts))
	for i, p := range c.Parts {
		parts[i] = p.Name + " " + shortDuration(p.Took)
	}
	return strings.Join(parts, ", ")
}
