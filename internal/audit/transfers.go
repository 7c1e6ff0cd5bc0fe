package audit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// transfersPass audits all transfers, and those of their participants that the snapshot
// shows too. It keeps a batch at a time.
type transfersPass struct {
	*pass
	unfinished []*Transfer
	reserved   []*Document // transfers that have markers themselves: they are being reversed
	reversals  reversals
}

// readTransfers audits the transfers of the snapshot.
func (p *pass) readTransfers(snapshot context.Context) error {
	tp := transfersPass{pass: p, reversals: reversals{pass: p, ids: map[string]bool{}, found: map[string]bool{}}}
	for t, err := range p.reader.readTransfers(snapshot, p.options.Transfers) {
		if err != nil {
			return err
		}
		tp.read(t)
		if len(tp.unfinished)+len(tp.reserved)+len(tp.reversals.ids) >= batch {
			if err := tp.checkBatch(snapshot); err != nil {
				return err
			}
		}
	}
	if err := tp.checkBatch(snapshot); err != nil {
		return err
	}
	if !p.purged {
		p.add(tp.reversals.missing...)
	}
	return nil
}

// read checks a transfer by itself, and keeps it if there is more to check.
func (p *transfersPass) read(t *Transfer) {
	p.report.Transfers++
	p.add(checkTransfer(t, p.report.At, p.options.Genuine)...)
	p.reversals.note(t)
	if r := &t.Reversals; len(r.Markers) > 0 || r.BadPending != "" {
		p.add(checkDocument(r)...)
		p.reserved = append(p.reserved, r)
	}
	if t.Err != nil || !t.State.Known() || t.State.Final() {
		return
	}
	p.report.Unfinished++
	if p.needsParticipants(t) {
		p.unfinished = append(p.unfinished, t)
	}
}

// needsParticipants reports whether the participants of an unfinished transfer that the
// snapshot shows have to be read. Those of a transfer that was decided, or holds money,
// must be there, and so must those of one that has paid in before its commit is recorded.
// Those of one that stands still may show why.
func (p *pass) needsParticipants(t *Transfer) bool {
	_, late := overdue(t, p.report.At, p.options.Threshold)
	if late && len(p.overdue) < maxFindings {
		p.overdue = append(p.overdue, t)
	}
	return late || t.State == protocol.Committed || t.State == protocol.Preparing
}

// needsRemote reports whether the participants on other clusters have to be read of a
// transfer whose participants in the snapshot were read.
func (p *pass) needsRemote(t *Transfer) bool {
	_, late := overdue(t, p.report.At, p.options.Threshold)
	return late || t.State == protocol.Committed || t.Held || p.paid[t.ID]
}

// checkBatch checks what was kept.
func (p *transfersPass) checkBatch(snapshot context.Context) error {
	if err := p.checkHomeParticipants(snapshot, p.unfinished); err != nil {
		return err
	}
	if err := p.checkMarkersInSnapshot(snapshot, p.reserved); err != nil {
		return err
	}
	p.unfinished, p.reserved = p.unfinished[:0], p.reserved[:0]
	return p.reversals.check(snapshot)
}

// checkHomeParticipants checks those participants of unfinished transfers that the
// snapshot shows. It notes which transfers have others.
func (p *pass) checkHomeParticipants(snapshot context.Context, transfers []*Transfer) error {
	wanted, remote := participantsToRead{}, map[string]bool{}
	for _, t := range transfers {
		for _, participant := range p.reader.participants(t.Transfer) {
			switch {
			case participant.Collection == nil:
				p.noteObstacle(t.ID, participant.Name+" is not registered here")
			case participant.Collection.SameClient:
				wanted.add(participant)
			default:
				remote[t.ID] = true
			}
		}
	}
	found, err := wanted.read(snapshot, p.reader.findParticipants)
	if err != nil {
		return err
	}
	for _, t := range transfers {
		if t.State == protocol.Preparing && hasPaid(p.reader, t, found) {
			p.paid[t.ID] = true
		}
		if remote[t.ID] && p.needsRemote(t) {
			p.remote = append(p.remote, t.ID)
		}
		p.checkParticipants(t, found)
	}
	return nil
}

// checkParticipants checks those participants of a transfer that were read.
func (p *pass) checkParticipants(t *Transfer, found documentsRead) {
	for _, participant := range p.reader.participants(t.Transfer) {
		documents, read := found[participant.Collection]
		if !read {
			continue
		}
		d := documents[participant.Key]
		if f, wrong := checkParticipant(t, participant, d, p.paid[t.ID]); wrong {
			p.add(f)
		}
		switch {
		case d == nil && !participant.MayBeGone:
			p.noteObstacle(t.ID, participant.Name+" is gone")
		case d != nil && (d.BadBalance != "" || d.BadPending != ""):
			p.noteObstacle(t.ID, participant.Name+": "+strings.TrimSpace(d.BadBalance+" "+d.BadPending))
		}
	}
}

// participantsToRead are participants by their collections.
type participantsToRead map[*collections.Collection][]Participant

// documentsRead are participants' documents by their keys. A collection that is not in it
// was not read.
type documentsRead map[*collections.Collection]map[string]*Document

func (w participantsToRead) add(p Participant) { w[p.Collection] = append(w[p.Collection], p) }

// read reads the participants, a batch at a time.
func (w participantsToRead) read(
	ctx context.Context,
	find func(context.Context, *collections.Collection, []Participant) (map[string]*Document, error),
) (documentsRead, error) {
	found := documentsRead{}
	for c, participants := range w {
		found[c] = map[string]*Document{}
		for some := range slices.Chunk(participants, batch) {
			documents, err := find(ctx, c, some)
			if err != nil {
				return nil, fmt.Errorf("look up participants in %s: %w", describe(c), err)
			}
			maps.Copy(found[c], documents)
		}
	}
	return found, nil
}
