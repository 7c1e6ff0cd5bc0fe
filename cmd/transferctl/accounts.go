package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mongotransfer/transfer"
)

func (p *program) accountsCommand() *cobra.Command {
	var q transfer.AccountQuery
	c := p.command("accounts [ID]", "accounts by their IDs, or one account",
		"Accounts lists the accounts of a ledger, or shows one. With --json it writes one document a line.",
		cobra.MaximumNArgs(1), p.with(needDeployment, func(ctx context.Context, s *session, args []string) error {
			if len(args) == 0 {
				return p.listAccounts(ctx, s, q)
			}
			ledger, err := s.Ledger(q.Ledger)
			if err != nil {
				return err
			}
			account, err := ledger.Get(ctx, args[0])
			if err != nil {
				return err
			}
			view := viewOfAccount(account)
			return p.answer(view, func(w *page) {
				w.table(accountHeader(), [][]string{accountRow(account, nil)})
				if len(view.Metadata) > 0 {
					w.line("metadata: %s", jsonText(string(view.Metadata)))
				}
			})
		}))
	flags := c.Flags()
	flags.StringVar(&q.Ledger, "ledger", "", "the ledger (default the default ledger)")
	flags.StringVar(&q.Currency, "currency", "", "only in this currency")
	flags.StringVar(&q.Beyond, "beyond", "", "go on behind the account with this ID")
	flags.IntVar(&q.Limit, "limit", defaultLimit, "how many at most; 0: all")
	return c
}

// listAccounts writes the accounts that a query selects. A document that is no account is
// reported, and the rest follows.
func (p *program) listAccounts(ctx context.Context, s *session, q transfer.AccountQuery) error {
	var rows [][]string
	last := ""
	for account, err := range s.Accounts(ctx, q) {
		if err != nil && (!errors.Is(err, transfer.ErrAmountKind) || account.ID == "") {
			return err
		}
		last = account.ID
		if p.flags.json {
			view := viewOfAccount(account)
			if err != nil {
				view.Error = err.Error()
			}
			if err := writeJSON(p.out, view); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, accountRow(account, err))
	}
	if p.flags.json {
		return nil
	}
	w := &page{out: p.out}
	w.table(accountHeader(), rows)
	if q.Limit > 0 && len(rows) >= q.Limit {
		p.note("there may be more: --limit, or --beyond %q", last)
	}
	return w.err
}

func accountHeader() []string {
	return []string{"ID", "CURRENCY", "AVAILABLE", "POSTED", "INCOMING", "FLOOR", "REMARK"}
}

func accountRow(a transfer.Account, err error) []string {
	if err != nil {
		return []string{clean(a.ID), "", "", "", "", "", err.Error()}
	}
	floor := a.Floor.String()
	if a.NoFloor {
		floor = "none"
	}
	var remarks []string
	if a.Frozen {
		remarks = append(remarks, "frozen")
	}
	if a.Closed {
		remarks = append(remarks, "closed")
	}
	return []string{
		clean(a.ID), clean(a.Currency), a.Available.String(), a.Posted.String(), a.Incoming.String(), floor, strings.Join(remarks, ", "),
	}
}
