package chaos

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mongotransfer/transfer"
)

const (
	reversalPrefix = "reversal "
	reversalOf     = " of "
)

// reversalID returns the ID of a reversal, which contains the ID of the original.
func reversalID(original, unique string) string {
	return reversalPrefix + unique + reversalOf + original
}

// originalOf returns the transfer that the transfer of an ID reverses.
func originalOf(id string) (original string, reverses bool) {
	rest, reverses := strings.CutPrefix(id, reversalPrefix)
	if !reverses {
		return "", false
	}
	_, original, reverses = strings.Cut(rest, reversalOf)
	return original, reverses
}

// reverse reverses a transfer that the caller knows, alone or against a rival, or the
// hold that all callers mean at the moment.
func (c *caller) reverse(ctx context.Context) {
	original := sharedHold()
	if known := c.reversible(); len(known) > 0 && c.rng.IntN(4) > 0 {
		original = known[c.rng.IntN(len(known))]
	}
	if c.rng.IntN(2) == 0 {
		c.reverseMore(ctx, original)
		return
	}
	c.against(ctx, func(rival *caller) { rival.reverseMore(ctx, original) }, func() { c.reverseMore(ctx, original) })
}

// reversible returns the transfers that the caller knows, most often those alone of which
// it knows that they have succeeded. Reversals are none.
func (c *caller) reversible() []string {
	onlySucceeded := len(c.succeeded) > 0 && c.rng.IntN(4) > 0
	var found []string
	for _, id := range c.known {
		if _, reverses := originalOf(id); !reverses && (!onlySucceeded || c.succeeded[id]) {
			found = append(found, id)
		}
	}
	return found
}

// reverseMore reverses a transfer, and most often goes on until nothing of it is left.
func (c *caller) reverseMore(ctx context.Context, original string) {
	for {
		e := c.reversal(ctx, reversalID(original, c.newID()))
		if e.Word != done || e.State != transfer.StateSuccess || c.rng.IntN(4) == 0 {
			return
		}
	}
}

// reversal asks for the reversal that the ID stands for.
func (c *caller) reversal(ctx context.Context, id string) entry {
	original, _ := originalOf(id)
	return c.callEntry(ctx, entry{Verb: verbReverse, ID: id, Known: c.knows(original), Succeeded: c.succeeded[original]},
		func(ctx context.Context, _ string) (transfer.Record, error) {
			return c.coord.Reverse(ctx, c.bank.reversal(id))
		})
}

// reversal returns the reversal that an ID stands for: of all that is left, or of a third
// of a transfer between two accounts.
func (b bank) reversal(id string) transfer.Reversal {
	original, _ := originalOf(id)
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(id)) // It never fails.
	req := b.request(original)
	if req.From == "" || hash.Sum64()%3 == 0 {
		return transfer.Reversal{ID: id, Of: original, All: true}
	}
	return transfer.Reversal{ID: id, Of: original, Amount: transfer.Units((units(req.Amount) + 2) / 3)}
}

// reversals checks that what each transfer counts as reversed is what the reversals that
// have succeeded have moved, and that it is no more than the transfer has moved.
// It also checks that each answer about an original is true.
func (a *audit) reversals(asked map[string]int, entries []entry) {
	by := map[string][]string{}
	for id, t := range a.transfers {
		original, reverses := originalOf(id)
		if t.Reverses != original {
			a.wrong("reverses "+id, t, "transfer %s reverses %q", id, t.Reverses)
		}
		if reverses && t.State == transfer.StateSuccess {
			by[original] = append(by[original], id)
		}
	}
	for id, t := range a.transfers {
		if !a.counts(t, by[id]) {
			a.wrong("reversed "+id, t, "transfer %s has the successful reversals %q", id, by[id])
		}
		if len(t.Pending) > 0 {
			a.wrong("reserved "+id, t, "transfer %s is reserved by a reversal still", id)
		}
	}
	for _, e := range entries {
		if lie := a.lieOfReversal(e, asked); lie != "" {
			a.wrong("call "+e.Call, a.transfers[e.ID], "call %s, %s %s, was told %q (%s): %s", e.Call, e.Verb, e.ID, e.Word, e.Text, lie)
		}
	}
}

// counts reports whether a transfer counts what its reversals have moved, and these could
// be made.
func (a *audit) counts(t transferDocument, reversals []string) bool {
	sums := a.sums(reversals)
	for account, sum := range sums {
		if t.Reversed["%00"+account] != sum {
			return false
		}
	}
	if len(reversals) == 0 {
		return t.ReversedBy == "" && len(t.Reversed) == 0
	}
	return len(t.Reversed) == len(sums) && t.left(sums) &&
		slices.Contains(reversals, t.ReversedBy) && t.State == transfer.StateSuccess
}

// lieOfReversal returns what is not true about an answer to a reversal that is about the
// original.
func (a *audit) lieOfReversal(e entry, asked map[string]int) string {
	if e.Verb != verbReverse {
		return ""
	}
	id, _ := originalOf(e.ID)
	original, stored := a.transfers[id]
	left, own := original.leftOver(), original.ReversedBy == e.ID
	switch {
	case e.Word == alreadyReversed:
		return lieIf(original.ReversedBy == "" || own || left > 0, "it is not, or by this very one")
	case e.Word == reversalExceeds:
		return lieIf(own || left >= units(a.bank.reversal(e.ID).Amount), "there is as much left")
	case e.Word == notReversible && (!stored || e.Succeeded && len(original.Legs) > 0):
		return "it is not stored, or the caller knew that it has succeeded"
	case e.Word == unwritten && asked[e.ID] == 1 && a.transfers[e.ID].ID != "":
		return "this very call has stored it"
	}
	return ""
}

// asReversal reports whether a reversal moves back a part of what its original moved, and
// the part that it was asked for.
func (a *audit) asReversal(t transferDocument, have map[string]int64) bool {
	original, stored := a.transfers[t.Reverses]
	if !stored || original.State != transfer.StateSuccess || !original.left(have) {
		return false
	}
	asked := a.bank.reversal(t.ID)
	if asked.All == t.Part {
		return false
	}
	for _, leg := range t.Legs {
		if t.Part && max(leg.Amount, -leg.Amount) != units(asked.Amount) {
			return false
		}
	}
	return true
}

// left reports whether reversals that have moved these sums have moved no more than there
// was to take back.
func (t transferDocument) left(sums map[string]int64) bool {
	moved := map[string]int64{}
	for _, leg := range t.moved() {
		moved[leg.Account] = leg.Amount
	}
	for account, sum := range sums {
		if was := moved[account]; sum == 0 || was == 0 || (sum > 0) == (was > 0) || max(sum, -sum) > max(was, -was) {
			return false
		}
	}
	return true
}

// leftOver returns how much is left to be taken back from those who were paid.
func (t transferDocument) leftOver() int64 {
	rest := int64(0)
	for _, leg := range t.moved() {
		if leg.Amount > 0 {
			rest += leg.Amount + t.Reversed["%00"+leg.Account]
		}
	}
	return rest
}

// sums adds up what transfers have moved, by account.
func (a *audit) sums(ids []string) map[string]int64 {
	sums := map[string]int64{}
	for _, id := range ids {
		for _, leg := range a.transfers[id].Legs {
			sums[leg.Account] += leg.Amount
		}
	}
	return sums
}

// against makes a call of a rival and a call of its own, at the same time or nearly so.
func (c *caller) against(ctx context.Context, other func(rival *caller), own func()) {
	rival := newCaller(c.worker, c.coord, c.Clients)
	rival.name, rival.again = fmt.Sprintf("%s-rival-%d", c.name, c.calls), nil
	rival.known, rival.held, rival.succeeded = slices.Clone(c.known), maps.Clone(c.held), maps.Clone(c.succeeded)
	ended := make(chan struct{})
	delay := time.Duration(c.rng.Int64N(int64(30 * time.Millisecond)))
	go func() {
		defer close(ended)
		if pause(ctx, delay) {
			other(rival)
		}
	}()
	own()
	<-ended
}
