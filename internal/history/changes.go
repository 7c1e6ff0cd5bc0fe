package history

import (
	"context"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/wire"
)

const (
	// changeTime is for how long a server waits for a change before it reports that there
	// was none.
	changeTime = 250 * time.Millisecond
	// maxChangeWaits is how often that may happen. A change that is stored is reported at
	// once by a replica set, and later by a cluster of which another shard is idle.
	maxChangeWaits = 12
)

// changes order transfers and a read of the account that is between two readings of the
// transfers' clock. They do so by what the account's own server reports of the account:
//
//   - The account is read as of one time of its cluster, by which the server had stored
//     all that it had acknowledged before.
//   - It is read as of an earlier time, too, which was reached before the first reading
//     of the clock. A transfer that has a trace in this read, and none in the later one,
//     was settled in between: it is in.
//   - A transfer of which neither has a trace was prepared after the earlier time: had it
//     been settled by then, its commit would have a time from before the first reading of
//     the clock. So the changes since then show its first trace. It is in exactly if that
//     came no later than the time of the read, as its trace had gone by then.
//
// Every transfer that is ordered is committed, and so it was prepared. Its first trace is
// stored, and the server reports it.
type changes struct {
	history *History
	// since is the earlier time, nil where changes are not asked for: then nothing is
	// ordered.
	since *bson.Timestamp
	// read is the time of the read.
	read bson.Timestamp
	// traced are the transfers that had a trace at the earlier time.
	traced []string
	// unordered are those to be ordered.
	unordered []Entry
}

// readApart reads an account that is in another cluster than the transfers, and what its
// changes are ordered by. The first time there is no earlier time to begin with, and most
// often there is no transfer to order.
func (h *History) readApart(ctx context.Context) (storedAccount, *changes, error) {
	since := h.reached
	session, err := h.ledger.Cluster().Client.StartSession(options.Session().SetCausalConsistency(true))
	if err != nil {
		return storedAccount{}, nil, err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	stored, err := h.readAccount(mongo.NewSessionContext(ctx, session), h.ledger.Linearizable)
	if err != nil || !stored.found {
		return stored, nil, err
	}
	if h.reached, err = operationTime(session); err != nil {
		return stored, nil, err
	}
	c := &changes{history: h, read: *h.reached}
	if since == nil || h.reader.changes.Recent(h.catalog.Clock.Now()) != nil {
		return stored, c, nil
	}
	earlier, err := h.readAccountAt(ctx, *since)
	if err != nil {
		return stored, nil, err
	}
	c.since, c.traced = since, earlier.traces()
	stored, err = h.readAccountAt(ctx, c.read)
	return stored, c, err
}

// readAccountAt reads the account as of a time of its cluster.
func (h *History) readAccountAt(ctx context.Context, at bson.Timestamp) (storedAccount, error) {
	snapshot := options.Session().SetSnapshot(true).SetSnapshotTime(at)
	session, err := h.ledger.Cluster().Client.StartSession(snapshot)
	if err != nil {
		return storedAccount{}, err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	return h.readAccount(mongo.NewSessionContext(ctx, session), h.ledger.Majority)
}

// add notes a transfer that has to be ordered.
func (c *changes) add(e Entry) error {
	if c.since == nil {
		return errUnordered
	}
	c.unordered = append(c.unordered, e)
	return nil
}

// takeOff takes off a balance what the noted transfers have moved that are in.
func (c *changes) takeOff(ctx context.Context, balance money.Amount) (money.Amount, error) {
	in, err := c.order(wire.Detached(ctx))
	if wire.Denied(err) != nil {
		c.history.reader.changes.Record(c.history.catalog.Clock.Now(), err)
		err = errUnordered
	}
	for _, e := range c.unordered {
		if err == nil && in[e.TransferID] {
			balance, err = Plus(balance, e.Amount.Neg())
		}
	}
	return balance, err
}

// order says of each noted transfer whether it is in.
func (c *changes) order(ctx context.Context) (in map[string]bool, err error) {
	in, missing := map[string]bool{}, map[string]bool{}
	for _, e := range c.unordered {
		missing[e.TransferID] = true
	}
	for _, id := range c.traced {
		in[id] = missing[id]
		delete(missing, id)
	}
	if len(missing) == 0 {
		return in, nil
	}
	stream, err := c.watch(ctx)
	if err != nil {
		return in, err
	}
	defer func() { _ = stream.Close(context.WithoutCancel(ctx)) }()
	for waits := 0; len(missing) > 0; {
		if !stream.TryNext(ctx) {
			if err := stream.Err(); err != nil {
				return in, wire.ServerErrorOf(err, "changeStream", c.history.ledger.Namespace)
			}
			if waits++; waits > maxChangeWaits || stream.ID() == 0 {
				return in, errUnordered // somebody has stored a transfer without its trace
			}
			continue
		}
		seconds, number := stream.Current.Lookup("clusterTime").Timestamp()
		before := !bson.Timestamp{T: seconds, I: number}.After(c.read)
		for _, id := range c.history.tracesIn(stream.Current) {
			if missing[id] {
				in[id] = before
				delete(missing, id)
			}
		}
	}
	return in, nil
}

// watch opens a stream of the account's changes since the earlier time.
func (c *changes) watch(ctx context.Context) (*mongo.ChangeStream, error) {
	h := c.history
	pipeline := bson.A{
		bson.D{{Key: "$match", Value: bson.D{{Key: "documentKey._id", Value: h.key}}}},
		bson.D{{Key: "$project", Value: bson.D{
			{Key: "clusterTime", Value: 1}, {Key: "updateDescription.updatedFields", Value: 1},
			{Key: "fullDocument." + h.catalog.Fields.Pending, Value: 1},
		}}},
	}
	stream, err := h.ledger.Majority.Watch(ctx, pipeline,
		options.ChangeStream().SetStartAtOperationTime(c.since).SetMaxAwaitTime(changeTime))
	return stream, wire.ServerErrorOf(err, "changeStream", h.ledger.Namespace)
}

// tracesIn returns the IDs of the transfers of which a change shows a trace. The server
// reports the whole document where that is shorter, the map of markers where it is new,
// and otherwise each entry of the map that was set.
func (h *History) tracesIn(change bson.Raw) []string {
	var ids []string
	updated, _ := change.Lookup("updateDescription", "updatedFields").DocumentOK()
	whole, _ := change.Lookup("fullDocument").DocumentOK()
	for _, shown := range []bson.Raw{updated, whole} {
		view := h.catalog.Fields.View(shown)
		ids = append(ids, view.InFlight()...)
		for _, paid := range view.Paid() {
			ids = append(ids, paid.Transfer)
		}
	}
	for _, element := range wire.Elements(updated) {
		key, _ := document.CutDone(element.Key())
		if marker, is := strings.CutPrefix(key, h.catalog.Fields.Pending+"."); is {
			if id, ok := document.TransferOf(marker); ok {
				ids = append(ids, id)
			}
		}
	}
	return ids
}
