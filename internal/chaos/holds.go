package chaos

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/mongotransfer/transfer"
)

const (
	// holdPrefix begins the IDs of holds.
	// A process that asks for such an ID again asks for a hold.
	holdPrefix = "hold "
	// shortestHeld and longestHeld bound how long a hold is held.
	// At the end all holds have to expire.
	shortestHeld = 300 * time.Millisecond
	longestHeld  = 5 * time.Second
	// heldLonger is for how long a hold is extended: longer than one may be held already.
	heldLonger = 6 * time.Second
)

// sharedHold returns the ID of the hold that all callers of all workers mean at the
// moment.
func sharedHold() string {
	return fmt.Sprintf("%sshared-%d", holdPrefix, time.Now().UnixNano()/int64(sharedPeriod))
}

// hold asks for a hold.
// The time for which it is held counts only for the caller that stores it.
func (c *caller) hold(ctx context.Context, id string) {
	howLong := shortestHeld + time.Duration(c.rng.Int64N(int64(longestHeld-shortestHeld)))
	c.call(ctx, verbHold, id, func(ctx context.Context, name string) (transfer.Record, error) {
		return c.coord.Hold(ctx, c.named(c.bank.request(id), name), howLong)
	})
}

// holds asks for a hold, perhaps extends it, and then decides it or lets it expire.
func (c *caller) holds(ctx context.Context) {
	id := holdPrefix + c.newID()
	if c.rng.IntN(4) == 0 {
		id = sharedHold()
	}
	c.hold(ctx, id)
	switch c.rng.IntN(6) {
	case 0:
		c.extend(ctx, id)
	case 1: // A rival extends it while it is decided below, or expires.
		c.against(ctx, func(rival *caller) { rival.extend(ctx, id) }, func() { c.endHold(ctx, id) })
		return
	}
	c.endHold(ctx, id)
}

// endHold decides a hold, alone or against a rival, or lets it expire.
func (c *caller) endHold(ctx context.Context, id string) {
	switch dice := c.rng.IntN(10); {
	case dice < 4:
		c.post(ctx, id)
	case dice < 5:
		c.void(ctx, id)
	case dice < 6:
		c.cancel(ctx, id)
	case dice < 8:
		c.against(ctx, func(rival *caller) { rival.decideHold(ctx, id) }, func() { c.post(ctx, id) })
	default: // The hold expires, unless another caller decides it.
	}
}

// decideHold posts a hold, or voids it.
func (c *caller) decideHold(ctx context.Context, id string) {
	if c.rng.IntN(2) == 0 {
		c.post(ctx, id)
	} else {
		c.void(ctx, id)
	}
}

// post posts all of a hold, or a part if the hold is between two accounts.
func (c *caller) post(ctx context.Context, id string) {
	var part int64
	var options []transfer.PostOption
	if req := c.bank.request(id); len(req.Legs) == 0 && c.rng.IntN(2) == 0 {
		if most := units(req.Amount); most > 1 {
			part = 1 + c.rng.Int64N(most-1)
			options = append(options, transfer.PostAmount(transfer.Units(part)))
		}
	}
	c.callEntry(ctx, entry{Verb: verbPost, ID: id, Part: part, Known: c.knows(id), Held: c.held[id]},
		func(ctx context.Context, _ string) (transfer.Record, error) { return c.coord.Post(ctx, id, options...) })
}

func (c *caller) void(ctx context.Context, id string) {
	c.call(ctx, verbVoid, id, func(ctx context.Context, _ string) (transfer.Record, error) { return c.coord.Void(ctx, id) })
}

// extend lets a hold expire later.
func (c *caller) extend(ctx context.Context, id string) {
	c.callEntry(ctx, entry{Verb: verbExtend, ID: id, Known: c.knows(id), Held: c.held[id]},
		func(ctx context.Context, _ string) (transfer.Record, error) {
			return c.coord.Extend(ctx, id, heldLonger)
		})
}

// isHold reports whether an ID is the ID of a hold.
func isHold(id string) bool { return strings.HasPrefix(id, holdPrefix) }

// holds checks that a caller may have decided each hold, and that it was decided as a
// hold may be.
func (a *audit) holds(entries []entry) {
	mayVoid := map[string]bool{}
	for _, e := range entries {
		if e.Verb == verbVoid && (e.Word == done || e.Word == inDoubt || e.Word == unanswered) {
			mayVoid[e.ID] = true
		}
	}
	for id, t := range a.transfers {
		if wrong := wrongHold(t, mayVoid[id]); wrong != "" {
			a.wrong("hold "+id, t, "transfer %s %s", id, wrong)
		}
	}
	a.posts(entries)
}

// wrongHold returns what is wrong with a transfer at rest: with a hold, or with a
// transfer that is not a hold but looks like one.
func wrongHold(t transferDocument, mayVoid bool) string {
	switch code := t.Failure.Code; {
	case t.Hold != isHold(t.ID):
		return "is a hold, or is none, and should not be"
	case t.Hold && t.forward():
		return wrongPost(t)
	case t.Hold:
		return wrongVoid(t, mayVoid)
	case t.Held || t.Posted != 0 || code == "voided" || code == "expired":
		return "is no hold, and was treated as one"
	}
	return ""
}

// wrongPost returns what is wrong with a hold that was posted.
func wrongPost(t transferDocument) string {
	switch {
	case !t.Held:
		return "was posted, and never held"
	case t.Posted < 0 || t.Posted != 0 && (len(t.Legs) != 2 || t.Posted >= max(t.Legs[0].Amount, -t.Legs[0].Amount)):
		return "was posted with an amount that is no part of it"
	}
	return ""
}

// wrongVoid returns what is wrong with a hold that was not posted.
func wrongVoid(t transferDocument, mayVoid bool) string {
	switch code := t.Failure.Code; {
	case code == "stalled":
		return "is a hold, and was taken for stalled"
	case t.Held && code != "voided" && code != "expired" && code != "cancelled":
		return "was held, and failed for " + code
	case code == "voided" && !mayVoid:
		return "is voided, and nobody who asked for that was told so, or left in doubt"
	case t.Posted != 0:
		return "is posted, and was not"
	}
	return ""
}

// posts checks that for each posted hold, a caller posted exactly that amount and got
// that outcome or was left in doubt.
func (a *audit) posts(entries []entry) {
	may := map[string]map[int64]bool{}
	for _, e := range entries {
		if e.Verb == verbPost && (e.Word == done || e.Word == inDoubt || e.Word == unanswered) {
			if may[e.ID] == nil {
				may[e.ID] = map[int64]bool{}
			}
			may[e.ID][e.Part] = true
		}
	}
	for id, t := range a.transfers {
		if t.Hold && t.forward() && !may[id][t.Posted] {
			a.wrong("posted "+id, t, "transfer %s is posted with %d (0: all), and nobody who asked for that was told so, or left in doubt",
				id, t.Posted)
		}
	}
}
