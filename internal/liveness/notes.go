package liveness

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

const (
	// noteLimit bounds a command about notes.
	// A worker that waits longer for an answer knows nothing.
	noteLimit = time.Second
	// keepNotes is how long the note of a process that did not end well is kept.
	// Its transfers have stalled long before, whatever the threshold is.
	keepNotes = 7 * 24 * time.Hour
)

// Note is what a process has noted last.
type Note struct {
	// Process is its identity.
	Process string
	// Seen is when it wrote the note, by the server's clock.
	Seen time.Time
	// Silent says that it has given no note since, for as long as it said it might.
	Silent bool
}

// Notes are the notes of all processes that use a collection of transfers.
//
// They are read as the primary has them, acknowledged by a majority or not: what is
// written here decides nothing, and a majority that lags behind must not make every
// process look dead.
type Notes struct {
	commands *mongo.Collection
	reads    *mongo.Collection
}

// NewNotes returns the notes of a catalog.
func NewNotes(catalog *collections.Catalog) *Notes {
	c := collections.ProcessCollection(catalog.Transfers)
	return &Notes{commands: wire.ForCommands(c), reads: wire.ForReads(c, readconcern.Local())}
}

// Write notes that a process lives, and how long it may give no further note.
func (n *Notes) Write(ctx context.Context, process string, silence time.Duration) error {
	ctx, cancel := context.WithTimeout(wire.Detached(ctx), noteLimit)
	defer cancel()
	v := wire.UpdateAll(ctx, n.commands, []sign{{process, silence}}).Verdicts[0]
	if v.Result == protocol.Applied {
		return nil
	}
	return v.Err
}

// sign is the write of a note.
type sign struct {
	process string
	silence time.Duration
}

// Write encodes the note as a statement.
func (s sign) Write(m *wire.Message) {
	m.Begin("q")
	m.Text("_id", s.process)
	m.End()
	m.Begin("u")
	m.Begin("$set")
	m.Number("silence", s.silence.Milliseconds())
	m.End()
	m.Begin("$currentDate")
	m.Flag("seen", true)
	m.End()
	m.End()
	m.Flag("upsert", true)
}

// Upserts says that the write needs the right to insert as well.
func (s sign) Upserts() {}

// Documents is how many documents the statement writes.
func (s sign) Documents() int { return 1 }

// Size bounds the bytes of the statement.
func (s sign) Size() int { return 256 + len(s.process) }

// Read returns the notes of those of some processes that have given any.
func (n *Notes) Read(ctx context.Context, processes []string) ([]Note, error) {
	ctx, cancel := context.WithTimeout(wire.Detached(ctx), noteLimit)
	defer cancel()
	since := bson.D{{Key: "$subtract", Value: bson.A{"$$NOW", "$silence"}}}
	pipeline := bson.A{
		bson.D{{Key: "$match", Value: bson.D{
			{Key: "_id", Value: bson.D{{Key: "$in", Value: processes}}},
			{Key: "seen", Value: bson.D{{Key: "$type", Value: "date"}}},
			{Key: "silence", Value: bson.D{{Key: "$type", Value: "long"}}},
		}}},
		bson.D{{Key: "$project", Value: bson.D{
			{Key: "seen", Value: 1},
			{Key: "silent", Value: bson.D{{Key: "$lte", Value: bson.A{"$seen", since}}}},
		}}},
	}
	found, err := wire.Aggregate(ctx, n.reads, pipeline)
	if err != nil {
		return nil, err
	}
	notes := make([]Note, 0, len(found))
	for _, stored := range found {
		var note Note
		note.Process, _ = stored.Lookup("_id").StringValueOK()
		note.Seen, _ = stored.Lookup("seen").TimeOK()
		note.Silent, _ = stored.Lookup("silent").BooleanOK()
		notes = append(notes, note)
	}
	return notes, nil
}

// Remove removes the note of a process that has ended well.
func (n *Notes) Remove(ctx context.Context, process string) error {
	return n.remove(ctx, bson.D{{Key: "_id", Value: process}})
}

// RemoveOld removes the notes that are of no use to anybody any more.
func (n *Notes) RemoveOld(ctx context.Context) error {
	before := bson.D{{Key: "$subtract", Value: bson.A{"$$NOW", keepNotes.Milliseconds()}}}
	return n.remove(ctx, bson.D{
		{Key: "seen", Value: bson.D{{Key: "$type", Value: "date"}}},
		{Key: "$expr", Value: bson.D{{Key: "$lt", Value: bson.A{"$seen", before}}}},
	})
}

func (n *Notes) remove(ctx context.Context, filter bson.D) error {
	ctx, cancel := context.WithTimeout(wire.Detached(ctx), noteLimit)
	defer cancel()
	_, err := n.commands.DeleteMany(ctx, filter)
	return wire.ServerErrorOf(err, "remove", wire.NamespaceOf(n.commands))
}
