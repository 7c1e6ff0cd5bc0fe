package history

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

const (
	// maxReads is how often undecided transfers are read again before they are barred.
	// Most are decided within milliseconds, and then nothing has to be written.
	maxReads = 6
	// pauseDoublings is how often the pause between two reads doubles, beginning with a
	// tick.
	pauseDoublings = 4
	// maxBarred is how many transfers are barred at once. If one of them has just been
	// decided, all of them are barred again.
	maxBarred = 100
	// refusalMemory is for how long a missing right to write is not tried again: an
	// auditor's attempts would fill the server's log.
	refusalMemory = time.Minute
)

// undecided are transfers with a trace on the account whose decision is not stored. A
// transfer that is committed by fact is one of them until its record is stored, which is
// its commit for a statement, with a time of its own. No read shows whether such a
// transfer is in the middle of its commit:
//
//  1. Its commit takes the time 12:00:00.000 and is held up, in the server, before it is
//     stored.
//  2. Another transfer on the account is committed at .001, and answered.
//  3. A statement up to .002 has to list the second one, and no read shows the first.
//  4. The first commit is stored: it would appear between entries that were listed
//     already.
type undecided struct {
	ids   []string
	held  bool      // all of them are holds, which may be decided next week
	since time.Time // when the one that has stood still for longest was modified
}

// awaitDecisions returns those of the transfers that are decided, and the IDs of the
// others, when none of those can be committed before the end of the past any more.
//
// It waits only for transfers that are in the middle of their commit. Undecided transfers
// are read a few times, and then barred. How long that takes decides whether something is
// written, but never what is returned. They are barred in portions: on an account with
// thousands of holds one is always decided meanwhile, and undoes only its own portion.
//
// A caller without the right to bar gets the past only up to where an undecided transfer
// was last modified: its commit takes a later time. If that is before the end, the error
// is openError.
//
// The transfers are first read in the session of the context, and the undecided ones then
// in a session that shows what came later.
func (h *History) awaitDecisions(
	ctx context.Context, ids []string, end time.Time,
) (decided []bson.Raw, barred []string, err error) {
	decided, open, err := h.readMarked(ctx, ids)
	if err != nil || len(open.ids) == 0 {
		return decided, nil, err
	}
	session, err := h.causalSession(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	ctx = mongo.NewSessionContext(ctx, session)
	all, size := open.ids, maxBarred
	if h.reader.barring.Recent(h.catalog.Clock.Now()) != nil {
		size = len(all) // none is written to, and the one that has stood still for longest counts
	}
	for start := 0; start < len(all); start += size {
		portion := all[start:min(start+size, len(all))]
		if len(portion) < len(all) {
			if decided, open, err = h.readMore(ctx, decided, portion); err != nil {
				return nil, nil, err
			}
		}
		if decided, open, err = h.awaitPortion(ctx, decided, open, end); err != nil {
			return nil, nil, err
		}
		barred = append(barred, open.ids...)
	}
	h.seen, err = operationTime(session)
	return decided, barred, err
}

// awaitPortion waits for a portion of the undecided transfers, and adds those that are
// decided to the others. It returns the ones that were barred.
func (h *History) awaitPortion(
	ctx context.Context, decided []bson.Raw, open undecided, end time.Time,
) ([]bson.Raw, undecided, error) {
	for n := 0; len(open.ids) > 0; n++ {
		if n >= maxReads || open.held {
			closed, err := h.barOrCompare(ctx, open, end)
			if err != nil || closed {
				return decided, open, err
			}
		}
		err := collections.Pause(ctx, document.Tick<<min(n, pauseDoublings))
		if err != nil {
			return nil, undecided{}, err
		}
		if decided, open, err = h.readMore(ctx, decided, open.ids); err != nil {
			return nil, undecided{}, err
		}
	}
	return decided, open, nil
}

// readMore reads transfers again, and adds those that are decided to the others.
func (h *History) readMore(ctx context.Context, decided []bson.Raw, ids []string) ([]bson.Raw, undecided, error) {
	more, open, err := h.readMarked(ctx, ids)
	return append(decided, more...), open, err
}

// readMarked reads transfers, and separates the decided ones from the others. A transfer
// that doesn't exist was purged, or removed by somebody: it will not be committed.
func (h *History) readMarked(ctx context.Context, ids []string) (decided []bson.Raw, open undecided, err error) {
	keys := make(bson.A, len(ids))
	for i, id := range ids {
		keys[i] = id
	}
	fields := append(h.projection(), bson.E{Key: "state", Value: 1}, bson.E{Key: "held", Value: 1},
		bson.E{Key: "lastModified", Value: 1})
	found, err := wire.FindByID(ctx, h.catalog.Majority, keys, options.Find().SetProjection(fields))
	if err != nil {
		return nil, undecided{}, err
	}
	open.held = true
	for _, raw := range found {
		if !isUndecided(raw) {
			decided = append(decided, raw)
			continue
		}
		id, _ := raw.Lookup("_id").StringValueOK()
		held, _ := raw.Lookup("held").BooleanOK()
		open.ids = append(open.ids, id)
		open.held = open.held && held
		modified, _ := raw.Lookup("lastModified").TimeOK()
		if open.since.IsZero() || modified.Before(open.since) {
			open.since = modified.UTC()
		}
	}
	return decided, open, nil
}

// isUndecided reports whether a projected transfer has a leg on the account and is not
// decided.
func isUndecided(raw bson.Raw) bool {
	_, has := raw.Lookup("legs", "0").DocumentOK()
	state, _ := raw.Lookup("state").StringValueOK()
	return has && protocol.State(state) == protocol.Preparing && document.Absent(raw.Lookup("committedAt"))
}

// openError is returned where the past can't be closed up to its end without a write, for
// which there is no right.
type openError struct {
	until time.Time // up to where it is closed
	cause error     // the server's refusal
}

// Error names the right that is missing.
func (e openError) Error() string {
	return "after " + e.until.Format(time.RFC3339Nano) + " a transfer is not decided: " + e.cause.Error()
}

// Unwrap returns the server's refusal.
func (e openError) Unwrap() error { return e.cause }

// barOrCompare bars undecided transfers, and reports whether none of them can be
// committed before the end any more. Without the right to write it compares when they
// were last modified with the end.
func (h *History) barOrCompare(ctx context.Context, open undecided, end time.Time) (closed bool, err error) {
	now := h.catalog.Clock.Now
	refusal := h.reader.barring.Recent(now())
	if refusal == nil {
		barred, err := h.bar(ctx, open.ids)
		if wire.Denied(err) == nil {
			return barred, err
		}
		refusal = err
		h.reader.barring.Record(now(), err)
	}
	if open.since.Before(end) {
		return false, openError{open.since, refusal}
	}
	return true, nil
}

// bar writes to undecided transfers, and reports whether each was still undecided then.
// If so, no commit of theirs takes a time from before this write any more.
//
// The reason is that the server lets one write at a time change a document:
//
//   - A commit that has taken its time, and is not stored yet, is in the way of this
//     write. The write waits until the commit is stored, and then doesn't match.
//   - A commit that would be stored after this write has to begin again, with the
//     document as it is now and with a new time.
//
// If fewer transfers have matched, it is not known which, and nothing is known of any. A
// replaced primary answers that way as well, for all of them.
func (h *History) bar(ctx context.Context, ids []string) (bool, error) {
	statements := make([]wire.Encoded, len(ids))
	for i, id := range ids {
		filter := bson.D{{Key: "_id", Value: id}, {Key: "state", Value: protocol.Preparing}}
		var err error
		statements[i], err = wire.EncodeUpdate(filter, bson.D{{Key: "$inc", Value: bson.D{{Key: "verified", Value: int64(1)}}}})
		if err != nil {
			return false, err
		}
	}
	for _, v := range wire.UpdateAll(ctx, h.catalog.Transfers, statements).Verdicts {
		switch v.Result {
		case protocol.Applied:
		case protocol.NotMatched:
			return false, nil
		case protocol.Unknown, protocol.NotSent, protocol.Failed:
			return false, v.Err
		}
	}
	return true, nil
}
