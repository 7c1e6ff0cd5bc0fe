package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mongotransfer/transfer"
)

// auditView is what an audit has seen, for programs.
type auditView struct {
	At                time.Time       `json:"at"`
	Accounts          int             `json:"accounts"`
	Transfers         int             `json:"transfers"`
	Unfinished        int             `json:"unfinished"`
	InTransit         transfer.Amount `json:"inTransit"`
	DecimalsInTransit transfer.Amount `json:"decimalsInTransit"`
	Ledgers           []totalView     `json:"ledgers"`
	Findings          []findingView   `json:"findings"`
	Omitted           int             `json:"omitted,omitempty"`
	LeftOut           []leftOut       `json:"leftOut,omitempty"`

	// Unexpected are the currencies of accounts for which no sum is expected, where sums
	// are.
	Unexpected []string `json:"unexpected,omitempty"`
	// Unmatched are the currencies with an expected sum that no account has.
	Unmatched []string `json:"unmatched,omitempty"`
}

type totalView struct {
	Ledger    string          `json:"ledger,omitempty"`
	Currency  string          `json:"currency,omitempty"`
	Accounts  int             `json:"accounts"`
	Total     transfer.Amount `json:"total"`
	InTransit transfer.Amount `json:"inTransit"`
	Moving    bool            `json:"moving,omitempty"`
}

type findingView struct {
	Code       string          `json:"code"`
	ID         string          `json:"id"`
	Detail     string          `json:"detail"`
	Advice     string          `json:"advice"`
	Ledger     string          `json:"ledger,omitempty"`
	Account    string          `json:"account,omitempty"`
	TransferID string          `json:"transferId,omitempty"`
	Amount     transfer.Amount `json:"amount"`
}

func (p *program) auditCommand() *cobra.Command {
	var expect []string
	var o transfer.AuditOptions
	c := p.command("audit", "check the invariants on live data",
		"Audit reads every account and every transfer, while others go on working. Findings: exit code 4.\n"+
			"docs/audit.md says what each finding means.",
		cobra.NoArgs, p.with(needDeployment, func(ctx context.Context, s *session, _ []string) error {
			for _, text := range expect {
				expected, err := expectedTotal(text)
				if err != nil {
					return err
				}
				o.Expected = append(o.Expected, expected)
			}
			report, err := s.AuditWith(ctx, o)
			if err != nil {
				return err
			}
			view := viewOfAudit(report, s.left)
			view.compare(o.Expected)
			for _, currency := range view.Unexpected {
				p.note("no sum is expected of the accounts with %s", currencyText(currency))
			}
			for _, currency := range view.Unmatched {
				p.note("a sum is expected of accounts with %s, and there are none", currencyText(currency))
			}
			if err := p.answer(view, view.write); err != nil || len(view.Findings) == 0 {
				return err
			}
			return ErrFindings
		}))
	flags := c.Flags()
	flags.StringArrayVar(&expect, "expect", nil,
		"the sum to expect, of all ledgers: CURRENCY=SUM, or =SUM for accounts without one; units, or decimals with a point")
	flags.StringVar(&o.Accounts.From, "accounts-from", "", "only accounts from this ID on")
	flags.StringVar(&o.Accounts.To, "accounts-to", "", "only accounts before this ID")
	flags.StringVar(&o.Transfers.From, "transfers-from", "", "only transfers from this ID on")
	flags.StringVar(&o.Transfers.To, "transfers-to", "", "only transfers before this ID")
	return c
}

func expectedTotal(text string) (e transfer.ExpectedTotal, err error) {
	at := strings.LastIndex(text, "=")
	if at < 0 {
		return e, usage("--expect is CURRENCY=SUM, not %q", text)
	}
	e.Currency = text[:at]
	e.Sum, err = parseAmount(text[at+1:], strings.Contains(text[at+1:], "."))
	return e, err
}

// compare finds the currencies that are expected and are not there, and those that are
// there and are not expected.
// Accounts with a misspelt currency always have the sum 0, since there are none.
func (v *auditView) compare(expected []transfer.ExpectedTotal) {
	if len(expected) == 0 {
		return
	}
	there, wanted := map[string]bool{}, map[string]bool{}
	for _, e := range expected {
		wanted[e.Currency] = true
	}
	for _, t := range v.Ledgers {
		there[t.Currency] = true
	}
	v.Unexpected, v.Unmatched = without(there, wanted), without(wanted, there)
}

// without returns the sorted names of one set that are not in another.
func without(names, others map[string]bool) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(names)), func(name string) bool { return others[name] })
}

func currencyText(currency string) string {
	if currency == "" {
		return "no currency"
	}
	return "the currency " + strconv.Quote(currency)
}

func viewOfAudit(r transfer.AuditReport, left []leftOut) auditView {
	v := auditView{
		At: r.At, Accounts: r.Accounts, Transfers: r.Transfers, Unfinished: r.Unfinished,
		InTransit: r.InTransit, DecimalsInTransit: r.DecimalsInTransit, Omitted: r.Omitted,
		Ledgers: []totalView{}, Findings: []findingView{}, LeftOut: left,
	}
	for _, total := range r.Ledgers {
		v.Ledgers = append(v.Ledgers, totalView(total))
	}
	for _, f := range r.Findings {
		f.Advice = asCommands(f.Advice)
		v.Findings = append(v.Findings, findingView(f))
	}
	return v
}

func (v auditView) write(w *page) {
	w.line("%s, %s, %d unfinished, at %s",
		count(v.Accounts, "account"), count(v.Transfers, "transfer"), v.Unfinished, timeText(v.At))
	rows := make([][]string, 0, len(v.Ledgers))
	for _, t := range v.Ledgers {
		moving := ""
		if t.Moving {
			moving = "moving"
		}
		rows = append(rows, []string{
			clean(t.Ledger), clean(t.Currency), strconv.Itoa(t.Accounts), t.Total.String(), t.InTransit.String(), moving,
		})
	}
	w.table([]string{"LEDGER", "CURRENCY", "ACCOUNTS", "TOTAL", "IN TRANSIT", ""}, rows)
	for _, f := range v.Findings {
		w.line("")
		w.line("%s: %s", f.Code, f.Detail)
		w.line("  %s", f.Advice)
	}
	if len(v.Findings) == 0 {
		w.line("no findings")
		return
	}
	more := ""
	if v.Omitted > 0 {
		more = fmt.Sprintf(", and %d more", v.Omitted)
	}
	w.line("")
	w.line("%s%s", count(len(v.Findings), "finding"), more)
}
