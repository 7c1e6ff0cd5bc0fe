package audit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// transfersPass audits all transfers, and those of their participants that the snapshot shows too. It keeps a batch at a time.
type transfersPass struct {
	*auditor
	unfinished []Transfer
	reserved   []Document // transfers that have markers themselves: they are being reversed
	reversals  pairs
}

func (a *auditor) transfers(snapshot context.Context) error {
	pass := transfersPass{auditor: a, reversals: pairs{auditor: a}}
	for t, err := range a.atlas.ReadTransfers(snapshot, a.options.Transfers) {
		if err != nil {
			return err
		}
		pass.see(&t)
		if len(pass.unfinished)+len(pass.reserved)+len(pass.reversals.ids) >= batch {
			if err := pass.flush(snapshot); err != nil {
				return err
			}
		}
	}
	if err := pass.flush(snapshot); err != nil {
		return err
	}
	if !a.purged {
		a.add(pass.reversals.missing...)
	}
	return nil
}

// see judges a transfer by itself, and keeps it if there is more to look at.
func (p *transfersPass) see(t *Transfer) {
	p.report.Transfers++
	p.add(judgeTransfer(t, p.report.At, p.options.Genuine)...)
	p.reversals.note(t)
	if len(t.Marks.Markers) > 0 || t.Marks.BadPending != "" {
		p.add(judgeDocument(&t.Marks)...)
		p.reserved = append(p.reserved, t.Marks)
	}
	if t.Err != nil || !t.State.Known() || t.State.Final() {
		return
	}
	p.report.Unfinished++
	if p.wants(t) {
		p.unfinished = append(p.unfinished, *t)
	}
}

// flush judges what was kept.
func (p *transfersPass) flush(snapshot context.Context) error {
	if err := p.participants(snapshot, p.unfinished); err != nil {
		return err
	}
	markers := homeMarkers{p.auditor}
	if err := markers.judge(snapshot, p.reserved); err != nil {
		return err
	}
	p.unfinished, p.reserved = p.unfinished[:0], p.reserved[:0]
	return p.reversals.judge(snapshot)
}

// wants reports whether an unfinished transfer's participants are worth a look: those of a transfer that was decided, or holds money,
// must be there, and those of one that stands still may tell why.
func (a *auditor) wants(t *Transfer) bool {
	_, late := overdue(t, a.report.At, a.options.Threshold)
	if late && len(a.overdue) < maxFindings {
		a.overdue = append(a.overdue, *t)
	}
	return late || t.State == protocol.Committed || t.State == protocol.Preparing && t.Held
}

// participants judges the participants of unfinished transfers: those that the snapshot shows now, the others later.
func (a *auditor) participants(snapshot context.Context, transfers []Transfer) error {
	wanted := map[*Place][]Participant{}
	for i := range transfers {
		t := &transfers[i]
		away := false
		for _, part := range a.atlas.Participants(t.Transfer) {
			switch {
			case part.Place == nil:
				a.obstructed(t.ID, part.Name+" is not registered here")
			case part.Place.Home:
				wanted[part.Place] = append(wanted[part.Place], part)
			default:
				away = true
			}
		}
		if away {
			a.away = append(a.away, t.ID)
		}
	}
	found, err := a.find(snapshot, wanted, a.atlas.FindParticipants)
	if err != nil {
		return err
	}
	for i := range transfers {
		a.add(a.judgeParticipants(&transfers[i], found)...)
	}
	return nil
}

// seen are participants' documents by their keys. A place that is not in it was not looked at.
type seen map[*Place]map[string]Document

// finder looks up participants of one place.
type finder func(context.Context, *Place, []Participant) (map[string]Document, error)

// find looks up participants, a batch at a time.
func (a *auditor) find(ctx context.Context, wanted map[*Place][]Participant, look finder) (seen, error) {
	found := seen{}
	for place, parts := range wanted {
		found[place] = map[string]Document{}
		for some := range slices.Chunk(parts, batch) {
			documents, err := look(ctx, place, some)
			if err != nil {
				return nil, fmt.Errorf("look up participants in %s: %w", place, err)
			}
			maps.Copy(found[place], documents)
		}
	}
	return found, nil
}

// judgeParticipants judges the participants of one transfer that were looked at.
func (a *auditor) judgeParticipants(t *Transfer, found seen) []Finding {
	var findings []Finding
	for _, part := range a.atlas.Participants(t.Transfer) {
		documents, looked := found[part.Place]
		if !looked {
			continue
		}
		var p *Document
		if document, there := documents[part.Key]; there {
			p = &document
		}
		if f, wrong := judgeParticipant(t, part, p); wrong {
			findings = append(findings, f)
		}
		switch {
		case p == nil && !part.Spare:
			a.obstructed(t.ID, part.Name+" is gone")
		case p != nil && (p.BadBalance != "" || p.BadPending != ""):
			a.obstructed(t.ID, part.Name+": "+strings.TrimSpace(p.BadBalance+" "+p.BadPending))
		}
	}
	return findings
}

// obstructed takes down what may stand in a transfer's way.
func (a *auditor) obstructed(id, by string) {
	if len(a.obstacle) < maxFindings {
		a.obstacle[id] = by
	}
}

// stalled finds the transfers that stand still. The snapshot of a primary that was cut off may be old: what it shows to stand still
// counts only if a deciding read shows it unchanged.
func (a *auditor) stalled(ctx context.Context) error {
	for some := range slices.Chunk(a.overdue, batch) {
		ids := make([]string, len(some))
		for i, t := range some {
			ids[i] = t.ID
		}
		now, err := a.atlas.DecideTransfers(ctx, ids)
		if err != nil {
			return fmt.Errorf("look again at transfers that stand still: %w", err)
		}
		for _, t := range some {
			if later := now[t.ID]; later.State == t.State && later.LastModified.Equal(t.LastModified) {
				a.add(a.judgeStalled(&t))
			}
		}
	}
	return nil
}

func (a *auditor) judgeStalled(t *Transfer) Finding {
	age, _ := overdue(t, a.report.At, a.options.Threshold)
	if t.State == protocol.Initiated {
		return aboutTransfer(t.ID, Unclaimed, "no worker has taken it for %s", age)
	}
	reason := "nothing stands in its way: does recovery run?"
	if by := a.obstacle[t.ID]; by != "" {
		reason = by
	}
	if t.Stuck != nil {
		reason = t.Stuck.Message
	}
	return aboutTransfer(t.ID, Stalled, "it is %s for %s, was taken over %d times, and is not finished: %s", t.State, age, t.Attempts, reason)
}

// pairs are reversals and originals that name each other, to be looked up.
type pairs struct {
	auditor *auditor
	named   [][2]string // original, reversal
	ids     map[string]bool
	missing []Finding
}

// note takes down whom a transfer names.
func (p *pairs) note(t *Transfer) {
	if p.ids == nil {
		p.ids = map[string]bool{}
	}
	if t.Err != nil {
		return
	}
	if t.ReversedBy != "" {
		p.named = append(p.named, [2]string{t.ID, t.ReversedBy})
	}
	if t.Reverses != "" && t.State == protocol.Success {
		p.named = append(p.named, [2]string{t.Reverses, t.ID})
	}
	for _, pair := range p.named[max(0, len(p.named)-2):] {
		p.ids[pair[0]], p.ids[pair[1]] = true, true
	}
}

// judge judges what was taken down.
func (p *pairs) judge(snapshot context.Context) error {
	a := p.auditor
	found, err := a.lookUp(snapshot, slices.Collect(maps.Keys(p.ids)), a.atlas.FindTransfers)
	if err != nil {
		return err
	}
	told := map[[2]string]bool{}
	for _, pair := range p.named {
		original, reversal := pointer(found, pair[0]), pointer(found, pair[1])
		f, wrong := judgeReversal(pair[0], pair[1], original, reversal)
		switch {
		case !wrong || told[pair]:
		case original != nil && reversal != nil:
			a.add(f)
		case len(p.missing) < maxFindings:
			p.missing = append(p.missing, f)
		}
		told[pair] = true
	}
	p.named, p.ids = p.named[:0], nil
	return nil
}

func pointer(found map[string]Transfer, id string) *Transfer {
	if t, there := found[id]; there {
		return &t
	}
	return nil
}
