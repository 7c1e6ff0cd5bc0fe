package patience

import (
	"context"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/transition"
	"github.com/mongotransfer/transfer/internal/wire"
)

// watchPeriod is the time between two looks at the accounts that lack money.
const watchPeriod = time.Second

// Watch reads the accounts for whose money this process has put transfers off, once a
// second, until ctx ends. Where one has got money, as many of them as it can pay are due
// at once, and found is called: without that, those that have waited longest would notice
// it within a minute.
//
// What it can't read, or has no note of, is looked at when its pause ends.
// It sends nothing while nothing waits.
func (p *Patience) Watch(ctx context.Context, found func()) {
	var ledgers sync.WaitGroup
	for name := range p.arrears {
		ledgers.Go(func() { // one whose cluster is away does not hold up the others
			period := time.NewTicker(watchPeriod)
			defer period.Stop()
			for {
				select {
				case <-period.C:
				case <-ctx.Done():
					return
				}
				if p.hasten(wire.Detached(ctx), name) {
					found()
				}
			}
		})
	}
	ledgers.Wait()
}

// hasten makes due what the accounts of a ledger can pay by now. It reports whether there
// is anything.
func (p *Patience) hasten(ctx context.Context, name string) bool {
	if p.arrears[name].empty() {
		return false
	}
	limited, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	now, err := p.catalog.ReachedTime(limited)
	if err != nil {
		return false
	}
	accounts := p.arrears[name].next(now)
	ledger := p.catalog.Ledgers[name]
	balances := options.Find().SetProjection(bson.D{{Key: ledger.Fields.Balance, Value: 1}, {Key: ledger.Fields.Floor, Value: 1}})
	stored, err := p.find(limited, ledger, [][]string{accounts}, balances)
	if err != nil {
		return false
	}
	var found []note
	for _, account := range accounts {
		found = append(found, p.arrears[name].payable(account, ledger.Fields.View(stored[account]))...)
	}
	return p.makeDue(limited, p.arrears[name], found)
}

// makeDue ends the pauses of transfers. It keeps the notes of those of which it does not
// know whether it has.
func (p *Patience) makeDue(ctx context.Context, from *arrears, found []note) bool {
	statements := make([]transition.Hastening, len(found))
	for i, n := range found {
		statements[i].Transfer = n.transfer
	}
	updated := wire.UpdateAll(ctx, p.catalog.Transfers, statements)
	for i, verdict := range updated.Verdicts {
		if verdict.Err != nil {
			from.put(found[i])
		}
	}
	return updated.Matched
}
