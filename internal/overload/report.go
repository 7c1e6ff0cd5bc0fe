package overload

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Figure is one result.
type Figure struct {
	// Scenario is the name of the scenario that measured it.
	Scenario string
	// Name says what was measured.
	Name string
	// Seen is the measured value.
	Seen string
	// Must is the bound that must hold. It is empty if the value may be any.
	Must string
	// Holds says whether the bound holds.
	Holds bool
	// Timed says that the value depends on how busy the machine is.
	Timed bool
}

// String returns the figure in one line.
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

// Report holds all results of a run.
type Report struct {
	// Figures are the results of all scenarios, in the order in which they came.
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

// Err returns an error if any figure doesn't hold.
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

// print prints a line.
// Its error is dropped, because the report holds the figures as well.
func (r *Report) print(line string) { _, _ = fmt.Fprintln(r.out, line) }

// note adds a figure that may have any value.
func (s *scene) note(name string, value any) {
	s.report.add(Figure{Name: name, Seen: fmt.Sprint(value)})
}

// atMost checks that a count is no more than a bound.
func (s *scene) atMost(name string, n, bound int64) {
	s.report.add(Figure{Name: name, Seen: fmt.Sprint(n), Must: fmt.Sprintf("at most %d", bound), Holds: n <= bound})
}

// atLeast checks that a count is no less than a bound: usually that a scenario is a load
// at all.
func (s *scene) atLeast(name string, n, bound int64) {
	s.report.add(Figure{Name: name, Seen: fmt.Sprint(n), Must: fmt.Sprintf("at least %d", bound), Holds: n >= bound})
}

// share checks that a part of all is no more than a bound.
func (s *scene) share(name string, part, all int64, bound float64) {
	got := ratio(float64(part), float64(all))
	s.report.add(Figure{
		Name: name, Seen: fmt.Sprintf("%d of %d, %.1f %%", part, all, 100*got),
		Must: fmt.Sprintf("at most %.1f %%", 100*bound), Holds: got <= bound, Timed: true,
	})
}

// times checks that a number is less than bound times another one.
func (s *scene) times(name string, n, base, bound float64) {
	got := ratio(n, base)
	s.report.add(Figure{
		Name: name, Seen: fmt.Sprintf("%.0f and %.0f: %.2f", n, base, got),
		Must: fmt.Sprintf("less than %.2f", bound), Holds: got < bound,
	})
}

// keeps checks that a rate is at least the given part of the one before.
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

// within checks that something took no longer than a bound.
func (s *scene) within(name string, took, bound time.Duration) {
	if s.Short {
		bound *= slack
	}
	s.report.add(Figure{
		Name: name, Seen: took.Round(time.Millisecond).String(),
		Must: "at most " + bound.String(), Holds: took <= bound, Timed: true,
	})
}

// ratio divides two numbers.
// It is zero if there is nothing to compare with.
func ratio(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return part / whole
}
