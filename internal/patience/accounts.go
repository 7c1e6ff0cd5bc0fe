package patience

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/wire"
)

// place is an account. It can be compared.
type place struct{ ledger, account string }

func placeOf(leg document.Leg) place { return place{leg.Ledger, leg.Account} }

// sight is what a look has shown of the accounts of a transfer.
type sight map[place]document.View

// read reads the accounts of a transfer as a majority has stored them. They are not known
// where a ledger is not registered here, or is another collection: who runs the transfer
// says so.
func (p *Patience) read(ctx context.Context, t document.Transfer) (seen sight, known bool, err error) {
	ids := map[string][]string{}
	for _, leg := range t.Legs {
		if !p.catalog.HasLedger(leg.Ledger) || p.catalog.Namespace(leg.Ledger) != leg.Namespace {
			return nil, false, nil
		}
		ids[leg.Ledger] = append(ids[leg.Ledger], leg.Account)
	}
	seen = make(sight, len(t.Legs))
	for ledger, accounts := range ids {
		views, err := p.accounts[ledger].ask(ctx, accounts)
		if err != nil {
			return nil, false, err
		}
		for i, account := range accounts {
			seen[place{ledger, account}] = views[i]
		}
	}
	return seen, true, nil
}

// readerOf returns the read of one ledger's accounts for many transfers.
func (p *Patience) readerOf(ledger *collections.Collection) func(context.Context, [][]string) ([][]document.View, error) {
	return func(ctx context.Context, asked [][]string) ([][]document.View, error) {
		stored, err := p.find(ctx, ledger, asked, options.Find().SetProjection(ledger.Projection()))
		if err != nil {
			return nil, err
		}
		answers := make([][]document.View, len(asked))
		for i, accounts := range asked {
			answers[i] = make([]document.View, len(accounts))
			for j, account := range accounts {
				answers[i][j] = ledger.Fields.View(stored[account])
			}
		}
		return answers, nil
	}
}

// find reads accounts, each once. One that does not exist is missing from the result.
func (p *Patience) find(
	ctx context.Context, ledger *collections.Collection, asked [][]string, find *options.FindOptionsBuilder,
) (map[string]bson.Raw, error) {
	known := map[string]bool{}
	var keys bson.A
	for _, accounts := range asked {
		for _, account := range accounts {
			if known[account] {
				continue
			}
			known[account] = true
			if key, err := p.catalog.IDs.Encode(account); err == nil { // otherwise there is none
				keys = append(keys, key)
			}
		}
	}
	stored := make(map[string]bson.Raw, len(keys))
	for some := range wire.Portions(keys, wire.MaxAnswerBytes, func(any) int { return wire.ParticipantBytes }) {
		found, err := wire.FindByID(ctx, ledger.Majority, some, find)
		if err != nil {
			return nil, err
		}
		for _, raw := range found {
			if id, err := p.catalog.IDs.Decode(raw.Lookup("_id")); err == nil {
				stored[id] = raw
			}
		}
	}
	return stored, nil
}

// refuse reports whether an account would refuse a transfer for another reason than its
// funds: one that time doesn't remove, or that somebody has set on purpose. The transfer
// is refused at once then, as any other is. One that is missing has no balance of any
// kind.
func (s sight) refuse(t document.Transfer) bool {
	for _, leg := range t.Legs {
		view := s[placeOf(leg)]
		if view.Closed() || view.Frozen() || !view.HasCurrency(t.CurrencyOf(leg)) || !view.HasMap() {
			return true
		}
		if kind, _, _ := view.Floor().BoundsOf(leg.Amount).Judge(view.StoredBalance(), leg.Amount); !kind {
			return true
		}
	}
	return false
}

// lacking returns the legs whose accounts have too little, where so much of each account
// is promised to others.
func (s sight) lacking(t document.Transfer, promised func(place, document.View) []money.Amount) []document.Leg {
	var lacking []document.Leg
	for _, leg := range t.Legs {
		if leg.Amount.Sign() >= 0 {
			continue
		}
		view := s[placeOf(leg)]
		if !canPay(view, leg.Amount, promised(placeOf(leg), view)) {
			lacking = append(lacking, leg)
		}
	}
	return lacking
}

// canPay reports whether an account has enough for a debit after others.
func canPay(view document.View, debit money.Amount, others []money.Amount) bool {
	for _, other := range others {
		var err error
		if debit, err = debit.Add(other); err != nil {
			return false
		}
	}
	kind, funds, _ := view.Floor().BoundsOf(debit).Judge(view.StoredBalance(), debit)
	return kind && funds
}
