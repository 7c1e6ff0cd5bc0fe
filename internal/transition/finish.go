package transition

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Finish makes transfers final. It requires no epoch: any execution that finds everything
// settled may finish.
type Finish struct {
	// IDs are those of the transfers.
	IDs []string
	// To is Success or Fail.
	To protocol.State
	// Stamp is the time: the process's clock, corrected as with an insert, if that is
	// fresh. Nothing is judged by this time any more, and the caller then learns the time
	// that is stored.
	Stamp Stamp
}

// Write writes the statement.
func (f Finish) Write(m *wire.Message) {
	m.Begin("q")
	requireIDs(m, f.IDs)
	m.Text("state", string(stateBefore(f.To)))
	f.Stamp.requireInTime(m)
	m.End()
	m.Begin("u")
	m.Begin("$set")
	m.Text("state", string(f.To))
	f.Stamp.setModified(m)
	if !f.Stamp.PurgeAt.IsZero() {
		m.Date(f.Stamp.Event.purgeField(), f.Stamp.PurgeAt)
	}
	m.End()
	f.Stamp.Event.add(m, f.Stamp.Now)
	f.Stamp.leaveModified(m)
	unset(m, "open", "stuck", "stuckAt")
	m.End()
}

// FinishByServerTime finishes one transfer that is purged after a while. The server dates
// the purge by its own clock, or by the one that has stamped the document, if that one is
// ahead.
//
// Where the deployment has events, the server also adds that of the new state, if there
// is one, and sees whether one of the hold still waits: nothing is purged before it is
// delivered.
func FinishByServerTime(
	id string, to protocol.State, purgeAfter time.Duration, events document.Events,
) (filter bson.D, update bson.A) {
	stamped := bson.D{{Key: "$convert", Value: bson.D{
		{Key: "input", Value: "$lastModified"}, {Key: "to", Value: "date"},
		{Key: "onError", Value: "$$NOW"}, {Key: "onNull", Value: "$$NOW"},
	}}}
	now := bson.D{{Key: "$max", Value: bson.A{"$$NOW", stamped}}}
	purge := bson.E{Key: "purgeAt", Value: bson.D{{Key: "$add", Value: bson.A{now, purgeAfter.Milliseconds()}}}}
	set := bson.D{{Key: "state", Value: to}, {Key: "lastModified", Value: "$$NOW"}}
	ended := bson.D{{Key: "$unset", Value: bson.A{"open", "stuck", "stuckAt"}}}
	filter = bson.D{{Key: "_id", Value: id}, {Key: "state", Value: stateBefore(to)}}
	if !events.Any() {
		return filter, bson.A{bson.D{{Key: "$set", Value: append(set, purge)}}, ended}
	}
	purge.Key = "keepUntil"
	outbox := bson.D{{Key: "$cond", Value: bson.A{bson.D{{Key: "$isArray", Value: "$outbox"}}, "$outbox", bson.A{}}}}
	if kind := events.Of(protocol.Operation{Kind: protocol.Finish, To: to}); kind != "" {
		added := bson.A{bson.D{{Key: "kind", Value: string(kind)}, {Key: "at", Value: "$$NOW"}, {Key: "due", Value: "$$NOW"}}}
		outbox = bson.D{{Key: "$concatArrays", Value: bson.A{outbox, added}}}
	}
	update = bson.A{bson.D{{Key: "$set", Value: append(set, purge)}}, ended}
	return filter, append(update, settled(outbox)...)
}
