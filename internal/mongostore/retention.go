package mongostore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// Final transfers are removed by the server, by an index on the time that their finish has set; no other write sets it. What may be gone
// is told by a collection of its own, with a document for each retention that was ever in use: { _id: its milliseconds, since: when it
// was first used }.

const (
	// ShortestRetention keeps the ID of a final transfer for longer than any message about it may be on its way, and any caller may
	// want to ask again.
	ShortestRetention = time.Hour
	// finishLimit is how late a finish may arrive that names the time of the purge. 1. A stamps a finish with the end of an hour, and is
	// frozen. 2. It wakes two hours later and sends it: the transfer would be purged the moment it is final, and its ID free for a
	// caller who asks once more.
	finishLimit = time.Minute
	// historyMargin is what the history is told to be shorter than the retention: a late finish, servers whose clocks differ, and a
	// statement that is being read.
	historyMargin = 5 * time.Minute
	// retentionAge is how long what was read of retentions is used. A retention that came into use since has purged nothing yet.
	retentionAge = time.Minute
)

// retention removes final transfers after a while, and knows which retentions were ever used.
type retention struct {
	after     time.Duration // 0: they are kept
	commands  *mongo.Collection
	majority  *mongo.Collection
	declaring turns
	declared  atomic.Bool // it is stored that this retention is in use

	mu   sync.Mutex
	used []usedRetention
	read time.Time // when used was read, by the process's clock
}

// usedRetention is a document of the collection of retentions.
type usedRetention struct {
	Milliseconds int64     `bson:"_id"`
	Since        time.Time `bson:"since"`
	Owing        time.Time `bson:"owing,omitempty"` // see declaration
}

func newRetention(after time.Duration, transfers *mongo.Collection) *retention {
	c := retentionCollection(transfers)
	return &retention{after: after, commands: handle(c), majority: reading(c, readconcern.Majority()), declaring: make(turns, 1)}
}

// retentionCollection returns the collection of the retentions that are in use.
func retentionCollection(transfers *mongo.Collection) *mongo.Collection {
	return transfers.Database().Collection(transfers.Name() + ".retention")
}

// Purges returns how long final transfers are kept, once that is stored; false: for good.
func (s *Deployment) Purges() (after time.Duration, purges bool) {
	return s.retention.after, s.retention.declared.Load()
}

// declare makes sure, once, that everybody can know of the retention before it purges anything.
func (s *Deployment) declare(ctx context.Context) error {
	r := s.retention
	if r.after == 0 || r.declared.Load() {
		return nil
	}
	if err := r.declaring.acquire(ctx); err != nil {
		return err
	}
	defer r.declaring.release()
	if r.declared.Load() {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, CommandLimit)
	defer cancel()
	// What a majority has stored of it stays, so that it need not be written again.
	if _, err := one(limited, r.majority, r.after.Milliseconds()); !missing(err) {
		r.declared.Store(err == nil)
		return serverErrorOf(err, "find", namespaceOf(r.majority))
	}
	now, err := s.serverTime(limited)
	if err != nil {
		return err
	}
	owing, err := s.oldestOwing(limited)
	if err != nil {
		return err
	}
	v := updateAll(limited, r.commands, []declaration{{r.after, now, owing}}).verdicts[0]
	switch v.result {
	case protocol.Applied:
		r.declared.Store(true)
		return nil
	case protocol.NotMatched:
		return errors.New("the server has not stored which retention is in use")
	case protocol.Failed:
		return fmt.Errorf("%w: which retention is in use can't be stored in %s: %w", ErrUnsupported, namespaceOf(r.commands), v.err)
	case protocol.Unknown, protocol.NotSent:
	}
	return v.err
}

// declaration is the write of a retention. It counts, because a write that changes
// nothing is acknowledged without asking anybody: a cut-off old primary might say that it
// is stored already.
//
// What was committed before the first use, and finished by then, is never purged. What
// was not finished may be finished by whoever uses the retention, and so purged: owing is
// when the oldest of those was committed, zero if there were none.
type declaration struct {
	after time.Duration
	since time.Time
	owing time.Time
}

func (d declaration) write(m *message) {
	m.begin("q")
	m.number("_id", d.after.Milliseconds())
	m.end()
	m.begin("u")
	m.begin("$setOnInsert")
	m.date("since", d.since)
	if !d.owing.IsZero() {
		m.date("owing", d.owing)
	}
	m.end()
	m.begin("$inc")
	m.number("coordinators", 1)
	m.end()
	m.end()
	m.flag("upsert", true)
}

// Upserts says that the write needs the right to insert as well.
func (d declaration) Upserts() {}

func (d declaration) documents() int { return 1 }

func (d declaration) size() int { return 256 }

// HistoryFrom returns from when on the history is whole: no transfer that was committed later has been purged, or will be while the
// answer is used. It is zero where none was ever purged.
func (s *Deployment) HistoryFrom(ctx context.Context) (time.Time, error) {
	ctx = detached(ctx)
	used, err := s.usedRetentions(ctx)
	if err != nil || len(used) == 0 {
		return time.Time{}, err
	}
	now, err := s.serverTime(ctx)
	if err != nil {
		return time.Time{}, err
	}
	var from time.Time
	for _, u := range used {
		whole := now.Add(historyMargin - time.Duration(u.Milliseconds)*time.Millisecond)
		if whole.After(u.Since) && whole.After(from) { // before that its first transfer is not due yet
			from = whole
		}
	}
	return from, nil
}

// usedRetentions returns the retentions that were ever in use, read a moment ago.
func (s *Deployment) usedRetentions(ctx context.Context) ([]usedRetention, error) {
	r := s.retention
	r.mu.Lock()
	used, age := r.used, s.clock.now().Sub(r.read)
	r.mu.Unlock()
	if age >= 0 && age < retentionAge {
		return used, nil
	}
	before := s.clock.now()
	byID := bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: 0}}}} // by the index
	used = nil
	if err := findAll(ctx, r.majority, byID, &used); err != nil {
		return nil, fmt.Errorf("read %s: %w", namespaceOf(r.majority), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used, r.read = used, before
	return used, nil
}

// datePurge sets when what the requests finish is purged. Where the server's time has to be asked for first, the other requests don't
// wait for that: they are performed, and the finishes returned.
func (s *Store) datePurge(ctx context.Context, requests []*Call, at stamp, after time.Duration) ([]*Call, stamp) {
	if !at.fresh {
		var finishes, others []*Call
		for _, r := range requests {
			if r.Op.Kind == protocol.Finish {
				finishes = append(finishes, r)
			} else {
				others = append(others, r)
			}
		}
		s.changeAt(ctx, others, at)
		if len(finishes) == 0 {
			return nil, at
		}
		now, err := s.serverTime(ctx)
		if err != nil {
			answerAll(finishes, protocol.NotSent, err)
			return nil, at
		}
		requests, at.now, at.fresh = finishes, now, true
	}
	at.purge = at.now.Add(after).Truncate(time.Millisecond) // as it will be read back
	return requests, at
}

// inTime requires of a finish that names the time of the purge that it arrives soon, by the server's clock.
func (a stamp) inTime(m *message) {
	if a.purge.IsZero() {
		return
	}
	m.begin("$expr")
	m.beginArray("$lt")
	m.text("0", "$$NOW")
	m.date("1", a.now.Add(finishLimit))
	m.end()
	m.end()
}

// finishLate performs those finishes of which an earlier one has not matched, which may
// be due to the time that it named, and returns the other requests. That time was
// estimated: the transfer's server may be ahead of it by more than the limit for good,
// where a mongos tells the time, and no finish would ever match. So the server dates the
// purge of these itself, by its clock, or by the one that has stamped the document, if
// that is ahead; one by one, as nobody else knows that time then.
func (s *Store) finishLate(ctx context.Context, requests []*Call, after time.Duration) []*Call {
	if !slices.ContainsFunc(requests, (*Call).late) {
		return requests
	}
	var rest []*Call // and not in their place: the list is the caller's
	for _, r := range requests {
		if r.late() {
			s.finishOne(ctx, r, after)
		} else {
			rest = append(rest, r)
		}
	}
	return rest
}

// late reports whether the request is a finish, and an earlier one has not matched.
func (r *Call) late() bool { return r.Op.Kind == protocol.Finish && r.Attempt.late }

func (s *Store) finishOne(ctx context.Context, r *Call, after time.Duration) {
	stamped := bson.D{{Key: "$convert", Value: bson.D{
		{Key: "input", Value: "$lastModified"}, {Key: "to", Value: "date"},
		{Key: "onError", Value: "$$NOW"}, {Key: "onNull", Value: "$$NOW"},
	}}}
	now := bson.D{{Key: "$max", Value: bson.A{"$$NOW", stamped}}}
	set := bson.D{
		{Key: "state", Value: r.Op.To},
		{Key: "lastModified", Value: "$$NOW"},
		{Key: "purgeAt", Value: bson.D{{Key: "$add", Value: bson.A{now, after.Milliseconds()}}}},
	}
	filter := bson.D{{Key: "_id", Value: r.Attempt.Transfer.ID}, {Key: "state", Value: finishedFrom(r.Op.To)}}
	update := bson.A{
		bson.D{{Key: "$set", Value: set}},
		bson.D{{Key: "$unset", Value: bson.A{"open", "stuck", "stuckAt"}}},
	}
	finished, result, err := findAndModify(ctx, s.transfers, filter, update)
	r.answer(result, err)
	if result != protocol.Applied {
		return
	}
	r.changed(stamp{})
	if t, err := decodeTransfer(finished); err == nil {
		r.Attempt.Transfer = t
	}
}
