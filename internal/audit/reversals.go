package audit

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// reversals are the pairs of a reversal and its original that transfers name. They are
// looked up a batch at a time.
type reversals struct {
	pass    *pass
	named   []reversalPair
	ids     map[string]bool // of both
	partly  []*Transfer     // originals that count what was reversed
	found   map[string]bool // originals of which something was found wrong
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
	if t.Reversed != nil {
		r.partly = append(r.partly, t)
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
		if wrong {
			r.add(f, original == nil || reversal == nil)
			r.found[pair.original] = true
		}
	}
	r.named = r.named[:0]
	clear(r.ids)
	return r.checkSums(snapshot)
}

// add adds a finding, apart if all that speaks for it is that a transfer doesn't exist.
func (r *reversals) add(f Finding, missing bool) {
	switch {
	case !missing:
		r.pass.add(f)
	case len(r.missing) < maxFindings:
		r.missing = append(r.missing, f)
	}
}

// checkSums checks what the originals that were noted say was reversed of them.
func (r *reversals) checkSums(snapshot context.Context) error {
	ids := make([]string, len(r.partly))
	for i, original := range r.partly {
		ids[i] = original.ID
	}
	of := map[string][]*Transfer{}
	for some := range slices.Chunk(ids, batch) {
		for reversal, err := range r.pass.reader.findReversals(snapshot, some) {
			if err != nil {
				return fmt.Errorf("look up reversals: %w", err)
			}
			of[reversal.Reverses] = append(of[reversal.Reverses], reversal)
		}
	}
	for _, original := range r.partly {
		if f, missing, wrong := checkReversed(original, of[original.ID]); wrong && !r.found[original.ID] {
			r.add(f, missing)
		}
	}
	r.partly = r.partly[:0]
	clear(r.found)
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
	case reversal.Reverses == pair.original && reversal.State == protocol.Success && !counts(original, reversal):
		return aboutTransfer(pair.reversal, WrongReversal, "it has reversed transfer %q, which doesn't count that",
			pair.original), true
	case reversal.Reverses != pair.original || !reversal.State.Forward():
		return aboutTransfer(pair.original, WrongReversal, "it was reversed by transfer %q, which is %s and reverses %q",
			pair.reversal, reversal.State, reversal.Reverses), true
	}
	return Finding{}, false
}

// counts reports whether an original counts what a reversal has taken back.
func counts(original, reversal *Transfer) bool {
	if original.Reversed == nil || original.ReversedBy == "" {
		return original.ReversedBy == reversal.ID
	}
	for _, leg := range reversal.Legs {
		counted, err := money.FromBSON(original.Reversed.Lookup(leg.ReversedKey()))
		if err != nil || !leg.Within(counted) {
			return false
		}
	}
	return true
}

// checkReversed finds where an original says that something else was reversed of it than
// what its reversals have moved.
// What a reversal that is Committed has moved may be counted already.
// More than that is missing: a reversal that it counts doesn't exist.
func checkReversed(original *Transfer, by []*Transfer) (f Finding, missing, wrong bool) {
	if _, err := original.Left(); err != nil {
		return aboutTransfer(original.ID, WrongReversal, "%v", err), false, true
	}
	for _, leg := range original.Moved() {
		counted, done, most, err := sumsOf(original, leg, by)
		switch {
		case err != nil:
			return aboutTransfer(original.ID, WrongReversal, "its reversals can't be added up: %v", err), false, true
		case counted.Cmp(done)*leg.Amount.Sign() > 0:
			return aboutTransfer(original.ID, WrongReversal, "it counts %s as reversed on account %q, and its reversals have moved %s",
				counted, leg.Account, done), false, true
		case counted.Cmp(most)*leg.Amount.Sign() < 0:
			return aboutTransfer(original.ID, WrongReversal, "it counts %s as reversed on account %q, and those of its reversals "+
				"that exist have moved %s", counted, leg.Account, most), true, true
		}
	}
	return Finding{}, false, false
}

// sumsOf returns what an original counts as reversed of a leg, what those reversals have
// moved that have succeeded, and what these have together with those that are committed.
func sumsOf(original *Transfer, leg document.Leg, by []*Transfer) (counted, done, most money.Amount, err error) {
	counted = money.Zero(leg.Amount.Kind())
	done, most = counted, counted
	if stored, missing := original.Reversed.LookupErr(leg.ReversedKey()); missing == nil {
		if counted, err = money.FromBSON(stored); err != nil {
			return counted, done, most, err
		}
	}
	for _, reversal := range by {
		moved := leg.On(reversal.Legs)
		if moved == nil || !reversal.State.Forward() {
			continue
		}
		if most, err = most.Add(moved.Amount); err != nil {
			return counted, done, most, err
		}
		if reversal.State != protocol.Success {
			continue
		}
		if done, err = done.Add(moved.Amount); err != nil {
			return counted, done, most, err
		}
	}
	return counted, done, most, nil
}
