package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/mongotransfer/transfer"
)

// freezeCommand returns freeze or unfreeze.
func (p *program) freezeCommand(verb string, frozen bool) *cobra.Command {
	var ledger string
	means := "no new transfer can touch it; what is under way on it is finished"
	if !frozen {
		means = "transfers can touch it again"
	}
	c := p.command(verb+" ID", verb+" an account: "+means,
		"An account that is frozen refuses each new transfer, until it is unfrozen; what is under way on it is finished.\n"+
			"It asks first.",
		cobra.ExactArgs(1), p.with(needDeployment, func(ctx context.Context, s *session, args []string) error {
			accounts, err := s.Ledger(ledger)
			if err != nil {
				return err
			}
			account, err := accounts.Get(ctx, args[0])
			if err != nil {
				return err
			}
			if account.Frozen != frozen {
				if err := p.confirm(ctx, "%s the account %q, on which %s are available: %s", verb, account.ID, account.Available, means); err != nil {
					return err
				}
				if account, err = accounts.Update(ctx, args[0], transfer.AccountChange{Frozen: &frozen}); err != nil {
					return err
				}
			}
			return p.answer(viewOfAccount(account), func(w *page) {
				w.table(accountHeader(), [][]string{accountRow(account, nil)})
			})
		}))
	c.Flags().StringVar(&ledger, "ledger", "", "the account's ledger (default the default ledger)")
	return c
}
