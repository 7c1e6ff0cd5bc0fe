package audit

import (
	"context"
	"slices"
)

// awayMarkers judges markers of another cluster than the transfers'. The transfers are looked up after the markers were read, outside of
// their snapshot.
type awayMarkers struct {
	*auditor
	outside context.Context
}

func (w *awayMarkers) judge(_ context.Context, documents []Document) error {
	found, err := w.lookUp(w.outside, transfersOf(documents), w.atlas.FindTransfers)
	if err != nil {
		return err
	}
	var doubtful []Document
	for i := range documents {
		p := &documents[i]
		if slices.ContainsFunc(p.Markers, func(m Marker) bool {
			_, wrong := judgeMarker(w.atlas, p, m, pointer(found, m.Transfer))
			return wrong
		}) {
			doubtful = append(doubtful, *p)
		}
	}
	wrong := map[[2]string]bool{}
	for some := range slices.Chunk(doubtful, batch) {
		if err := w.lookAgain(w.outside, some, wrong); err != nil {
			return err
		}
	}
	// A marker may stand in the snapshot of a transfer that has become final since: it counts by the way that this has gone.
	for i := range documents {
		for _, m := range documents[i].Markers {
			if !wrong[[2]string{documents[i].Key, m.Key}] {
				w.transit(&documents[i], pointer(found, m.Transfer))
			}
		}
	}
	return nil
}

// lookAgain judges the markers of documents of one place by deciding reads: what was still under way when it was first seen may be over
// by now. It takes down which are wrong.
func (a *auditor) lookAgain(ctx context.Context, documents []Document, wrong map[[2]string]bool) error {
	wanted := map[*Place][]Participant{}
	for i := range documents {
		wanted[documents[i].Place] = append(wanted[documents[i].Place], documents[i].AsParticipant())
	}
	var found seen
	steady, err := a.steady(ctx, transfersOf(documents), func() (err error) {
		found, err = a.find(ctx, wanted, a.atlas.DecideParticipants)
		return err
	})
	if err != nil {
		return err
	}
	for _, documents := range found {
		for _, p := range documents {
			a.judgeSteady(&p, steady, wrong)
		}
	}
	return nil
}

// judgeSteady judges those of a document's markers whose transfers stood still while it was read.
func (a *auditor) judgeSteady(p *Document, steady map[string]*Transfer, wrong map[[2]string]bool) {
	for _, m := range p.Markers {
		t, still := steady[m.Transfer]
		if !still && m.Transfer != "" {
			continue
		}
		if f, is := judgeMarker(a.atlas, p, m, t); is {
			wrong[[2]string{p.Key, m.Key}] = true
			a.add(f)
		}
	}
}

// steady reads transfers before and after something else is read, and returns those that are the same both times: nil for what is not
// there.
func (a *auditor) steady(ctx context.Context, ids []string, between func() error) (map[string]*Transfer, error) {
	before, err := a.lookUp(ctx, ids, a.atlas.DecideTransfers)
	if err != nil {
		return nil, err
	}
	if err := between(); err != nil {
		return nil, err
	}
	after, err := a.lookUp(ctx, ids, a.atlas.DecideTransfers)
	if err != nil {
		return nil, err
	}
	steady := map[string]*Transfer{}
	for _, id := range ids {
		first, then := pointer(before, id), pointer(after, id)
		if (first == nil) == (then == nil) && (first == nil || first.State == then.State && first.Held == then.Held) {
			steady[id] = then
		}
	}
	return steady, nil
}

// lookAway judges participants on other clusters of transfers that the snapshot has shown to be decided, or to hold money, or to stand
// still.
func (a *auditor) lookAway(ctx context.Context) error {
	for ids := range slices.Chunk(a.away, batch) {
		known, err := a.lookUp(ctx, ids, a.atlas.FindTransfers)
		if err != nil {
			return err
		}
		wanted := map[*Place][]Participant{}
		for _, t := range known {
			for _, part := range a.atlas.Participants(t.Transfer) {
				if part.Place != nil && !part.Place.Home {
					wanted[part.Place] = append(wanted[part.Place], part)
				}
			}
		}
		var found seen
		steady, err := a.steady(ctx, ids, func() (err error) {
			found, err = a.find(ctx, wanted, a.atlas.DecideParticipants)
			return err
		})
		if err != nil {
			return err
		}
		for _, t := range steady {
			if t != nil && known[t.ID].ID != "" {
				a.add(a.judgeParticipants(t, found)...)
			}
		}
	}
	return nil
}
