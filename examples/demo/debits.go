package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/mongotransfer/transfer"
)

const (
	debits    = 5
	debitEach = 60
)

// fiveDebits makes five debits at once that together exceed the account's balance.
// One of them succeeds.
func (s *story) fiveDebits(ctx context.Context) error {
	s.out.heading("%d debits of %d at once, from an account with %d", debits, debitEach, tillHas)
	var (
		answers [debits]error
		start   = make(chan struct{})
		all     sync.WaitGroup
	)
	for n := range debits {
		all.Go(func() {
			<-start
			o := order{ID: fmt.Sprintf("debit-%d", n+1), From: till, To: shop, Units: debitEach}
			_, answers[n] = s.transfer(ctx, o)
		})
	}
	close(start)
	all.Wait()
	won := 0
	for n, err := range answers {
		switch {
		case err == nil:
			won++
			s.out.say("debit-%d  %s", n+1, s.out.good("moved"))
		case errors.Is(err, transfer.ErrInsufficientFunds):
			s.out.say("debit-%d  refused: %v", n+1, transfer.ErrInsufficientFunds)
		default:
			return err
		}
	}
	if won != 1 {
		return fmt.Errorf("%d of the %d debits won, and exactly one should have", won, debits)
	}
	return nil
}
