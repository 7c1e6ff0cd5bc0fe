package transfer

import (
	"context"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
)

// fixAmount fixes what a transfer moves that is to move what is there, before anything is stored. Where nothing is there, or the account
// is none that could pay, it is left at what was asked for, and refused when it is prepared.
func (c *Coordinator) fixAmount(ctx context.Context, t *document.Transfer) error {
	if t.AtMost == nil {
		return nil
	}
	var (
		payer     = t.Legs[0]
		spendable money.Amount
		known     bool
	)
	err := c.read(ctx, func(ctx context.Context) (done bool, err error) {
		spendable, known, err = c.accounts.Spendable(ctx, payer.Ledger, payer.Account)
		return err == nil, err
	})
	if err != nil {
		return err
	}
	if !known || spendable.Kind() != t.AtMost.Kind() || spendable.Sign() <= 0 || spendable.Cmp(*t.AtMost) >= 0 {
		return nil
	}
	most := *t.AtMost
	t.AtMost = &most
	t.Legs[0].Amount, t.Legs[1].Amount = spendable.Neg(), spendable
	return nil
}

// capped reports whether what a stored transfer moves is no more than it may move at most, from one account to the other.
func capped(t document.Transfer) bool {
	if t.AtMost == nil {
		return true
	}
	if len(t.Legs) != 2 {
		return false
	}
	from, to := t.Legs[0].Amount, t.Legs[1].Amount
	return from.Kind() == to.Kind() && to.Kind() == t.AtMost.Kind() && to.Sign() > 0 && to.Cmp(*t.AtMost) <= 0 && from.Neg().Cmp(to) == 0
}
