package memory

import (
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// command is a command with what it names.
type command struct {
	dated    *bool // it has stored a time
	server   *Server
	body     bson.D
	database string
	name     string // that of the collection, where the command is about one
	scope    scope
}

// perform performs a command and returns the reply. It reports whether the command has
// stored a time.
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
	case "hello", "ismaster":
		return c.hello(), nil
	case "buildinfo":
		return bson.D{{Key: "version", Value: serverVersion}}, nil
	case "ping", "endsessions", "killcursors":
		return nil, nil
	case "insert":
		return c.insert()
	case "update":
		return c.update()
	case "delete":
		return c.delete()
	case "findandmodify":
		return c.findAndModify()
	case "find":
		return c.find()
	case "aggregate":
		return c.aggregate()
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

// firstBatch returns documents as a cursor that is at its end.
func (c command) firstBatch(documents []bson.D, name string) bson.D {
	batch := bson.A{}
	for _, d := range documents {
		batch = append(batch, d)
	}
	cursor := bson.D{
		{Key: "firstBatch", Value: batch}, {Key: "id", Value: int64(0)}, {Key: "ns", Value: c.database + "." + name},
	}
	if at, is := c.readTime(); is {
		cursor = append(cursor, bson.E{Key: "atClusterTime", Value: at})
	}
	return bson.D{{Key: "cursor", Value: cursor}}
}

// readTime returns the time at which a snapshot is read, and whether that is asked for.
func (c command) readTime() (bson.Timestamp, bool) {
	concern := nested(c.body, "readConcern")
	if text(concern, "level") != "snapshot" {
		return bson.Timestamp{}, false
	}
	if at, given := field(concern, "atClusterTime").(bson.Timestamp); given {
		return at, true
	}
	return c.server.time(), true
}
