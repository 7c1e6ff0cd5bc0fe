package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/mongotransfer/transfer"
)

const (
	// wideColumns is how wide three columns of numbers are. A narrower screen has two,
	// and what is in trouble comes first.
	wideColumns = 65
	// spaciousRows is how high a screen is that has empty lines.
	spaciousRows = 16
	// leastName is how much of an ID is shown, however narrow the screen is.
	leastName = 16
)

// draw returns the screen's text. Each line is cut to the width, and the lists share the
// rows that are left.
func (w *watchScreen) draw() string {
	gap := w.gap()
	lines := append([]string{w.headline()}, gap...)
	if w.err != nil {
		lines = append(append(lines, bad(printable("this look failed: "+w.err.Error()))), gap...)
	}
	if w.looked {
		lines = append(append(lines, w.rateLine()), gap...)
		lines = append(lines, w.numbers()...)
		lines = append(lines, w.lists(w.height-len(lines)-len(gap)-1)...)
	} else if w.err == nil {
		lines = append(lines, "looking …")
	}
	if room := w.height - len(gap) - 1; w.height > 0 && len(lines) > room {
		lines = lines[:max(room, 0)]
	}
	keys := faint("q quits · p pauses")
	if w.paused {
		keys = bad("paused") + faint(" · p goes on · q quits")
	}
	lines = append(append(lines, gap...), keys)
	for i, line := range lines {
		if w.width > 0 {
			lines[i] = ansi.Truncate(line, w.width, "…")
		}
	}
	return strings.Join(lines, "\n")
}

// gap is what stands between the parts: an empty line, where there is room for it.
func (w *watchScreen) gap() []string {
	if w.height > 0 && w.height < spaciousRows {
		return nil
	}
	return []string{""}
}

func bold(text string) string  { return lipgloss.NewStyle().Bold(true).Render(text) }
func faint(text string) string { return lipgloss.NewStyle().Faint(true).Render(text) }
func bad(text string) string {
	return lipgloss.NewStyle().Bold(true).Foreground(lipgloss.Color("1")).Render(text)
}

func (w *watchScreen) headline() string {
	at := ""
	if w.looked {
		at = timeText(w.latest.at)
	}
	return bold("transfers of "+clean(w.title)) + "  " + faint(fmt.Sprintf("%s  every %s", at, w.interval))
}

func (w *watchScreen) rateLine() string {
	if len(w.history) == 0 {
		return "begun       -"
	}
	return fmt.Sprintf("begun  %8.1f/s  %s   failed %.1f/s", w.latest.begun, sparkline(w.history), w.latest.failed)
}

// sparkline draws numbers as bars.
func sparkline(values []float64) string {
	const bars = "▁▂▃▄▅▆▇█"
	most := slices.Max(values)
	var line strings.Builder
	for _, v := range values {
		i := 0
		if most > 0 {
			i = int(v / most * 7)
		}
		line.WriteRune([]rune(bars)[i])
	}
	return line.String()
}

// numbers draws the table of states, in as many columns as there is room for.
func (w *watchScreen) numbers() []string {
	s := w.latest.stats
	plain := func(name string, n int64) string { return fmt.Sprintf("%-11s %7d", name, n) }
	alarming := func(name string, n int64) string {
		if n == 0 {
			return plain(name, n)
		}
		return bad(plain(name, n))
	}
	oldest := fmt.Sprintf("%-11s %7s", "oldest due", "-")
	if !s.Oldest.IsZero() {
		oldest = fmt.Sprintf("%-11s %7s", "oldest due", age(w.latest.at.Sub(s.Oldest)))
	}
	empty := strings.Repeat(" ", 19)
	if w.width > 0 && w.width < wideColumns {
		row := func(left, right string) string { return left + "  " + right }
		return []string{
			bold(row(fmt.Sprintf("%-19s", "TROUBLE"), "UNFINISHED")),
			row(alarming("stuck", s.Stuck), plain("due", s.Due)),
			row(alarming("overdue", s.Overdue), plain("scheduled", s.Scheduled)),
			row(alarming("undelivered", s.Undelivered), plain("held", s.Held)),
			row(oldest, plain("preparing", s.Preparing)),
			row(empty, plain("committed", s.Committed)),
			row(empty, plain("rollback", s.Rollback)),
		}
	}
	row := func(cells ...string) string { return strings.Join(cells, "    ") }
	return []string{
		bold(row(fmt.Sprintf("%-19s", "WAITING"), fmt.Sprintf("%-19s", "UNDER WAY"), "TROUBLE")),
		row(plain("scheduled", s.Scheduled), plain("preparing", s.Preparing), alarming("stuck", s.Stuck)),
		row(plain("due", s.Due), plain("committed", s.Committed), alarming("overdue", s.Overdue)),
		row(plain("held", s.Held), plain("rollback", s.Rollback), alarming("undelivered", s.Undelivered)),
		row(empty, empty, oldest),
	}
}

// age writes a duration in short.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// list is a list of transfers, with what there is to say of each.
type list struct {
	title   string
	records []transfer.Record
	why     func(transfer.Record) string
}

// lists draws what somebody has to look at: each list has an equal share of the rows.
func (w *watchScreen) lists(rows int) (lines []string) {
	x := w.latest
	lists := []list{
		{"STUCK", x.stuck, func(r transfer.Record) string {
			if r.Stuck == nil {
				return ""
			}
			return because(r.Stuck) + ": " + r.Stuck.Message
		}},
		{"IDLE", x.idle, func(r transfer.Record) string { return "by " + clean(r.Owner) }},
		{"UNDELIVERED", x.givenUp, undeliveredText},
	}
	lists = slices.DeleteFunc(lists, func(l list) bool { return len(l.records) == 0 })
	gap, share := w.gap(), maxListed
	if len(lists) > 0 && w.height > 0 {
		share = max(1, rows/len(lists)-len(gap)-1)
	}
	for _, l := range lists {
		var table [][]string
		for _, r := range l.records[:min(share, len(l.records))] {
			table = append(table, []string{w.name(r.ID), stateOf(r), age(x.at.Sub(r.LastModified)), l.why(r)})
		}
		var text strings.Builder
		(&page{out: &text}).table([]string{l.title, "STATE", "IDLE FOR", "WHY"}, table)
		drawn := strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
		drawn[0] = bold(drawn[0])
		lines = append(append(lines, gap...), drawn...)
	}
	return lines
}

// name returns an ID of which a long one leaves room for what there is to say of it.
func (w *watchScreen) name(id string) string {
	if w.width == 0 {
		return clean(id)
	}
	return ansi.Truncate(clean(id), max(leastName, w.width/3), "…")
}

func undeliveredText(r transfer.Record) string {
	var texts []string
	for _, u := range r.Undelivered {
		text := fmt.Sprintf("%s, tried %d times", u.Kind, u.Attempts)
		if u.GivenUp {
			text += ", given up"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "; ")
}
