package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mongotransfer/transfer"
)

// check is the last chapter.
// It compares everything that is stored with the book.
func (s *story) check(ctx context.Context) error {
	s.out.heading("The check")
	accounts, err := s.accounts(ctx)
	if err != nil {
		return err
	}
	s.out.say("The sum after: %d.", sumOf(accounts))
	balances, states := s.book.entries()
	wrong := errors.Join(checkAccounts(accounts, balances), s.checkTransfers(ctx, states))
	if wrong != nil {
		return fmt.Errorf("something is wrong:\n%w", wrong)
	}
	s.out.say("%s", s.out.good(fmt.Sprintf("All %d balances are exactly right, no marker is left, and all %d transfers are final.",
		len(balances), len(states))))
	return nil
}

// checkAccounts checks that each account has exactly the balance in the book, and no
// marker.
func checkAccounts(accounts []accountDocument, balances map[string]int64) error {
	var wrong []error
	seen := map[string]bool{}
	for _, account := range accounts {
		seen[account.ID] = true
		want, known := balances[account.ID]
		if !known {
			wrong = append(wrong, fmt.Errorf("account %s was never opened", account.ID))
		}
		if account.Balance != want {
			wrong = append(wrong, fmt.Errorf("account %s has %d and should have %d", account.ID, account.Balance, want))
		}
		if len(account.Pending) > 0 {
			wrong = append(wrong, fmt.Errorf("account %s has markers left: %s", account.ID, markersOf(account)))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(balances)) {
		if !seen[id] {
			wrong = append(wrong, fmt.Errorf("account %s is gone", id))
		}
	}
	return errors.Join(wrong...)
}

// checkTransfers checks that each transfer is final, and in the state that was answered.
func (s *story) checkTransfers(ctx context.Context, states map[string]transfer.State) error {
	var wrong []error
	seen := map[string]bool{}
	for rec, err := range s.coord.List(ctx, transfer.Query{}) {
		if err != nil {
			return err
		}
		seen[rec.ID] = true
		if !rec.State.Final() {
			wrong = append(wrong, fmt.Errorf("transfer %s is not final: %s", rec.ID, rec.State))
		}
		if rec.State != states[rec.ID] {
			wrong = append(wrong, fmt.Errorf("transfer %s is in state %s, and the answer was %q", rec.ID, rec.State, states[rec.ID]))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(states)) {
		if !seen[id] {
			wrong = append(wrong, fmt.Errorf("transfer %s is gone", id))
		}
	}
	return errors.Join(wrong...)
}
