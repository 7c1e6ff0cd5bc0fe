package memory

import (
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// command is a command with what it names.
type command struct {
	dated    *bool // it has inserted a document, or stored the time of day
	server   *Server
	body     bson.D
	database string
	name     string // that of the collection, where the command is about one
	scope    scope
}

// perform performs a command and returns the reply. It reports whether the command has
// inserted a document, or stored the time of day.
func (s *Server) perform(body bson.D) (reply bson.D, dated bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := command{dated: &dated, server: s, body: body, database: text(body, "$db"), scope: s.scope()}
	verb := ""
	if len(body) > 0 {
		verb = body[0].Key
		c.name, _ = body[0].Value.(string)
	}
	reply, err := c.perform(verb)
	if err != nil {
		reply = append(bson.D{{Key: "ok", Value: float64(0)}}, fields(err)...)
	} else {
		reply = append(reply, bson.E{Key: "ok", Value: float64(1)})
	}
	return append(reply, bson.E{Key: "operationTime", Value: s.time()}), dated
}

// time returns the time of the latest write.
func (s *Server) time() bson.Timestamp {
	if s.latest == (bson.Timestamp{}) {
		return s.tick()
	}
	return s.latest
}

func (c command) perform(verb string) (bson.D, error) {
	switch strings.ToLower(verb) {
	case "hello", "ismaster": // whatever it says of the client
		return c.hello(), nil
	case "buildinfo":
		return bson.D{{Key: "version", Value: serverVersion}}, nil
	case "ping", "endsessions", "killcursors":
		return nil, nil
	case "insert":
		return c.with(c.insert, "documents", "ordered")
	case "update":
		return c.with(c.update, "updates", "ordered")
	case "delete":
		return c.with(c.delete, "deletes", "ordered")
	case "findandmodify":
		return c.with(c.findAndModify, "query", "sort", "update", "remove", "upsert", "new", "fields")
	case "find":
		return c.with(c.find, "filter", "sort", "skip", "limit", "projection", "batchSize", "singleBatch", "allowDiskUse")
	case "aggregate":
		return c.with(c.aggregate, "pipeline", "cursor", "allowDiskUse")
	}
	return c.manage(verb)
}

// serverVersion is that of the server whose answers these are: what wire version 17
// stands for.
const serverVersion = "6.0.0"

// hello says what the driver wants to know of the primary of a replica set of one.
func (c command) hello() bson.D {
	return bson.D{
		{Key: "helloOk", Value: true}, {Key: "ismaster", Value: true}, {Key: "isWritablePrimary", Value: true}, {Key: "secondary", Value: false},
		{Key: "setName", Value: "memory"}, {Key: "hosts", Value: bson.A{address}}, {Key: "me", Value: address}, {Key: "primary", Value: address},
		{Key: "maxBsonObjectSize", Value: int32(16 << 20)}, {Key: "maxMessageSizeBytes", Value: int32(maxMessage)},
		{Key: "maxWriteBatchSize", Value: int32(100_000)}, {Key: "logicalSessionTimeoutMinutes", Value: int32(30)},
		{Key: "minWireVersion", Value: int32(0)}, {Key: "maxWireVersion", Value: int32(17)},
		{Key: "localTime", Value: bson.NewDateTimeFromTime(c.server.clock())},
	}
}

// found returns the command's collection, nil if it doesn't exist.
func (c command) found() *collection { return c.server.collections[c.database+"."+c.name] }

// made returns the command's collection, and makes it if it doesn't exist.
func (c command) made() *collection {
	namespace := c.database + "." + c.name
	if c.server.collections[namespace] == nil {
		c.server.collections[namespace] = newCollection()
	}
	return c.server.collections[namespace]
}

// firstBatch returns documents as a cursor that is at its end, which says more of itself.
func (c command) firstBatch(documents []bson.D, name string, more ...bson.E) bson.D {
	batch := bson.A{}
	for _, d := range documents {
		batch = append(batch, d)
	}
	cursor := bson.D{
		{Key: "firstBatch", Value: batch}, {Key: "id", Value: int64(0)}, {Key: "ns", Value: c.database + "." + name},
	}
	return bson.D{{Key: "cursor", Value: append(cursor, more...)}}
}

// readTime returns the time at which a snapshot is read, zero where none is asked for.
// What was replaced earlier than keptSeconds ago may be gone.
func (c command) readTime() (bson.Timestamp, error) {
	concern := nested(c.body, "readConcern")
	if text(concern, "level") != "snapshot" {
		return bson.Timestamp{}, nil
	}
	at, given := field(concern, "atClusterTime").(bson.Timestamp)
	switch now := c.server.time(); {
	case !given:
		return now, nil
	case at.T+keptSeconds < now.T:
		return at, refuse(codeSnapshotTooOld, "the snapshot of %d is older than %d seconds", at.T, keptSeconds)
	}
	return at, nil
}
