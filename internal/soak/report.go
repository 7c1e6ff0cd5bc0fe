package soak

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Report is the result of a run.
type Report struct {
	// Faults counts the faults by kind, and what else has happened.
	Faults map[string]int
	// Usage are lines that say what the processes needed over the time.
	Usage []string
	// Answers counts the final answers by outcome.
	Answers map[string]int
	// Findings are the findings of the check.
	Findings []string
	// Stolen are the findings after money was stolen, if the run was to steal some.
	Stolen []string
}

// Print prints what the processes needed, the counts, and the number of findings.
func (r Report) Print(out io.Writer) error {
	for _, line := range r.Usage {
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	for _, counts := range []map[string]int{r.Faults, r.Answers} {
		for _, what := range slices.Sorted(maps.Keys(counts)) {
			if _, err := fmt.Fprintf(out, "%8d %s\n", counts[what], what); err != nil {
				return err
			}
		}
	}
	_, err := fmt.Fprintf(out, "%8d findings\n", len(r.Findings))
	return err
}

// Err returns an error if anything is wrong, or if the run proves nothing because it has
// missed something.
func (r Report) Err() error {
	if len(r.Findings) > 0 {
		return fmt.Errorf("%d findings:\n%s", len(r.Findings), strings.Join(r.Findings, "\n"))
	}
	var missing []error
	for _, what := range []string{
		"killed", "restarted", "right granted", "requests that met the missing right", "events delivered", "pages of the window",
		"audits while the processes worked",
	} {
		if r.Faults[what] == 0 {
			missing = append(missing, fmt.Errorf("this never happened: %s", what))
		}
	}
	for _, what := range []string{
		"transfer 201 ", "transfer 422 insufficientFunds", "schedule 202 ", "hold 202 ", "post 200 ", "void 200 ", unanswered, repeated,
	} {
		if r.Answers[what] == 0 {
			missing = append(missing, fmt.Errorf("there was no answer: %s", what))
		}
	}
	return errors.Join(missing...)
}
