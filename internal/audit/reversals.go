package audit

import (
	"context"
	"maps"
	"slices"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// reversals are the pairs of a reversal and its original that transfers name. They are
// looked up a batch at a time.
type reversals struct {
	pass    *pass
	named   []reversalPair
	ids     map[string]bool // of both
	missing []Finding       // where one of the two doesn't exist
}

type reversalPair struct{ original, reversal string }

// note notes the pairs that a transfer names.
func (r *reversals) note(t *Transfer) {
	if t.Err != nil {
		return
	}
	add := func(pair reversalPair) {
		r.named = append(r.named, pair)
		r.ids[pair.original], r.ids[pair.reversal] = true, true
	}
	if t.ReversedBy != "" {
		add(reversalPair{original: t.ID, reversal: t.ReversedBy})
	}
	if t.Reverses != "" && t.State == protocol.Success {
		add(reversalPair{original: t.Reverses, reversal: t.ID})
	}
}

// check checks the pairs that were noted, each once.
func (r *reversals) check(snapshot context.Context) error {
	found, err := lookUp(snapshot, slices.Collect(maps.Keys(r.ids)), r.pass.reader.findTransfers)
	if err != nil {
		return err
	}
	checked := map[reversalPair]bool{}
	for _, pair := range r.named {
		if checked[pair] {
			continue
		}
		checked[pair] = true
		original, reversal := found[pair.original], found[pair.reversal]
		f, wrong := checkReversal(pair, original, reversal)
		switch {
		case !wrong:
		case original != nil && reversal != nil:
			r.pass.add(f)
		case len(r.missing) < maxFindings:
			r.missing = append(r.missing, f)
		}
	}
	r.named = r.named[:0]
	clear(r.ids)
	return nil
}

// checkReversal finds what is wrong between a reversal that has succeeded and its
// original, as they are at the same moment. A transfer that doesn't exist is nil.
func checkReversal(pair reversalPair, original, reversal *Transfer) (f Finding, wrong bool) {
	switch {
	case original == nil:
		return aboutTransfer(pair.reversal, WrongReversal, "it has reversed transfer %q, which does not exist",
			pair.original), true
	case reversal == nil:
		return aboutTransfer(pair.original, WrongReversal, "it was reversed by transfer %q, which does not exist",
			pair.reversal), true
	case original.State != protocol.Success:
		return aboutTransfer(pair.original, WrongReversal, "it was reversed by transfer %q, and is %s",
			pair.reversal, original.State), true
	case original.ReversedBy != pair.reversal:
		return aboutTransfer(pair.reversal, WrongReversal, "it has reversed transfer %q, which says that %q did",
			pair.original, original.ReversedBy), true
	case reversal.Reverses != pair.original || !reversal.State.Forward():
		return aboutTransfer(pair.original, WrongReversal, "it was reversed by transfer %q, which is %s and reverses %q",
			pair.reversal, reversal.State, reversal.Reverses), true
	}
	return Finding{}, false
}
