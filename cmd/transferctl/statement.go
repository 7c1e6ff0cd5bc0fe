package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"github.com/mongotransfer/transfer"
)

// entryView is an entry of a statement, for programs.
type entryView struct {
	TransferID string          `json:"transferID"`
	At         time.Time       `json:"at"`
	Amount     transfer.Amount `json:"amount"`
	Balance    transfer.Amount `json:"balance"`
	Legs       []legView       `json:"legs"`
	Reverses   string          `json:"reverses,omitempty"`
	Metadata   json.RawMessage `json:"metadata,omitempty"`
}

func viewOfEntry(e transfer.Entry) entryView {
	v := entryView{TransferID: e.TransferID, At: e.At, Amount: e.Amount, Balance: e.Balance, Legs: []legView{}, Reverses: e.Reverses}
	for _, leg := range e.Legs {
		v.Legs = append(v.Legs, legView(leg))
	}
	if len(e.Metadata) > 0 {
		v.Metadata = metadataOf(e.Metadata)
	}
	return v
}

// statementFlags are the flags of statement.
type statementFlags struct {
	ledger, after, before, beyond string
	query                         transfer.StatementQuery
}

func (p *program) statementCommand() *cobra.Command {
	f := statementFlags{query: transfer.StatementQuery{NewestFirst: true}}
	c := p.command("statement ID", "what was moved on an account, newest first, with the balance after each transfer",
		"Statement lists what was committed on an account. Holds are no entries, and what is held counts in the balances.\n"+
			"With --json it writes one document a line.",
		cobra.ExactArgs(1), p.with(needDeployment, func(ctx context.Context, s *session, args []string) error {
			if err := f.complete(ctx, s); err != nil {
				return err
			}
			ledger, err := s.Ledger(f.ledger)
			if err != nil {
				return err
			}
			if _, err := ledger.Get(ctx, args[0]); err != nil {
				return err
			}
			return p.statement(ctx, ledger, args[0], f.query)
		}))
	flags := c.Flags()
	flags.StringVar(&f.ledger, "ledger", "", "the account's ledger (default the default ledger)")
	flags.StringVar(&f.after, "after", "", "only committed after this time (RFC 3339), or within this duration, such as 2h")
	flags.StringVar(&f.before, "before", "", "only committed before this time, or longer ago than this duration")
	flags.StringVar(&f.beyond, "beyond", "", "go on behind the transfer with this ID")
	flags.IntVar(&f.query.Limit, "limit", defaultLimit, "how many at most; 0: all")
	return c
}

// complete makes a query of the flags.
func (f *statementFlags) complete(ctx context.Context, s *session) error {
	now, err := s.serverTime(ctx) // by which transfers are committed
	if err != nil {
		return err
	}
	if f.query.After, err = timeFlag("--after", f.after, now, -1); err != nil {
		return err
	}
	if f.query.Before, err = timeFlag("--before", f.before, now, -1); err != nil || f.beyond == "" {
		return err
	}
	last, err := s.Get(ctx, f.beyond)
	if err != nil {
		return err
	}
	if last.CommittedAt.IsZero() {
		return usage("--beyond: %q is not committed, and so in no statement", f.beyond)
	}
	f.query.Beyond = transfer.Entry{TransferID: last.ID, At: last.CommittedAt}
	return nil
}

// statement writes the entries that a query selects.
func (p *program) statement(ctx context.Context, ledger *transfer.Ledger, id string, q transfer.StatementQuery) error {
	var rows [][]string
	last := ""
	for e, err := range ledger.Statement(ctx, id, q) {
		if err != nil {
			return err
		}
		if p.flags.json {
			if err := writeJSON(p.out, viewOfEntry(e)); err != nil {
				return err
			}
			continue
		}
		remark := ""
		if e.Reverses != "" {
			remark = "reverses " + clean(e.Reverses)
		}
		last = e.TransferID
		rows = append(rows, []string{
			clean(e.TransferID), timeText(e.At), e.Amount.String(), e.Balance.String(), movesText(e.Legs), remark,
		})
	}
	if p.flags.json {
		return nil
	}
	w := &page{out: p.out}
	w.table([]string{"ID", "COMMITTED", "AMOUNT", "BALANCE", "MOVES", "REMARK"}, rows)
	if q.Limit > 0 && len(rows) == q.Limit {
		p.note("there may be more: --limit, or --beyond %q", last)
	}
	return w.err
}
