package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/mongotransfer/transfer"
)

// explanationView is where a transfer stands, for programs.
type explanationView struct {
	Transfer     recordView        `json:"transfer"`
	Participants []participantView `json:"participants"`
	Executor     string            `json:"executor,omitempty"`
	Since        time.Time         `json:"since,omitzero"`
	NextTry      time.Time         `json:"nextTry,omitzero"`
	Left         string            `json:"left"`
	Advice       string            `json:"advice"`
	LeftOut      []leftOut         `json:"leftOut,omitempty"`
}

type participantView struct {
	Ledger   string          `json:"ledger,omitempty"`
	Account  string          `json:"account"`
	Amount   transfer.Amount `json:"amount"`
	Currency string          `json:"currency,omitempty"`
	State    string          `json:"state"`
	Note     string          `json:"note,omitempty"`
}

func (p *program) showCommand() *cobra.Command {
	return p.command("show ID", "where a transfer stands, what is left to be done, and what to do",
		"Show explains one transfer: its state, what each account and document shows of it, who works on it, and what to do.",
		cobra.ExactArgs(1), p.with(needDeployment, func(ctx context.Context, s *session, args []string) error {
			e, err := s.Explain(ctx, args[0])
			if err != nil {
				return err
			}
			e.Advice = asCommands(e.Advice)
			view := explanationView{
				Transfer: viewOf(e.Record), Participants: []participantView{}, Executor: e.Executor,
				Since: e.Since, NextTry: e.NextTry, Left: e.Left, Advice: e.Advice, LeftOut: s.left,
			}
			for _, participant := range e.Participants {
				view.Participants = append(view.Participants, participantView(participant))
			}
			return p.answer(view, func(w *page) {
				e.Record.Failure, e.Record.Stuck = inOneLine(e.Record.Failure), inOneLine(e.Record.Stuck)
				w.lines(e.String())
				if len(view.Transfer.Metadata) > 0 {
					w.line("metadata: %s", jsonText(string(view.Transfer.Metadata)))
				}
				w.line("created:  %s", timeText(e.Record.CreatedAt))
			})
		}))
}

// inOneLine returns a failure whose message, which others have written, can't look like
// lines of an explanation.
func inOneLine(f *transfer.Failure) *transfer.Failure {
	if f == nil {
		return nil
	}
	shown := *f
	shown.Message, shown.Detail = printable(shown.Message), printable(shown.Detail)
	return &shown
}
