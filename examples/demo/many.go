package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mongotransfer/transfer"
)

const (
	manyOrders = 1000
	callers    = 8
	largest    = 200
)

// manyTransfers makes transfers between random people from several goroutines.
// Some are refused because the account has too little money.
// That is as it should be, and the book knows which ones.
func (s *story) manyTransfers(ctx context.Context) error {
	s.out.heading("%d transfers from %d goroutines", manyOrders, callers)
	var moved, refused atomic.Int64
	orders := randomOrders()
	bar := s.out.progress(manyOrders)
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for range callers {
		group.Go(func() error {
			for o := range orders {
				_, err := s.transfer(ctx, o)
				switch {
				case err == nil:
					moved.Add(1)
				case errors.Is(err, transfer.ErrInsufficientFunds):
					refused.Add(1)
				default:
					return err
				}
				bar.advance()
			}
			return nil
		})
	}
	err := group.Wait()
	bar.end()
	if err != nil {
		return err
	}
	s.out.say("%d moved their money, %d were refused for want of funds, in %.1f s.",
		moved.Load(), refused.Load(), time.Since(began).Seconds())
	return nil
}

// randomOrders returns a closed channel that holds the orders.
// They are the same in every run.
func randomOrders() <-chan order {
	random := rand.New(rand.NewPCG(1, 2))
	orders := make(chan order, manyOrders)
	for n := range manyOrders {
		from := random.IntN(people)
		to := (from + 1 + random.IntN(people-1)) % people
		orders <- order{ID: fmt.Sprintf("order-%d", n+1), From: person(from), To: person(to), Units: 1 + random.Int64N(largest)}
	}
	close(orders)
	return orders
}
