package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mongotransfer/transfer"
)

// repairView is what was repaired, for programs.
type repairView struct {
	Repaired string `json:"repaired"`
	Ledger   string `json:"ledger,omitempty"`
	Account  string `json:"account,omitempty"`
	Transfer string `json:"transfer,omitempty"`
}

func (v repairView) write(w *page) {
	done := "as it should be" // the library doesn't say whether it was so before
	if v.Repaired == "marker" {
		done = "repaired"
	}
	w.line("%s: %s", done, strings.Join(strings.Fields(v.Repaired+" "+clean(v.Account)+" "+clean(v.Transfer)), " "))
}

func (p *program) repairCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "repair", Short: "repair what an audit has found",
		Long: "Repair does what the advice of an audit's finding says. Each repair requires what was found, and asks first.",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return usage("repair what? marker, pending or open") },
	}
	c.AddCommand(p.repairMarkerCommand(), p.repairPendingCommand(), p.repairOpenCommand())
	return c
}

func (p *program) repairMarkerCommand() *cobra.Command {
	var r transfer.MarkerRepair
	var amount, decision string
	c := p.command("marker", "remove a marker that no transfer will ever settle",
		"Repair marker removes a marker, and keeps the balance or pays its amount in: docs/audit.md says how to decide.",
		accountByFlag, p.with(needDeployment, func(ctx context.Context, s *session, _ []string) error {
			switch decision {
			case "keep-balance":
				r.Decision = transfer.KeepBalance
			case "pay-in":
				r.Decision = transfer.PayIn
			default:
				return usage("--decision is keep-balance or pay-in, not %q", decision)
			}
			var err error
			if r.Amount, err = parseAmount(amount, strings.Contains(amount, ".")); err != nil {
				return err
			}
			if err := p.confirm(ctx, "remove the marker of %q, %s, from account %q, and %s",
				r.TransferID, r.Amount, r.Account, decision); err != nil {
				return err
			}
			if err := s.RepairMarker(ctx, r); err != nil {
				return err
			}
			view := repairView{Repaired: "marker", Ledger: r.Ledger, Account: r.Account, Transfer: r.TransferID}
			return p.answer(view, view.write)
		}))
	flags := c.Flags()
	flags.StringVar(&r.Ledger, "ledger", "", "the account's ledger")
	flags.StringVar(&r.Account, "account", "", "the account")
	flags.StringVar(&r.TransferID, "transfer", "", "the transfer that has left the marker")
	flags.StringVar(&amount, "amount", "", "the marker's amount with its sign; decimals have a point")
	flags.StringVar(&decision, "decision", "", "keep-balance or pay-in")
	flags.StringVar(&r.Reason, "reason", "by transferctl", "why, for later readers")
	needFlags(c, "account", "transfer", "amount", "decision")
	return c
}

func (p *program) repairPendingCommand() *cobra.Command {
	var ledger, account string
	c := p.command("pending", "make an empty array of markers a map",
		"Repair pending makes an account's empty array of markers the empty map that it should be.",
		accountByFlag, p.with(needDeployment, func(ctx context.Context, s *session, _ []string) error {
			if err := p.confirm(ctx, "make the markers of account %q a map", account); err != nil {
				return err
			}
			if err := s.RepairPending(ctx, ledger, account); err != nil {
				return err
			}
			view := repairView{Repaired: "pending", Ledger: ledger, Account: account}
			return p.answer(view, view.write)
		}))
	c.Flags().StringVar(&ledger, "ledger", "", "the account's ledger")
	c.Flags().StringVar(&account, "account", "", "the account")
	needFlags(c, "account")
	return c
}

func (p *program) repairOpenCommand() *cobra.Command {
	return p.command("open ID", "make a transfer's flag open what its state says",
		"Repair open lets recovery find a transfer as long as it is unfinished, and no longer.",
		cobra.ExactArgs(1), p.with(needDeployment, func(ctx context.Context, s *session, args []string) error {
			if err := p.confirm(ctx, "set the flag open of transfer %q as its state says", args[0]); err != nil {
				return err
			}
			if err := s.RepairOpen(ctx, args[0]); err != nil {
				return err
			}
			view := repairView{Repaired: "open", Transfer: args[0]}
			return p.answer(view, view.write)
		}))
}

// accountByFlag refuses arguments: an ID would most likely be the account's.
func accountByFlag(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("--account names the account, not %q", args[0])
	}
	return nil
}

// needFlags makes flags required that the command has.
func needFlags(c *cobra.Command, flags ...string) {
	for _, flag := range flags {
		cobra.CheckErr(c.MarkFlagRequired(flag))
	}
}
