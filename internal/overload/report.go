package overload

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Figure is something that was seen.
type Figure struct {
	Scenario string
	Name     string
	Seen     string
	Must     string // what must hold; "": it is only told
	Holds    bool
	Timed    bool // what was seen depends on how busy the machine is
}

// String tells a figure in one line.
func (f Figure) String() string {
	verdict := ""
	if f.Must != "" {
		verdict = "holds: "
		if !f.Holds {
			verdict = "DOES NOT HOLD: "
		}
		verdict += f.Must
	}
	return strings.TrimRight(fmt.Sprintf("  %-46s %-44s %s", f.Name, f.Seen, verdict), " ")
}

// Report is all that was seen.
type Report struct {
	Figures []Figure

	out      io.Writer
	mu       sync.Mutex
	scenario string
}

// Red returns the figures that don't hold.
func (r *Report) Red() []Figure {
	var red []Figure
	for _, f := range r.Figures {
		if f.Must != "" && !f.Holds {
			red = append(red, f)
		}
	}
	return red
}

// Err returns an error if anything doesn't hold.
func (r *Report) Err() error {
	red := r.Red()
	if len(red) == 0 {
		return nil
	}
	lines := make([]string, len(red))
	for i, f := range red {
		lines[i] = f.Scenario + ":" + f.String()
	}
	return fmt.Errorf("%d of %d figures are not as they must be:\n%s", len(red), len(r.Figures), strings.Join(lines, "\n"))
}

func (r *Report) title(s scenario) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scenario = s.name
	if s.number > 0 {
		r.print(fmt.Sprintf("%d. %s", s.number, s.name))
	} else {
		r.print(s.name)
	}
}

func (r *Report) add(f Figure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.Scenario = r.scenario
	r.Figures = append(r.Figures, f)
	r.print(f.String())
}

// print tells a line to whoever watches: the figures are kept even if nobody can be told.
func (r *Report) print(line string) { _, _ = fmt.Fprintln(r.out, line) }

// tell adds a figure of which nothing is demanded.
func (s *scene) tell(name string, value any) {
	s.report.add(Figure{Name: name, Seen: fmt.Sprint(value)})
}

// atMost demands of something that is counted that it is no more than a bound.
func (s *scene) atMost(name string, n, bound int64) {
	s.report.add(Figure{Name: name, Seen: fmt.Sprint(n), Must: fmt.Sprintf("at most %d", bound), Holds: n <= bound})
}

// atLeast demands of something that is counted that it is no less than a bound: mostly
// that a scenario presses at all.
func (s *scene) atLeast(name string, n, bound int64) {
	s.report.add(Figure{Name: name, Seen: fmt.Sprint(n), Must: fmt.Sprintf("at least %d", bound), Holds: n >= bound})
}

// share demands that no more than so large a part of all is so.
func (s *scene) share(name string, part, all int64, bound float64) {
	got := ratio(float64(part), float64(all))
	s.report.add(Figure{
		Name: name, Seen: fmt.Sprintf("%d of %d, %.1f %%", part, all, 100*got),
		Must: fmt.Sprintf("at most %.1f %%", 100*bound), Holds: got <= bound, Timed: true,
	})
}

// times demands that something is less than so many times something else.
func (s *scene) times(name string, n, base, bound float64) {
	got := ratio(n, base)
	s.report.add(Figure{
		Name: name, Seen: fmt.Sprintf("%.0f and %.0f: %.2f", n, base, got),
		Must: fmt.Sprintf("less than %.2f", bound), Holds: got < bound,
	})
}

// keeps demands that a rate is at least so large a part of the one before.
func (s *scene) keeps(name string, before, during, bound float64) {
	if s.Short {
		bound /= slack
	}
	got := ratio(during, before)
	s.report.add(Figure{
		Name: name, Seen: fmt.Sprintf("before %.0f/s, during %.0f/s: %.2f", before, during, got),
		Must: fmt.Sprintf("at least %.2f", bound), Holds: got >= bound, Timed: true,
	})
}

// within demands that something took no longer than a bound.
func (s *scene) within(name string, took, bound time.Duration) {
	if s.Short {
		bound *= slack
	}
	s.report.add(Figure{
		Name: name, Seen: took.Round(time.Millisecond).String(),
		Must: "at most " + bound.String(), Holds: took <= bound, Timed: true,
	})
}

// ratio is zero where there is nothing to compare with.
func ratio(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return part / whole
}
