package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
)

func (p *program) reverseCommand() *cobra.Command {
	var r transfer.Reversal
	var amount string
	c := p.command("reverse --of ID --id ID (--all | --amount AMOUNT)", "move money of a transfer back, by a new transfer",
		"Reverse takes back all that is left of a transfer, or an amount of it. It asks first.\n"+
			"The same --id again has the same outcome, and moves nothing twice.",
		cobra.NoArgs, p.with(needDeployment, func(ctx context.Context, s *session, _ []string) error {
			original, err := s.Get(ctx, r.Of)
			if err != nil {
				return err
			}
			what := "all that is left"
			if !r.All {
				what = amount
				if r.Amount, err = amountLike(original, amount); err != nil {
					return err
				}
			}
			if err := p.confirm(ctx, "take back %s of %q, which moved %s; the reversal is %q",
				what, original.ID, movesText(original.Legs), r.ID); err != nil {
				return err
			}
			rec, err := s.Reverse(ctx, r)
			if err != nil {
				return err
			}
			return p.answer(viewOf(rec), func(w *page) { w.table(rowHeader(), [][]string{row(rec)}) })
		}))
	flags := c.Flags()
	flags.StringVar(&r.Of, "of", "", "the transfer to reverse")
	flags.StringVar(&r.ID, "id", "", "the ID of the reversal, which is a transfer of its own")
	flags.BoolVar(&r.All, "all", false, "all that is left")
	flags.StringVar(&amount, "amount", "", "a part, of a transfer between two accounts")
	needFlags(c, "of", "id")
	c.MarkFlagsMutuallyExclusive("all", "amount")
	c.MarkFlagsOneRequired("all", "amount")
	return c
}

// amountLike reads an amount of the kind that a transfer moves: 12 may be units or a
// decimal.
func amountLike(rec transfer.Record, text string) (transfer.Amount, error) {
	decimal := false
	for _, leg := range rec.Legs {
		kind, _, err := leg.Amount.MarshalBSONValue()
		decimal = decimal || err == nil && bson.Type(kind) == bson.TypeDecimal128
	}
	return parseAmount(text, decimal)
}

// parseAmount reads an amount of a kind.
func parseAmount(text string, decimal bool) (transfer.Amount, error) {
	if decimal {
		a, err := transfer.ParseDecimal(text)
		if err != nil {
			return a, usage("the amount: %w", err)
		}
		return a, nil
	}
	units, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return transfer.Amount{}, usage("the amount: whole units are wanted, not %q", text)
	}
	return transfer.Units(units), nil
}
