package audit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/money"
)

// Expectation is what balances and money in transit should add up to.
type Expectation struct {
	// Ledgers are the ledgers that are added up; empty for all.
	Ledgers []string
	// Currency is that of the accounts that are added up.
	Currency string
	// Sum is what is expected.
	Sum money.Amount
}

// checkExpectations compares the sums with what is expected, and adds a finding for each
// expectation that is not met. A sum over several clusters is in doubt: its finding is
// returned instead, or left out if transfers were committed meanwhile.
func (p *pass) checkExpectations(expected []Expectation) (doubtful []Finding) {
	for _, e := range expected {
		var sums [2]kindSums // by kind
		remote, moving := false, false
		for _, t := range p.report.Totals {
			if len(e.Ledgers) > 0 && !slices.Contains(e.Ledgers, t.Ledger) {
				continue
			}
			remote, moving = remote || p.isRemote(t.Ledger), moving || t.Moving
			if t.Currency == e.Currency {
				sums[t.Kind].add(p.totals[totalKey{t.Ledger, t.Currency, t.Kind}])
			}
		}
		s := &sums[e.Sum.Kind()]
		if other := &sums[1-e.Sum.Kind()]; !s.there && other.there {
			s = other // a sum of units may be too large to be whole, and 0 may stand for decimals
		}
		var difference money.Sum
		difference.AddSum(&s.balances)
		difference.AddSum(&s.inTransit)
		difference.Sub(e.Sum)
		if difference.Sign() == 0 || moving {
			continue
		}
		f := e.unmet(s, &difference)
		if remote {
			doubtful = append(doubtful, f)
		} else {
			p.add(f)
		}
	}
	return doubtful
}

// kindSums are the sums of one kind of amounts over several ledgers.
type kindSums struct {
	balances, inTransit money.Sum
	there               bool // there is an account, or money in transit
}

func (s *kindSums) add(t *total) {
	s.balances.AddSum(&t.balances)
	s.inTransit.AddSum(&t.inTransit)
	s.there = s.there || t.accounts > 0 || t.inTransit.Sign() != 0
}

// isRemote reports whether a ledger is on another cluster than the transfers.
func (p *pass) isRemote(ledger string) bool {
	return slices.ContainsFunc(p.reader.Collections, func(c *collections.Collection) bool {
		return c.HoldsAccounts() && c.Name == ledger && !c.SameClient
	})
}

// unmet is the finding about an expectation that is not met.
func (e Expectation) unmet(s *kindSums, difference *money.Sum) Finding {
	of := "all ledgers"
	if len(e.Ledgers) > 0 {
		of = fmt.Sprintf("ledgers %q", e.Ledgers)
	}
	f := newFinding(WrongTotal, "%s, currency %q: the balances sum to %s, and %s are in transit: that is %s off what was expected, %s",
		of, e.Currency, &s.balances, &s.inTransit, difference, e.Sum)
	f.ID = strings.Join(e.Ledgers, ", ")
	if len(e.Ledgers) == 1 {
		f.Ledger = e.Ledgers[0]
	}
	return f
}
