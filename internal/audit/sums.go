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
	Ledger, Currency string
	Kind             money.Kind
	Accounts         int
	Balances         money.Amount
	InTransit        money.Amount
	// Moving: the ledger is on another cluster than the transfers, and some of them were committed between the snapshots of the two, so that
	// the sums may be off by these.
	Moving bool
}

// Expectation is what balances and money in transit should add up to.
type Expectation struct {
	Ledgers  []string
	Currency string
	Sum      money.Amount
}

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
func (a *auditor) totalOf(ledger, currency string, kind money.Kind) *total {
	key := totalKey{ledger, currency, kind}
	t := a.totals[key]
	if t == nil {
		t = &total{}
		a.totals[key] = t
	}
	return t
}

// transit counts what a marker stands for.
func (a *auditor) transit(p *Document, t *Transfer) {
	if t == nil || t.Err != nil {
		return
	}
	if amount, moving := inTransit(a.atlas, p, t); moving {
		a.totalOf(p.Place.Name, t.Currency, amount.Kind()).inTransit.Add(amount)
	}
}

// sumUp puts the totals into the report, by ledger, currency and kind.
func (a *auditor) sumUp(ctx context.Context) error {
	moving := map[string]bool{}
	for _, cluster := range a.atlas.Away() {
		for _, place := range cluster {
			if !place.Accounts {
				continue
			}
			var err error
			if moving[place.Name], err = a.atlas.CommittedSince(ctx, a.report.At, place.Name); err != nil {
				return fmt.Errorf("look for what was committed meanwhile: %w", err)
			}
		}
	}
	a.countOdd()
	var transit [2]money.Sum // by kind
	for key, t := range a.totals {
		if key.currency == "" && t.accounts == 0 && a.hasOther(key) {
			continue
		}
		transit[key.kind].AddSum(&t.inTransit)
		a.report.Totals = append(a.report.Totals, Total{
			Ledger: key.ledger, Currency: key.currency, Kind: key.kind, Accounts: t.accounts, Moving: moving[key.ledger],
			Balances: a.amount(key.ledger, "balances", &t.balances), InTransit: a.amount(key.ledger, "money in transit", &t.inTransit),
		})
	}
	whole, exact := &transit[money.Whole], &transit[money.Decimal]
	if whole.Sign() == 0 {
		whole, exact = exact, whole
	}
	a.report.InTransit = a.amount("", "all money in transit", whole)
	a.report.OtherInTransit = a.amount("", "all money in transit", exact)
	slices.SortFunc(a.report.Totals, func(x, y Total) int {
		return cmp.Or(strings.Compare(x.Ledger, y.Ledger), strings.Compare(x.Currency, y.Currency), cmp.Compare(x.Kind, y.Kind))
	})
	return nil
}

// countOdd counts the documents whose balance is no exact number, and so of no kind, with
// the other accounts of their ledger and currency.
func (a *auditor) countOdd() {
	for key, n := range a.odd {
		exact := totalKey{key.ledger, key.currency, money.Decimal}
		if whole := a.totals[key]; a.totals[exact] != nil && (whole == nil || whole.accounts == 0) {
			key = exact
		}
		a.totalOf(key.ledger, key.currency, key.kind).accounts += n
	}
}

// amount returns a sum as an amount, which has 34 digits at most.
func (a *auditor) amount(ledger, what string, sum *money.Sum) money.Amount {
	amount, err := sum.Amount()
	if err != nil {
		f := newFinding(LongTotal, "the %s of ledger %q: %s", what, ledger, sum)
		f.ID, f.Ledger = ledger, ledger
		a.add(f)
	}
	return amount
}

// hasOther reports whether a ledger has totals in another currency.
func (a *auditor) hasOther(key totalKey) bool {
	for other := range a.totals {
		if other.ledger == key.ledger && other != key {
			return true
		}
	}
	return false
}

// compare holds the sums against the expectations, and adds a finding for each that is not met. It returns those that are in doubt
// instead: of several clusters, none of which moved.
func (a *auditor) compare(expected []Expectation) (doubtful []Finding) {
	for _, e := range expected {
		var sums [2]kindSums // by kind
		away, moving := false, false
		for _, told := range a.report.Totals {
			if len(e.Ledgers) > 0 && !slices.Contains(e.Ledgers, told.Ledger) {
				continue
			}
			away, moving = away || a.isAway(told.Ledger), moving || told.Moving
			if told.Currency == e.Currency {
				sums[told.Kind].add(a.totals[totalKey{told.Ledger, told.Currency, told.Kind}])
			}
		}
		s := &sums[e.Sum.Kind()]
		if other := &sums[1-e.Sum.Kind()]; !s.there && other.there {
			s = other // a sum of units may be too large for any, and none may be meant by 0
		}
		var sum money.Sum
		sum.AddSum(&s.balances)
		sum.AddSum(&s.transit)
		sum.Sub(e.Sum)
		if sum.Sign() == 0 || moving {
			continue
		}
		f := e.unmet(&s.balances, &s.transit, &sum)
		if away {
			doubtful = append(doubtful, f)
		} else {
			a.add(f)
		}
	}
	return doubtful
}

// kindSums are the sums of one kind of amounts over several ledgers.
type kindSums struct {
	balances, transit money.Sum
	there             bool // there is an account, or money in transit
}

func (s *kindSums) add(t *total) {
	s.balances.AddSum(&t.balances)
	s.transit.AddSum(&t.inTransit)
	s.there = s.there || t.accounts > 0 || t.inTransit.Sign() != 0
}

func (a *auditor) isAway(ledger string) bool {
	return slices.ContainsFunc(a.atlas.Places, func(p *Place) bool {
		return p.Accounts && p.Name == ledger && !p.Home
	})
}

func (e Expectation) unmet(balances, transit, difference *money.Sum) Finding {
	of := "all ledgers"
	if len(e.Ledgers) > 0 {
		of = fmt.Sprintf("ledgers %q", e.Ledgers)
	}
	f := newFinding(WrongTotal, "%s, currency %q: the balances sum to %s, and %s are in transit: that is %s off what was expected, %s",
		of, e.Currency, balances, transit, difference, e.Sum)
	f.ID = strings.Join(e.Ledgers, ", ")
	if len(e.Ledgers) == 1 {
		f.Ledger = e.Ledgers[0]
	}
	return f
}
