package history

import (
	"context"
	"sync"
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
	// MaxLooks is how often outstanding transfers are looked at before they are barred.
	// Most are decided within milliseconds, and then nothing has to be written.
	MaxLooks = 6
	// restDoublings is how often the pause between two looks doubles, from a tick on.
	restDoublings = 4
)

// undecided are transfers with a marker on the account that are not decided. No read
// tells whether such a transfer is in the middle of its commit:
//
//  1. Its commit takes the time 12:00:00.000 and is held up, in the server, before it is
//     stored.
//  2. Another one on the account is committed at .001, and answered.
//  3. A statement up to .002 has to list the second, and no read shows the first.
//  4. The first one is stored: it would show up between what was listed.
type undecided struct {
	ids   []string
	held  bool      // all of them are holds, which may be decided next week
	since time.Time // when the one of them that has stood still for longest was modified
}

// awaitDecisions returns those of the transfers that are decided, when none of the others can be
// committed before the end of the closing any more. Only those that are in the middle of
// their commit are waited for: an outstanding transfer is looked at a few times, and then
// barred. How long that takes decides whether there is a write, and never what is told.
//
// Where the right to bar is missing, the past is closed only up to where an outstanding
// transfer was last modified: its commit takes a later time. The error is openError where
// that is before the end.
//
// The transfers are looked at in the session of the context; the outstanding ones then in
// one that shows what has come since.
func (h *History) awaitDecisions(ctx context.Context, ids []string, end time.Time) ([]bson.Raw, error) {
	decided, open, err := h.readMarked(ctx, ids)
	if err != nil || len(open.ids) == 0 {
		return decided, err
	}
	session, err := h.session(options.Session().SetCausalConsistency(true))
	if err != nil {
		return nil, err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	if err := session.AdvanceOperationTime(h.seen); err != nil {
		return nil, err
	}
	ctx = mongo.NewSessionContext(ctx, session)
	for n := 0; len(open.ids) > 0; n++ {
		if n >= MaxLooks || open.held {
			barred, err := h.barOrRead(ctx, open, end)
			if err != nil {
				return nil, err
			}
			if barred {
				break
			}
		}
		if err := collections.Pause(ctx, document.Tick<<min(n, restDoublings)); err != nil {
			return nil, err
		}
		var more []bson.Raw
		if more, open, err = h.readMarked(ctx, open.ids); err != nil {
			return nil, err
		}
		decided = append(decided, more...)
	}
	h.seen, err = clusterTime(session)
	return decided, err
}

// readMarked reads transfers and tells which of them are outstanding. A transfer that is not
// there has been purged, or removed by somebody: it is not going to be committed.
func (h *History) readMarked(ctx context.Context, ids []string) ([]bson.Raw, undecided, error) {
	keys := make(bson.A, len(ids))
	for i, id := range ids {
		keys[i] = id
	}
	fields := append(h.projection(), bson.E{Key: "state", Value: 1}, bson.E{Key: "held", Value: 1},
		bson.E{Key: "lastModified", Value: 1})
	documents, err := wire.FindByID(ctx, h.store.Majority, keys, options.Find().SetProjection(fields))
	if err != nil {
		return nil, undecided{}, err
	}
	var decided []bson.Raw
	open := undecided{held: true}
	for _, document := range documents {
		if !isUndecided(document) {
			decided = append(decided, document)
			continue
		}
		id, _ := document.Lookup("_id").StringValueOK()
		held, _ := document.Lookup("held").BooleanOK()
		open.ids = append(open.ids, id)
		open.held = open.held && held
		modified, _ := document.Lookup("lastModified").TimeOK()
		if open.since.IsZero() || modified.Before(open.since) {
			open.since = modified.UTC()
		}
	}
	return decided, open, nil
}

// isUndecided judges a projected transfer. One without a leg on the account is no
// concern of it.
func isUndecided(doc bson.Raw) bool {
	_, has := doc.Lookup("legs", "0").DocumentOK()
	state, _ := doc.Lookup("state").StringValueOK()
	return has && protocol.State(state) == protocol.Preparing && document.Absent(doc.Lookup("committedAt"))
}

// openError is returned where the past can't be closed up to its end without a write, for
// which there is no right.
type openError struct {
	until time.Time // up to which it is closed
	cause error     // the server's refusal
}

// Error names the right that is missing.
func (e openError) Error() string {
	return "after " + e.until.Format(time.RFC3339Nano) + " a transfer is not decided: " + e.cause.Error()
}

// Unwrap returns the server's refusal.
func (e openError) Unwrap() error { return e.cause }

// barOrRead bars outstanding transfers. Without the right to write it reports whether none
// of them can be committed before the end all the same.
func (h *History) barOrRead(ctx context.Context, open undecided, end time.Time) (bool, error) {
	refusal := h.store.barless.recentFailure(h.store.Clock.Now())
	if refusal == nil {
		barred, err := h.Bar(ctx, open.ids)
		if wire.Refused(err) == nil {
			return barred, err
		}
		refusal = err
		h.store.barless.recordFailure(h.store.Clock.Now(), err)
	}
	if open.since.Before(end) {
		return false, openError{open.since, refusal}
	}
	return true, nil
}

// refusalMemory is for how long a right that was found to be missing is not tried again:
// an auditor's attempts to write would fill the server's log.
const refusalMemory = time.Minute

// refusal is what is known of a right.
type refusal struct {
	mu    sync.Mutex
	cause error // the latest refusal
	at    time.Time
}

// recordFailure takes down that the right is missing.
func (r *refusal) recordFailure(now time.Time, cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cause, r.at = cause, now
}

// recentFailure returns the server's refusal, nil if it is none, or old.
func (r *refusal) recentFailure(now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if age := now.Sub(r.at); age < 0 || age >= refusalMemory {
		return nil
	}
	return r.cause
}

// Bar writes to outstanding transfers, and reports whether each was still undecided then:
// no commit of theirs takes a time from before that any more. The server lets one write
// at a time change a document. A commit that has taken its time and is not stored is in
// the way of this write, which waits until it is, and then doesn't match; a commit that
// comes to be stored after this write has to begin again, with the document as it is now
// and a new time.
//
// If fewer have matched it is not known which, and nothing is known of any: a replaced
// primary, too, says so, of all of them.
func (h *History) Bar(ctx context.Context, ids []string) (bool, error) {
	statements := make([]wire.Encoded, len(ids))
	for i, id := range ids {
		filter := bson.D{{Key: "_id", Value: id}, {Key: "state", Value: protocol.Preparing}}
		var err error
		statements[i], err = wire.EncodeUpdate(filter, bson.D{{Key: "$inc", Value: bson.D{{Key: "verified", Value: int64(1)}}}})
		if err != nil {
			return false, err
		}
	}
	for _, v := range wire.UpdateAll(ctx, h.store.Transfers, statements).Verdicts {
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
