package audit

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// checkMarkers checks the markers of a batch of documents, and counts the money that they
// stand for.
type checkMarkers func(snapshot context.Context, documents []*Document) error

// readDocuments audits the documents of a collection. It keeps a batch of those that have
// markers. Documents that are no accounts are audited with the first range of accounts.
func (p *pass) readDocuments(snapshot context.Context, c *collections.Collection, check checkMarkers) error {
	switch {
	case c.HoldsAccounts():
		p.totalOf(c.Name, "", money.Whole) // the report has ledgers without accounts, too
	case p.options.Accounts.From != "":
		return nil
	}
	var (
		marked []*Document
		count  int
	)
	for d, err := range p.reader.ReadDocuments(snapshot, c, p.options.Accounts) {
		if err != nil {
			return err
		}
		p.add(checkDocument(d)...)
		if c.HoldsAccounts() {
			p.countAccount(d)
		}
		if len(d.Markers) == 0 {
			continue
		}
		marked = append(marked, d)
		if count += len(d.Markers); count >= batch {
			if err := check(snapshot, marked); err != nil {
				return err
			}
			marked, count = marked[:0], 0
		}
	}
	return check(snapshot, marked)
}

// countAccount adds an account to the sums.
func (p *pass) countAccount(d *Document) {
	p.report.Accounts++
	if !d.Counts {
		p.uncountable[totalKey{d.Collection.Name, d.Currency, money.Whole}]++
		return
	}
	total := p.totalOf(d.Collection.Name, d.Currency, d.Balance.Kind())
	total.accounts++
	total.balances.Add(d.Balance)
}

// checkMarkersInSnapshot checks markers by the transfers of the same snapshot.
func (p *pass) checkMarkersInSnapshot(snapshot context.Context, documents []*Document) error {
	found, err := lookUp(snapshot, transfersOf(documents), p.reader.findTransfers)
	if err != nil {
		return err
	}
	for _, d := range documents {
		for _, m := range d.Markers {
			t := found[m.Transfer]
			if f, wrong := checkMarker(p.reader, d, m, t); wrong {
				p.add(f)
			}
			if t != nil && !t.State.Final() {
				p.countInTransit(d, m, t)
			}
		}
	}
	return nil
}

// transfersOf returns the IDs of the transfers whose markers these documents have.
func transfersOf(documents []*Document) []string {
	ids := map[string]bool{}
	for _, d := range documents {
		for _, m := range d.Markers {
			if m.Transfer != "" {
				ids[m.Transfer] = true
			}
		}
	}
	return slices.Collect(maps.Keys(ids))
}

// lookUp reads transfers, a batch at a time.
func lookUp(
	ctx context.Context, ids []string, read func(context.Context, []string) (map[string]*Transfer, error),
) (map[string]*Transfer, error) {
	found := make(map[string]*Transfer, len(ids))
	for some := range slices.Chunk(ids, batch) {
		transfers, err := read(ctx, some)
		if err != nil {
			return nil, fmt.Errorf("look up transfers: %w", err)
		}
		maps.Copy(found, transfers)
	}
	return found, nil
}

// countInTransit adds the money that a marker or a done mark stands for to the sums. It
// is in the currency of the leg, in which it was taken or is paid in.
func (p *pass) countInTransit(d *Document, m Marker, t *Transfer) {
	if t == nil || t.Err != nil {
		return
	}
	leg, is := participantOf(p.reader, d, t)
	if !is || leg.Amount == nil {
		return
	}
	if amount, moving := inTransit(*leg.Amount, m, t); moving {
		p.totalOf(d.Collection.Name, leg.Currency, amount.Kind()).inTransit.Add(amount)
	}
}

// inTransit returns the money that a marker stands for and that is on no balance, given
// the amount of the leg.
//
//   - Before the decision is stored it is what a debit has taken, less what done marks
//     have paid in: all that was taken counts until then, where it was taken from.
//   - After the decision to commit it is what a credit has not received yet, and what a
//     hold that was posted in part has not returned yet. A done mark has received it.
//   - After the decision to roll back it is what a debit has not been given back.
//
// So the sums of each ledger, in each currency, change when the decision is stored, and
// at no other moment:
//
//  1. A transfer takes 60 from one ledger: 60 less on its balances, 60 in transit.
//  2. It pays them into another one, and is not recorded yet: 60 more on its balances,
//     -60 in transit.
//  3. The commit is recorded, and nothing is in transit in either.
func inTransit(amount money.Amount, m Marker, t *Transfer) (money.Amount, bool) {
	if m.Done {
		return amount.Neg(), t.State == protocol.Preparing
	}
	switch t.State {
	case protocol.Preparing, protocol.Rollback, protocol.Fail:
		return amount.Neg(), amount.Sign() < 0
	case protocol.Committed, protocol.Success:
		if t.Posted == nil {
			return amount, amount.Sign() > 0
		}
		if amount.Sign() > 0 {
			return *t.Posted, true
		}
		rest, err := amount.Neg().Add(t.Posted.Neg())
		return rest, err == nil
	case protocol.Initiated:
	}
	return money.Amount{}, false
}
