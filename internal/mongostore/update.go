package mongostore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// commandOf begins a command over a list, in no order.
func commandOf(name string, c *mongo.Collection, list string, size int) *message {
	m := newMessage(size + 256)
	m.text(name, c.Name())
	m.flag("ordered", false)
	m.beginArray(list)
	return m
}

// statement is one element of an update command.
type statement interface {
	// write writes its q, u and multi.
	write(m *message)
	// documents returns how many it is for.
	documents() int
	// size guesses its bytes, so that there is room for them. No bound rests on it.
	size() int
}

// updated is what is known of the statements of a command.
type updated struct {
	verdicts []verdict
	matched  bool // at least one document matched, and that is stored for good
	short    bool // it was not all, so that no statement that is told NotMatched can be believed to be so
}

// updateAll sends statements as one command, in no order but that statements on one document go in theirs, and tells
// what became of each. The server tells only how many documents matched: if it was some and not all, all are told NotMatched.
func updateAll[S statement](ctx context.Context, c *mongo.Collection, statements []S) updated {
	all := updated{verdicts: make([]verdict, 0, len(statements))}
	for len(statements) > 0 {
		command, n := updateCommand(c, statements)
		all.add(sendUpdates(ctx, c, command, statements[:n]))
		statements = statements[n:]
	}
	return all
}

// updateCommand writes down as many statements as go into one command, and returns how many that are.
func updateCommand[S statement](c *mongo.Collection, statements []S) (*message, int) {
	size := 0
	for i := 0; i < len(statements) && size < maxCommandBytes; i++ {
		size += statements[i].size()
	}
	m := commandOf("update", c, "updates", min(size, maxCommandBytes))
	n := 0
	for ; n < len(statements); n++ {
		before := len(m.data)
		m.begin(index(n))
		statements[n].write(m)
		m.end()
		if n > 0 && len(m.data) > maxCommandBytes {
			m.data = m.data[:before] // it goes into the next one
			break
		}
	}
	m.end()
	return m, n
}

func (u *updated) add(part updated) {
	u.verdicts = append(u.verdicts, part.verdicts...)
	u.matched = u.matched || part.matched
	u.short = u.short || part.short
}

func sendUpdates[S statement](ctx context.Context, c *mongo.Collection, command *message, statements []S) updated {
	reply, result, err := send(ctx, c, command, rightOf(statements))
	all := updated{verdicts: verdicts(len(statements), result, err)}
	if result != protocol.Applied {
		return all
	}
	refused := map[int]bool{}
	for _, e := range statementErrors(reply) {
		if e.index < 0 || e.index >= len(statements) {
			continue
		}
		refused[e.index] = true
		all.verdicts[e.index] = verdict{protocol.Unknown, e}
		if definite(e.code) && statements[e.index].documents() == 1 {
			all.verdicts[e.index].result = protocol.Failed
		}
	}
	expected := 0
	for i, st := range statements {
		if !refused[i] {
			expected += st.documents()
		}
	}
	matched, _ := reply.Lookup("n").AsInt64OK()
	all.matched = matched > 0
	if int(matched) == expected {
		return all
	}
	all.short = true
	for i := range statements {
		if !refused[i] {
			all.verdicts[i] = verdict{result: protocol.NotMatched}
		}
	}
	return all
}

// rightOf returns the right that a command of statements needs.
func rightOf[S statement](statements []S) string {
	if _, upserts := any(statements[0]).(interface{ Upserts() }); upserts {
		return rightUpsert
	}
	return rightUpdate
}

// encoded is a statement that was encoded as a document.
type encoded bson.Raw

func encodeUpdate(filter, update bson.D) (encoded, error) {
	return bson.Marshal(bson.D{{Key: "q", Value: filter}, {Key: "u", Value: update}})
}

func (e encoded) write(m *message) {
	m.value("q", bson.Raw(e).Lookup("q"))
	m.value("u", bson.Raw(e).Lookup("u"))
}

func (e encoded) documents() int { return 1 }

func (e encoded) size() int { return len(e) }

// updateOne changes one document where a filter fits.
func updateOne(ctx context.Context, c *mongo.Collection, filter, update bson.D) (protocol.Result, error) {
	st, err := encodeUpdate(filter, update)
	if err != nil {
		return protocol.NotSent, err
	}
	v := updateAll(ctx, c, []encoded{st}).verdicts[0]
	return v.result, v.err
}

// findAndModify changes one document and returns it as it is afterwards.
func findAndModify(ctx context.Context, c *mongo.Collection, filter bson.D, update any) (bson.Raw, protocol.Result, error) {
	return modify(ctx, c, filter, update, false)
}

// upsert is findAndModify of a document that is created if it is not there.
func upsert(ctx context.Context, c *mongo.Collection, filter bson.D, update any) (bson.Raw, protocol.Result, error) {
	return modify(ctx, c, filter, update, true)
}

func modify(ctx context.Context, c *mongo.Collection, filter bson.D, update any, upserts bool) (bson.Raw, protocol.Result, error) {
	encoded, err := bson.Marshal(bson.D{{Key: "query", Value: filter}, {Key: "update", Value: update}})
	if err != nil {
		return nil, protocol.NotSent, err
	}
	parts := bson.Raw(encoded)
	command := newMessage(len(encoded) + 128)
	command.text("findAndModify", c.Name())
	command.value("query", parts.Lookup("query"))
	command.value("update", parts.Lookup("update"))
	command.flag("new", true)
	right := rightFindAndModify
	if upserts {
		command.flag("upsert", true)
		right = rightFindAndUpsert
	}
	reply, result, err := send(ctx, c, command, right)
	if result != protocol.Applied {
		// One document: a refusal that names its cause has changed nothing.
		if code := commandCode(err); result == protocol.Unknown && code != 0 && definite(code) {
			return nil, protocol.Failed, err
		}
		return nil, result, err
	}
	after, ok := reply.Lookup("value").DocumentOK()
	if !ok {
		return nil, protocol.NotMatched, nil
	}
	return after, protocol.Applied, nil
}

// inSession performs a work in a causally consistent session of its own. A majority read in it, after a write in it that
// matched, is a deciding one: a primary that was replaced can't answer it. Not so through mongos, where the write
// and the read may be for different shards.
func inSession(ctx context.Context, c *mongo.Collection, work func(context.Context)) {
	session, err := c.Database().Client().StartSession(options.Session().SetCausalConsistency(true))
	if err != nil {
		work(ctx) // the client is disconnected, as the work will find out
		return
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	work(mongo.NewSessionContext(ctx, session))
}
