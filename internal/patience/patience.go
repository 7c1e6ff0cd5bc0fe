// Package patience lets submitted transfers wait for funds.
//
// Before a worker claims such a transfer, it looks at the accounts, and puts the transfer
// off while one that pays has too little. A look only guesses: what is claimed is judged
// by the protocol, and what that refuses stays refused. So a look may be stale, and a
// worker may die in the middle of one.
//
//   - patience.go decides what becomes of a transfer.
//   - accounts.go reads its accounts, and says who lacks money.
//   - promises.go keeps one process from counting the same money twice.
//   - arrears.go and watch.go notice money that comes in.
//   - round.go gathers what many workers ask at once into few commands.
package patience

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/transition"
	"github.com/mongotransfer/transfer/internal/wire"
)

const (
	// firstPause is the time until the second look. Each further pause is twice as long.
	firstPause = time.Second
	// longestPause bounds the pauses. What waits longest costs two shared commands a
	// minute, and notices the money within one where no Watch has a note of it.
	longestPause = time.Minute
	// spread is the part of a pause that is left to chance, so that what was submitted
	// together is not looked at together for ever.
	spread = 4
)

// Patience looks at the transfers that may wait for funds. It is safe for many
// goroutines.
type Patience struct {
	catalog  *collections.Catalog
	promises promises
	accounts map[string]*rounds[[]string, []document.View] // by ledger
	arrears  map[string]*arrears                           // by ledger
	puttings rounds[transition.Postponement, wire.Verdict]
}

// New returns the patience of a deployment.
func New(catalog *collections.Catalog) *Patience {
	p := &Patience{
		catalog: catalog, accounts: map[string]*rounds[[]string, []document.View]{}, arrears: map[string]*arrears{},
	}
	for name, ledger := range catalog.Ledgers {
		p.arrears[name] = &arrears{}
		p.accounts[name] = &rounds[[]string, []document.View]{perform: p.readerOf(ledger)}
	}
	p.puttings.perform = p.putOff
	return p
}

// Waits reports whether a submitted transfer is one that may still have to wait for
// funds. If not, it is to be run.
//
// The search has found it due by the server's clock. Each pause ends with the deadline at
// the latest: once the stored time is the deadline, that has passed, whatever the
// process's clock shows.
func Waits(t document.Transfer) bool {
	return !t.FundsUntil.IsZero() && t.NotBefore.Before(t.FundsUntil)
}

// Admit looks at the accounts of a submitted transfer that has become due. It is admitted
// if it can be paid, if nothing that is worth waiting for is in its way, or if its
// deadline has come: then it is to be run, and over to be called when that has ended.
// Otherwise it was put off, unless somebody else has claimed it or put it off meanwhile.
//
// An error says that a server has not answered: the transfer is as it was, and due.
func (p *Patience) Admit(ctx context.Context, t document.Transfer) (admitted bool, over func(), err error) {
	if !Waits(t) {
		return true, p.Promise(t), nil
	}
	ctx = wire.Detached(ctx)
	now, err := p.catalog.ReachedTime(ctx)
	if err != nil {
		return false, nil, err
	}
	if !now.Before(t.FundsUntil) {
		return true, p.Promise(t), nil
	}
	look := p.promises.begin()
	defer p.promises.end(look)
	seen, known, err := p.read(ctx, t)
	if err != nil {
		return false, nil, err
	}
	if !known || seen.refuse(t) {
		return true, p.Promise(t), nil
	}
	lacking, made := p.promises.admit(look, t, seen)
	if len(lacking) == 0 {
		return true, func() { p.promises.over(made) }, nil
	}
	return false, nil, p.postpone(ctx, t, now, lacking)
}

// Promise keeps the money of a transfer that may have waited, and is run without a look,
// from those that wait. It may be refused: until over is called, nobody knows.
func (p *Patience) Promise(t document.Transfer) (over func()) {
	if t.FundsUntil.IsZero() {
		return func() {}
	}
	made := p.promises.make(t)
	return func() { p.promises.over(made) }
}

// postpone puts a transfer off.
func (p *Patience) postpone(ctx context.Context, t document.Transfer, now time.Time, lacking []document.Leg) error {
	next := now.Add(pause(t.Postponed))
	if next.After(t.FundsUntil) {
		next = t.FundsUntil
	}
	off := transition.Postponement{
		Transfer: t, NextTry: next,
		Reason: document.Failure{
			Code: protocol.InsufficientFunds.String(), Ledger: lacking[0].Ledger, Account: lacking[0].Account,
			Message: "insufficient funds", Others: int64(len(lacking) - 1),
		},
	}
	verdict, err := p.puttings.ask(ctx, off)
	switch {
	case err != nil:
		return err
	case verdict.Result != protocol.Applied && verdict.Result != protocol.NotMatched:
		return verdict.Err
	}
	// One that was not matched is noted as well: it stands for some of a command.
	t.NotBefore, t.Postponed = next, t.Postponed+1
	p.arrears[lacking[0].Ledger].add(t, lacking[0])
	return nil
}

// pause returns the time until the next look, by the number of those before it.
func pause(postponed int64) time.Duration {
	whole := longestPause
	if doubled := firstPause << min(max(postponed, 0), 30); doubled < longestPause {
		whole = doubled
	}
	return (whole - rand.N(whole/spread)).Truncate(document.Tick)
}

// putOff sends postponements.
func (p *Patience) putOff(ctx context.Context, all []transition.Postponement) ([]wire.Verdict, error) {
	return wire.UpdateAll(ctx, p.catalog.Transfers, all).Verdicts, nil
}
