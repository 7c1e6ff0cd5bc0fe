package main

import (
	"context"
	"fmt"
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
			if !r.All {
				if r.Amount, err = amountLike(original, amount); err != nil {
					return err
				}
			}
			if err := p.confirmReversal(ctx, s, original, r); err != nil {
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

// confirmReversal asks whether to move money back, and says how much. It asks nothing
// where the library will move nothing, because nothing is left, or too little: that never
// grows again.
func (p *program) confirmReversal(ctx context.Context, s *session, original transfer.Record, r transfer.Reversal) error {
	if original.State != transfer.StateSuccess && original.State != transfer.StateCommitted { // for that one it waits
		return fmt.Errorf("transfer %q: %w: it is in state %s", original.ID, transfer.ErrNotReversible, original.State)
	}
	moved := original.Moved()
	var what, before string
	var err error
	switch {
	case original.ReversedBy != "":
	case len(moved) == 2:
		what, before, err = backBetweenTwo(moved, original.Reversed, r)
	case r.All && len(moved) > 0:
		what, before, err = s.backOfMany(ctx, original.ID)
	}
	if err != nil || what == "" {
		return err
	}
	return p.confirm(ctx, "take back %s of %q, which moved %s%s; the reversal is %q", what, original.ID, movesText(moved), before, r.ID)
}

// backBetweenTwo returns what a reversal takes back of a transfer between two accounts,
// "" if nothing, and what was taken back before.
func backBetweenTwo(moved []transfer.Leg, reversed transfer.Amount, r transfer.Reversal) (what, before string, err error) {
	left := moved[0].Amount
	if left.Sign() < 0 {
		left = moved[1].Amount
	}
	if !reversed.IsZero() {
		before = fmt.Sprintf(", and of which %s was taken back before", reversed)
		if left, err = left.Sub(reversed); err != nil {
			return "", "", err
		}
	}
	amount := r.Amount
	if r.All {
		amount = left
	}
	if amount.Sign() <= 0 || amount.Cmp(left) > 0 {
		return "", "", nil
	}
	return amount.String(), before, nil
}

// backOfMany returns what a reversal takes back of a transfer between several accounts,
// and how many took back a part of it before.
func (s *session) backOfMany(ctx context.Context, original string) (what, before string, err error) {
	parts, err := s.Count(ctx, transfer.Query{Reverses: original, States: []transfer.State{transfer.StateSuccess}})
	if err != nil || parts == 0 {
		return "all", "", err
	}
	return "what is left", fmt.Sprintf(", and of which %s took back a part", count(parts, "reversal")), nil
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
