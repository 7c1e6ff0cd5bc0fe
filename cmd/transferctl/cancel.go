package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/mongotransfer/transfer"
)

func (p *program) cancelCommand() *cobra.Command {
	var reason string
	c := p.command("cancel ID", "roll back a transfer that is not committed yet",
		"Cancel rolls back a transfer that waits for a worker, is prepared, or is held. It asks first.",
		cobra.ExactArgs(1), p.with(needDeployment, func(ctx context.Context, s *session, args []string) error {
			rec, err := s.Get(ctx, args[0])
			if err != nil {
				return err
			}
			if rec.State != transfer.StateFail && !rec.State.Decided() { // else Cancel changes nothing, and says why
				if err := p.confirm(ctx, "cancel %q, which is %s: %s", rec.ID, stateOf(rec), movesText(rec.Legs)); err != nil {
					return err
				}
			}
			if rec, err = s.Cancel(ctx, args[0], reason); err != nil {
				return err
			}
			return p.answer(viewOf(rec), func(w *page) { w.table(rowHeader(), [][]string{row(rec)}) })
		}))
	c.Flags().StringVar(&reason, "reason", "by transferctl", "why, for who reads the transfer later")
	return c
}

func (p *program) redeliverCommand() *cobra.Command {
	return p.command("redeliver ID", "have the undelivered events of a transfer tried again",
		"Redeliver has the events of a transfer tried again that were given up, or that wait for another try. It asks first.\n"+
			"The workers of the service deliver them.",
		cobra.ExactArgs(1), p.with(needDeployment, func(ctx context.Context, s *session, args []string) error {
			rec, err := s.Get(ctx, args[0])
			if err != nil {
				return err
			}
			if len(rec.Undelivered) == 0 {
				return p.answer(viewOf(rec), func(w *page) { w.line("nothing to deliver: no event of %q is undelivered", rec.ID) })
			}
			if err := p.confirm(ctx, "have %s of %q tried again", count(len(rec.Undelivered), "event"), rec.ID); err != nil {
				return err
			}
			if err := s.Redeliver(ctx, args[0]); err != nil {
				return err
			}
			if rec, err = s.Get(ctx, args[0]); err != nil {
				return err
			}
			return p.answer(viewOf(rec), func(w *page) { w.line("due: %s of %q", count(len(rec.Undelivered), "event"), rec.ID) })
		}))
}
