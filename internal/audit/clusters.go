package audit

import (
	"context"
	"fmt"
	"slices"

	"github.com/mongotransfer/transfer/internal/collections"
)

// readCluster audits the collections of another cluster than the transfers'.
func (p *pass) readCluster(ctx context.Context, cluster []*collections.Collection) error {
	check := func(_ context.Context, documents []*Document) error {
		return p.checkRemoteMarkers(ctx, documents) // outside of the snapshot
	}
	return inSnapshot(ctx, cluster[0], func(snapshot context.Context) error {
		for _, c := range cluster {
			if err := p.readDocuments(snapshot, c, check); err != nil {
				return fmt.Errorf("audit %s: %w", describe(c), err)
			}
		}
		return nil
	})
}

// checkRemoteMarkers checks markers of another cluster than the transfers'. The transfers
// are read after the markers. What looks wrong is checked again, by linearizable reads.
//
// The transfer may have become final since the snapshot shows its marker. Then the marker
// counts in the direction in which the transfer was decided.
func (p *pass) checkRemoteMarkers(ctx context.Context, documents []*Document) error {
	found, err := lookUp(ctx, transfersOf(documents), p.reader.findTransfers)
	if err != nil {
		return err
	}
	var doubtful []*Document
	for _, d := range documents {
		if slices.ContainsFunc(d.Markers, func(m Marker) bool {
			_, wrong := checkMarker(p.reader, d, m, found[m.Transfer])
			return wrong
		}) {
			doubtful = append(doubtful, d)
		}
	}
	wrong := map[markerKey]bool{}
	for some := range slices.Chunk(doubtful, batch) {
		if err := p.checkAgain(ctx, some, wrong); err != nil {
			return err
		}
	}
	for _, d := range documents {
		for _, m := range d.Markers {
			if !wrong[markerKey{d.Key, m.Key}] {
				p.countInTransit(d, m, found[m.Transfer])
			}
		}
	}
	return nil
}

// markerKey names a marker of a collection's documents.
type markerKey struct{ document, key string }

// checkAgain checks the markers of documents of one collection by linearizable reads: a
// transfer that was under way when it was first read may be finished by now. It notes
// which markers are wrong.
func (p *pass) checkAgain(ctx context.Context, documents []*Document, wrong map[markerKey]bool) error {
	wanted := participantsToRead{}
	for _, d := range documents {
		wanted.add(d.asParticipant())
	}
	unchanged, found, err := p.readBetween(ctx, transfersOf(documents), wanted)
	if err != nil {
		return err
	}
	for _, documents := range found {
		for _, d := range documents {
			for _, m := range d.Markers {
				t, same := unchanged[m.Transfer]
				if !same && m.Transfer != "" {
					continue // it has changed while the document was read
				}
				if f, is := checkMarker(p.reader, d, m, t); is {
					wrong[markerKey{d.Key, m.Key}] = true
					p.add(f)
				}
			}
		}
	}
	return nil
}

// readBetween reads transfers, then participants, then the transfers again, by
// linearizable reads. It returns the transfers that were the same both times, as nil
// those that don't exist, and the participants' documents.
func (p *pass) readBetween(
	ctx context.Context, ids []string, wanted participantsToRead,
) (unchanged map[string]*Transfer, found documentsRead, err error) {
	before, err := lookUp(ctx, ids, p.reader.DecideTransfers)
	if err != nil {
		return nil, nil, err
	}
	if found, err = wanted.read(ctx, p.reader.decideParticipants); err != nil {
		return nil, nil, err
	}
	after, err := lookUp(ctx, ids, p.reader.DecideTransfers)
	if err != nil {
		return nil, nil, err
	}
	unchanged = map[string]*Transfer{}
	for _, id := range ids {
		first, then := before[id], after[id]
		gone := first == nil && then == nil
		if gone || first != nil && then != nil && first.State == then.State && first.Held == then.Held {
			unchanged[id] = then
		}
	}
	return unchanged, found, nil
}

// checkRemoteParticipants checks the participants on other clusters of transfers that the
// snapshot has shown to be decided, to hold money, to have paid in, or to stand still.
//
// What has paid in by then and is still Preparing now must have a trace everywhere. The
// other way round nothing is certain: where a document without a trace was read first,
// the done mark on another cluster may have been set since.
func (p *pass) checkRemoteParticipants(ctx context.Context) error {
	for ids := range slices.Chunk(p.remote, batch) {
		known, err := lookUp(ctx, ids, p.reader.findTransfers)
		if err != nil {
			return err
		}
		wanted := participantsToRead{}
		for _, t := range known {
			for _, participant := range p.reader.participants(t.Transfer) {
				if participant.Collection != nil && !participant.Collection.SameClient {
					wanted.add(participant)
				}
			}
		}
		unchanged, found, err := p.readBetween(ctx, ids, wanted)
		if err != nil {
			return err
		}
		for _, t := range unchanged {
			if t != nil && known[t.ID] != nil {
				p.checkParticipants(t, found)
			}
		}
	}
	return nil
}
