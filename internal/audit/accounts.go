package audit

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/mongotransfer/transfer/internal/money"
)

// judgeMarkers judges the markers of a batch of documents, and counts what they stand for.
type judgeMarkers interface {
	judge(snapshot context.Context, documents []Document) error
}

// place audits the documents of a place. It keeps a batch of those that have markers.
func (a *auditor) place(snapshot context.Context, place *Place, markers judgeMarkers) error {
	switch {
	case place.Accounts:
		a.totalOf(place.Name, "", money.Whole) // a ledger without accounts is told of as well
	case a.options.Accounts.From != "":
		return nil // documents are audited with the first range
	}
	var (
		marked []Document
		count  int
	)
	for p, err := range a.atlas.ReadDocuments(snapshot, place, a.options.Accounts) {
		if err != nil {
			return err
		}
		a.add(judgeDocument(&p)...)
		if place.Accounts {
			a.count(&p)
		}
		if len(p.Markers) == 0 {
			continue
		}
		marked = append(marked, p)
		if count += len(p.Markers); count >= batch {
			if err := markers.judge(snapshot, marked); err != nil {
				return err
			}
			marked, count = marked[:0], 0
		}
	}
	return markers.judge(snapshot, marked)
}

// count adds an account to the sums.
func (a *auditor) count(p *Document) {
	a.report.Accounts++
	if !p.Counts {
		a.odd[totalKey{p.Place.Name, p.Currency, money.Whole}]++
		return
	}
	total := a.totalOf(p.Place.Name, p.Currency, p.Balance.Kind())
	total.accounts++
	total.balances.Add(p.Balance)
}

// transfersOf returns the IDs of the transfers whose markers these documents have.
func transfersOf(documents []Document) []string {
	ids := map[string]bool{}
	for _, p := range documents {
		for _, m := range p.Markers {
			if m.Transfer != "" {
				ids[m.Transfer] = true
			}
		}
	}
	return slices.Collect(maps.Keys(ids))
}

// homeMarkers judges markers by the transfers of the same snapshot.
type homeMarkers struct{ *auditor }

func (h *homeMarkers) judge(snapshot context.Context, documents []Document) error {
	found, err := h.lookUp(snapshot, transfersOf(documents), h.atlas.FindTransfers)
	if err != nil {
		return err
	}
	for i := range documents {
		p := &documents[i]
		for _, m := range p.Markers {
			t := pointer(found, m.Transfer)
			if f, wrong := judgeMarker(h.atlas, p, m, t); wrong {
				h.add(f)
			}
			if t != nil && !t.State.Final() {
				h.transit(p, t)
			}
		}
	}
	return nil
}

// lookUp finds transfers, a batch at a time.
func (a *auditor) lookUp(
	ctx context.Context, ids []string, look func(context.Context, []string) (map[string]Transfer, error),
) (map[string]Transfer, error) {
	found := make(map[string]Transfer, len(ids))
	for some := range slices.Chunk(ids, batch) {
		transfers, err := look(ctx, some)
		if err != nil {
			return nil, fmt.Errorf("look up transfers: %w", err)
		}
		maps.Copy(found, transfers)
	}
	return found, nil
}
