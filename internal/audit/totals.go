package audit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mongotransfer/transfer/internal/money"
)

// Total is what the accounts of one ledger and currency have, in amounts of one kind.
type Total struct {
	// Ledger and Currency say whose sums these are.
	Ledger, Currency string
	// Kind is the kind of the amounts.
	Kind money.Kind
	// Accounts counts the accounts.
	Accounts int
	// Balances is the sum of the balances.
	Balances money.Amount
	// InTransit is the money in transit.
	InTransit money.Amount
	// Moving says that the sums may be off: the ledger is on another cluster than the
	// transfers, and some of these were committed between the snapshots of the two.
	Moving bool
}

// totalKey says whose sums a total has.
type totalKey struct {
	ledger, currency string
	kind             money.Kind
}

// total is a Total while it is being added up.
type total struct {
	accounts            int
	balances, inTransit money.Sum
}

// totalOf returns the sums of one kind of amounts. The two kinds are never added up: 5
// points and 5.00 dollars are not 10 of anything.
func (p *pass) totalOf(ledger, currency string, kind money.Kind) *total {
	key := totalKey{ledger, currency, kind}
	t := p.totals[key]
	if t == nil {
		t = &total{}
		p.totals[key] = t
	}
	return t
}

// sumUp puts the totals into the report, by ledger, currency and kind.
func (p *pass) sumUp(ctx context.Context) error {
	moving, err := p.movingLedgers(ctx)
	if err != nil {
		return err
	}
	p.countUncountable()
	var transit [2]money.Sum // by kind
	for key, t := range p.totals {
		if key.currency == "" && t.accounts == 0 && p.hasOther(key) {
			continue
		}
		transit[key.kind].AddSum(&t.inTransit)
		p.report.Totals = append(p.report.Totals, Total{
			Ledger: key.ledger, Currency: key.currency, Kind: key.kind,
			Accounts: t.accounts, Moving: moving[key.ledger],
			Balances:  p.amount(key.ledger, fmt.Sprintf("the balances of ledger %q", key.ledger), &t.balances),
			InTransit: p.amount(key.ledger, fmt.Sprintf("the money in transit of ledger %q", key.ledger), &t.inTransit),
		})
	}
	first, other := &transit[money.Whole], &transit[money.Decimal]
	if first.Sign() == 0 {
		first, other = other, first
	}
	p.report.InTransit = p.amount("", "all money in transit", first)
	p.report.OtherInTransit = p.amount("", "all money in transit", other)
	slices.SortFunc(p.report.Totals, func(x, y Total) int {
		return cmp.Or(strings.Compare(x.Ledger, y.Ledger), strings.Compare(x.Currency, y.Currency), cmp.Compare(x.Kind, y.Kind))
	})
	return nil
}

// movingLedgers returns the ledgers on other clusters on which a transfer was committed
// since the pass began.
func (p *pass) movingLedgers(ctx context.Context) (map[string]bool, error) {
	moving := map[string]bool{}
	for _, cluster := range p.reader.otherClusters() {
		for _, c := range cluster {
			if !c.HoldsAccounts() {
				continue
			}
			var err error
			if moving[c.Name], err = p.reader.committedSince(ctx, p.report.At, c.Name); err != nil {
				return nil, fmt.Errorf("look for what was committed meanwhile: %w", err)
			}
		}
	}
	return moving, nil
}

// countUncountable counts the documents whose balance is no exact number, and so of no
// kind, among the other accounts of their ledger and currency.
func (p *pass) countUncountable() {
	for key, n := range p.uncountable {
		exact := totalKey{key.ledger, key.currency, money.Decimal}
		if whole := p.totals[key]; p.totals[exact] != nil && (whole == nil || whole.accounts == 0) {
			key = exact
		}
		p.totalOf(key.ledger, key.currency, key.kind).accounts += n
	}
}

// amount returns a sum as an amount, which has 34 digits at most.
func (p *pass) amount(ledger, what string, sum *money.Sum) money.Amount {
	amount, err := sum.Amount()
	if err != nil {
		f := newFinding(LongTotal, "%s: %s", what, sum)
		f.ID, f.Ledger = ledger, ledger
		p.add(f)
	}
	return amount
}

// hasOther reports whether a ledger has totals in another currency.
func (p *pass) hasOther(key totalKey) bool {
	for other := range p.totals {
		if other.ledger == key.ledger && other != key {
			return true
		}
	}
	return false
}
