package patience

import (
	"slices"
	"sync"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
)

const (
	// watchedAccounts is how many accounts of a ledger are read at once. Where more of
	// them lack money, they take turns.
	watchedAccounts = 1000
	// watchedTransfers is how many transfers are noted in a ledger. The others are looked
	// at when their pauses end.
	watchedTransfers = 10_000
)

// arrears are the transfers that this process has put off for want of money in the
// accounts of one ledger, each by the first account that lacked it. They are notes: a
// transfer that is missing here is looked at when its pause ends.
type arrears struct {
	mu    sync.Mutex
	count int
	notes map[string][]note // by account, in the order in which they were put off
	turns []string          // the accounts that have an entry, in the order in which they are read
}

// note is a transfer that was put off.
type note struct {
	account  string
	debit    money.Amount
	transfer document.Transfer // as it is stored, but for what it moves
}

// add notes a transfer that was put off for want of money of one leg's account.
func (a *arrears) add(t document.Transfer, lacking document.Leg) {
	a.put(note{lacking.Account, lacking.Amount, document.Transfer{
		ID: t.ID, Digest: t.Digest, FundsUntil: t.FundsUntil, NotBefore: t.NotBefore, Postponed: t.Postponed,
	}})
}

// put adds notes while there is room.
func (a *arrears) put(more ...note) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range more[:min(len(more), watchedTransfers-a.count)] {
		if a.notes == nil {
			a.notes = map[string][]note{}
		}
		if _, known := a.notes[n.account]; !known {
			a.turns = append(a.turns, n.account)
		}
		a.keep(n.account, append(a.notes[n.account], n))
	}
}

// empty reports whether nothing is noted.
func (a *arrears) empty() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count == 0
}

// next returns the accounts whose turn it is to be read. It forgets the transfers whose
// pauses are over.
func (a *arrears) next(now time.Time) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for account, all := range a.notes {
		a.keep(account, slices.DeleteFunc(all, func(n note) bool { return !now.Before(n.transfer.NotBefore) }))
	}
	a.turns = slices.DeleteFunc(a.turns, func(account string) bool {
		gone := len(a.notes[account]) == 0
		if gone {
			delete(a.notes, account)
		}
		return gone
	})
	first := slices.Clone(a.turns[:min(len(a.turns), watchedAccounts)])
	a.turns = append(a.turns[len(first):], first...)
	return first
}

// payable returns the transfers that an account can pay, as it was read, together. It
// forgets them.
func (a *arrears) payable(account string, view document.View) (found []note) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var (
		rest  []note
		taken []money.Amount // the sum of what is found, if there is any
	)
	notes := a.notes[account]
	if len(notes) == 0 {
		return nil // and one without a turn gets no entry
	}
	for _, n := range notes {
		if !canPay(view, n.debit, taken) {
			rest = append(rest, n)
			continue
		}
		found = append(found, n)
		sum := n.debit
		if len(taken) > 0 {
			sum, _ = sum.Add(taken[0]) // canPay has added them
		}
		taken = []money.Amount{sum}
	}
	a.keep(account, rest)
	return found
}

// keep replaces the notes of an account. One without notes has an entry until the next
// turn, so that its place among the turns is known: with two places it would be read
// twice, and its money counted twice.
func (a *arrears) keep(account string, rest []note) {
	a.count += len(rest) - len(a.notes[account])
	a.notes[account] = rest
}
