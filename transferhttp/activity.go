package transferhttp

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/mongotransfer/transfer"
)

// activity is what a Recorder shows of the last half hour.
type activity struct {
	Charts []chart
	Verbs  []verbRow
	Stages []stageRow
	// Facts are single numbers.
	Facts []fact
	// Since is when the Recorder began, if that is less than half an hour ago.
	Since time.Time
}

// verbRow is what has become of the calls of one verb.
type verbRow struct {
	Verb                                 string
	Calls, Done, Refused, InDoubt, Other int
	P50, P95, P99                        time.Duration
}

// stageRow is how long calls were in one stage.
type stageRow struct {
	Stage string
	Count int
	Mean  time.Duration
	// Share is the part of all time, in percent.
	Share float64
}

// fact is a number with a name.
type fact struct{ Name, Value string }

// isBackground reports whether a verb is that of Run or Recover, and nobody waits for it.
func isBackground(verb string) bool {
	switch verb {
	case "run", "postpone", "recover", "expire":
		return true
	}
	return false
}

// activity returns what the overview shows.
// It changes when a slot is over, and is drawn once until then: drawing keeps those
// waiting who record.
func (r *Recorder) activity() activity {
	r.drawing.Lock()
	defer r.drawing.Unlock()
	if number := r.slotNumber(); r.drawnAt != number {
		r.drawn, r.drawnAt = r.draw(), number
		r.draws++
	}
	return r.drawn
}

// draw draws what was recorded.
func (r *Recorder) draw() activity {
	sum := newSummary()
	r.each(sum.add)
	a := activity{Charts: sum.charts(), Facts: sum.facts()}
	for _, verb := range knownVerbs() {
		if t := sum.verbs[verb]; t != nil {
			a.Verbs = append(a.Verbs, t.row(verb))
		}
	}
	total := time.Duration(0)
	for _, e := range sum.stages {
		total += e.took
	}
	for _, stage := range knownStages() {
		if e := sum.stages[stage]; e != nil && e.count > 0 {
			share := 100 * float64(e.took) / float64(max(total, 1))
			a.Stages = append(a.Stages, stageRow{stage, e.count, e.took / time.Duration(e.count), share})
		}
	}
	if r.elapsed() < slotCount*slotLength {
		a.Since = r.begun
	}
	return a
}

// row returns a tally as the page has it.
func (t *tally) row(verb string) verbRow {
	row := verbRow{
		Verb: verb, P50: t.took.quantile(0.5), P95: t.took.quantile(0.95), P99: t.took.quantile(0.99),
		Done: t.outcomes[transfer.Moved], Refused: t.outcomes[transfer.Failed], InDoubt: t.outcomes[transfer.InDoubt],
		Other: t.outcomes[transfer.NothingStored] + t.outcomes[transfer.Unchanged],
	}
	row.Calls = row.Done + row.Refused + row.InDoubt + row.Other
	return row
}

// summary adds up slots.
type summary struct {
	verbs                                     map[string]*tally
	stages                                    map[string]*effort
	done, refused, inDoubt, other, background values
	p50, p95, p99                             values
	works, waits, held, undelivered           values
	total                                     slot
}

func newSummary() *summary {
	s := &summary{verbs: map[string]*tally{}, stages: map[string]*effort{}}
	for _, v := range []*values{
		&s.done, &s.refused, &s.inDoubt, &s.other, &s.background, &s.p50, &s.p95, &s.p99, &s.works, &s.waits, &s.held, &s.undelivered,
	} {
		*v = newValues()
	}
	return s
}

// add adds a slot.
func (s *summary) add(i int, one *slot, known bool) {
	if !known {
		return
	}
	var called, background tally
	for verb, t := range one.verbs {
		sum := &called
		if isBackground(verb) {
			sum = &background
		}
		sum.addAll(t)
		if s.verbs[verb] == nil {
			s.verbs[verb] = &tally{}
		}
		s.verbs[verb].addAll(t)
	}
	for stage, e := range one.stages {
		if s.stages[stage] == nil {
			s.stages[stage] = &effort{}
		}
		s.stages[stage].count += e.count
		s.stages[stage].took += e.took
	}
	row, rate := called.row(""), func(n int) float64 { return float64(n) / slotLength.Seconds() }
	s.done[i], s.refused[i], s.inDoubt[i], s.other[i] = rate(row.Done), rate(row.Refused), rate(row.InDoubt), rate(row.Other)
	s.background[i] = rate(background.row("").Calls)
	if row.Calls > 0 {
		s.p50[i], s.p95[i], s.p99[i] = row.P50.Seconds(), row.P95.Seconds(), row.P99.Seconds()
	}
	if c := one.counted; c != nil {
		s.works[i], s.waits[i] = float64(c.Preparing+c.Committed+c.Rollback), float64(c.Due)
		s.held[i], s.undelivered[i] = float64(c.Held), float64(c.Undelivered)
	}
	s.total.takeovers += one.takeovers
	s.total.delivered += one.delivered
	s.total.undelivered += one.undelivered
	s.total.gaveUp += one.gaveUp
	s.total.commands += one.commands
	s.total.operations += one.operations
	s.total.queued = max(s.total.queued, one.queued)
}

// addAll adds what another tally has counted.
func (t *tally) addAll(other *tally) {
	for i, n := range other.outcomes {
		t.outcomes[i] += n
	}
	t.took.addAll(&other.took)
}

// charts draws what was added.
func (s *summary) charts() []chart {
	for _, counted := range []values{s.works, s.waits, s.held, s.undelivered} {
		counted.fill()
	}
	seconds := func(v float64) string { return shortDuration(time.Duration(v * float64(time.Second))) }
	charts := []chart{
		plot{
			names:   []string{"done", "refused", "in doubt", "nothing stored or changed"},
			classes: []string{"c-good", "c-refused", "c-doubt", "c-other"},
			lines:   []values{s.done, s.refused, s.inDoubt, s.other}, text: rateText,
		}.layers(chart{Name: "calls", Title: "Calls a second"}),
		plot{
			names:   []string{"99 of 100 within", "95 of 100", "half of them"},
			classes: []string{"c-high", "c-middle", "c-low"},
			lines:   []values{s.p99, s.p95, s.p50}, text: seconds,
		}.curves(chart{Name: "latency", Title: "How long callers waited"}),
		plot{
			names: []string{"under way", "due", "held"}, classes: []string{"c-high", "c-middle", "c-low"},
			lines: []values{s.works, s.waits, s.held}, text: countText,
		}.curves(chart{Name: "unfinished", Title: "Unfinished, as Run counts them"}),
	}
	for _, optional := range []struct {
		line  values
		drawn chart
	}{
		{s.background, plot{
			names: []string{"by Run and Recover"}, classes: []string{"c-good"}, lines: []values{s.background}, text: rateText,
		}.layers(chart{Name: "background", Title: "Transfers a second that nobody waits for"})},
		{s.undelivered, plot{
			names: []string{"undelivered"}, classes: []string{"c-doubt"}, lines: []values{s.undelivered}, text: countText,
		}.curves(chart{Name: "events", Title: "Transfers with undelivered events"})},
	} {
		if optional.line.any() {
			charts = append(charts, optional.drawn)
		}
	}
	return charts
}

// Fewer than maxGap slots in a row that have no count are filled: Run counts about as
// often as there is a slot.
const maxGap = 4

// fill repeats values where a few are missing.
func (v values) fill() {
	gap := maxGap
	for i := range v {
		if !math.IsNaN(v[i]) {
			gap = 0
			continue
		}
		if gap++; gap < maxGap {
			v[i] = v[i-1]
		}
	}
}

// any reports whether there is a value but 0.
func (v values) any() bool {
	for _, value := range v {
		if orZero(value) != 0 {
			return true
		}
	}
	return false
}

// facts returns what single numbers show.
func (s *summary) facts() []fact {
	t := s.total
	facts := []fact{{"takeovers", fmt.Sprint(t.takeovers)}}
	if t.commands > 0 {
		facts = append(facts,
			fact{"shared commands", fmt.Sprint(t.commands)},
			fact{"operations in each", strconv.FormatFloat(float64(t.operations)/float64(t.commands), 'f', 1, 64)},
			fact{"longest queue for one", fmt.Sprint(t.queued)})
	}
	if t.delivered+t.undelivered+t.gaveUp > 0 {
		facts = append(facts,
			fact{"events delivered", fmt.Sprint(t.delivered)},
			fact{"deliveries that failed", fmt.Sprint(t.undelivered)},
			fact{"events given up", fmt.Sprint(t.gaveUp)})
	}
	return facts
}

// rateText returns a rate with two or three digits.
func rateText(v float64) string {
	switch {
	case v >= 100 || v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(math.Round(100*v)/100, 'f', -1, 64)
}

// countText returns a whole number.
func countText(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) }
