package patience

import (
	"slices"
	"sync"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
)

// promises are the debits of the transfers that were admitted in this process and are
// under way, also of those that were run at their deadlines.
//
//  1. T1 and T2 wait for 60 each, and the account gets 100.
//  2. Looks at both see the 100.
//  3. Without promises both would be run, and T2 would be refused for good, long before
//     its deadline.
//
// A debit that a look sees on the account is counted by the balance, and not once more. A
// promise outlives its transfer as long as a look is under way that has begun before: it
// may have read the account before the debit.
//
// Other processes, and transfers that don't wait, make no promises: the protocol refuses
// what comes too late.
type promises struct {
	mu       sync.Mutex
	begun    uint64              // how many looks have begun
	underway map[uint64]struct{} // the looks that have not ended
	kept     map[place][]*promise
	ended    []*promise // those kept for looks that are under way, oldest first
}

// promise is the debit of one leg.
type promise struct {
	transfer string
	place    place
	amount   money.Amount
	over     bool
	last     uint64 // the latest look that had begun when it was over
}

// begin begins a look. It returns its number, from 1 on.
func (p *promises) begin() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.underway == nil {
		p.underway = map[uint64]struct{}{}
	}
	p.begun++
	p.underway[p.begun] = struct{}{}
	return p.begun
}

// end ends a look.
func (p *promises) end(look uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.underway, look)
	p.forget()
}

// admit promises the debits of a transfer, or returns those that lack money.
func (p *promises) admit(look uint64, t document.Transfer, seen sight) (lacking []document.Leg, made []*promise) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lacking = seen.lacking(t, func(at place, view document.View) []money.Amount {
		return p.promised(look, at, view)
	})
	if len(lacking) > 0 {
		return lacking, nil
	}
	return nil, p.keep(t)
}

// make promises the debits of a transfer that is run whether there is money or not, such
// as one whose deadline has come.
func (p *promises) make(t document.Transfer) []*promise {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keep(t)
}

// keep notes the debits of a transfer. The caller holds mu.
func (p *promises) keep(t document.Transfer) (made []*promise) {
	if p.kept == nil {
		p.kept = map[place][]*promise{}
	}
	for _, leg := range t.Legs {
		if leg.Amount.Sign() < 0 {
			one := &promise{transfer: t.ID, place: placeOf(leg), amount: leg.Amount}
			made = append(made, one)
			p.kept[one.place] = append(p.kept[one.place], one)
		}
	}
	return made
}

// promised returns the debits that a look may not have seen on an account.
func (p *promises) promised(look uint64, at place, view document.View) []money.Amount {
	kept := p.kept[at]
	if len(kept) == 0 {
		return nil
	}
	taken := map[string]bool{}
	for _, id := range view.InFlight() {
		taken[id] = true
	}
	for _, paid := range view.Paid() {
		taken[paid.Transfer] = true
	}
	var amounts []money.Amount
	for _, one := range kept {
		if !taken[one.transfer] && (!one.over || one.last >= look) {
			amounts = append(amounts, one.amount)
		}
	}
	return amounts
}

// over records that the transfer of some promises is no longer under way.
func (p *promises) over(made []*promise) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range made {
		one.over, one.last = true, p.begun
		p.ended = append(p.ended, one)
	}
	p.forget()
}

// forget removes the promises that no look under way needs.
func (p *promises) forget() {
	oldest := p.begun + 1
	for look := range p.underway {
		oldest = min(oldest, look)
	}
	for len(p.ended) > 0 && p.ended[0].last < oldest {
		gone := p.ended[0]
		p.ended = p.ended[1:]
		rest := slices.DeleteFunc(p.kept[gone.place], func(one *promise) bool { return one == gone })
		if p.kept[gone.place] = rest; len(rest) == 0 {
			delete(p.kept, gone.place)
		}
	}
}
