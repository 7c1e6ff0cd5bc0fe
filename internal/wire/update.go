package wire

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// commandOf begins a command over a list, in no order.
func commandOf(name string, c *mongo.Collection, list string, size int) *Message {
	m := NewMessage(size + 256)
	m.Text(name, c.Name())
	m.Flag("ordered", false)
	m.BeginArray(list)
	return m
}

// Statement is one element of an update command.
type Statement interface {
	// Write writes its q, u and multi.
	Write(m *Message)
	// Documents returns how many documents it is for.
	Documents() int
	// Size guesses its bytes, so that there is room for them. No bound rests on it.
	Size() int
}

// Updated is what is known of the statements of a command.
type Updated struct {
	// Verdicts say what became of each statement.
	Verdicts []Verdict
	// Matched says that at least one document matched, and that this is stored for good.
	// A statement that the server has ended by a refusal does not count, although it may
	// have changed documents.
	Matched bool
	// Short says that not all documents matched, so that NotMatched need not be true of
	// every statement that has it for a verdict.
	Short bool
}

// UpdateAll sends statements as one command, and returns what became of each.
// They are performed in no order, but those on one document in theirs.
// The server says only how many documents matched: if some did and others did not, the
// verdict on all of them is NotMatched.
func UpdateAll[S Statement](ctx context.Context, c *mongo.Collection, statements []S) Updated {
	return sendAll(ctx, c, statements, "n")
}

// ModifyAll is UpdateAll of statements that decide for themselves which of their
// documents they change: one that is not changed counts as not matched. It is for
// statements that never leave a document as it is when they apply to it.
func ModifyAll[S Statement](ctx context.Context, c *mongo.Collection, statements []S) Updated {
	return sendAll(ctx, c, statements, "nModified")
}

// sendAll sends statements in as many commands as they need. The field of the reply with
// this name says how many documents matched.
func sendAll[S Statement](ctx context.Context, c *mongo.Collection, statements []S, count string) Updated {
	all := Updated{Verdicts: make([]Verdict, 0, len(statements))}
	for len(statements) > 0 {
		command, n := UpdateCommand(c, statements)
		all.add(sendUpdates(ctx, c, command, statements[:n], count))
		statements = statements[n:]
	}
	return all
}

// UpdateCommand writes as many statements as go into one command, and returns their
// number.
func UpdateCommand[S Statement](c *mongo.Collection, statements []S) (*Message, int) {
	size := 0
	for i := 0; i < len(statements) && size < MaxCommandBytes; i++ {
		size += statements[i].Size()
	}
	m := commandOf("update", c, "updates", min(size, MaxCommandBytes))
	n := 0
	for ; n < len(statements); n++ {
		before := len(m.Data)
		m.Begin(Index(n))
		statements[n].Write(m)
		m.End()
		if n > 0 && len(m.Data) > MaxCommandBytes {
			m.Data = m.Data[:before] // it goes into the next one
			break
		}
	}
	m.End()
	return m, n
}

func (u *Updated) add(part Updated) {
	u.Verdicts = append(u.Verdicts, part.Verdicts...)
	u.Matched = u.Matched || part.Matched
	u.Short = u.Short || part.Short
}

func sendUpdates[S Statement](ctx context.Context, c *mongo.Collection, command *Message, statements []S, count string) Updated {
	reply, result, err := Send(ctx, c, command, rightOf(statements))
	all := Updated{Verdicts: verdicts(len(statements), result, err)}
	if result != protocol.Applied {
		return all
	}
	refused := map[int]bool{}
	for _, e := range StatementErrors(reply) {
		if e.index < 0 || e.index >= len(statements) {
			continue
		}
		refused[e.index] = true
		all.Verdicts[e.index] = Verdict{Result: protocol.Unknown, Err: e}
		if IsRefusal(e.Code) && statements[e.index].Documents() == 1 {
			all.Verdicts[e.index].Result = protocol.Failed
		}
	}
	expected := 0
	for i, st := range statements {
		if !refused[i] {
			expected += st.Documents()
		}
	}
	matched, _ := reply.Lookup(count).AsInt64OK()
	all.Matched = matched > 0
	if int(matched) == expected {
		return all
	}
	all.Short = true
	for i := range statements {
		if !refused[i] {
			all.Verdicts[i] = Verdict{Result: protocol.NotMatched}
		}
	}
	return all
}

// rightOf returns the right that a command of statements needs.
func rightOf[S Statement](statements []S) string {
	if _, upserts := any(statements[0]).(interface{ Upserts() }); upserts {
		return rightUpsert
	}
	return RightUpdate
}

// Encoded is a statement that was encoded as a document.
type Encoded bson.Raw

// EncodeUpdate returns the statement that changes one document where a filter fits.
func EncodeUpdate(filter, update bson.D) (Encoded, error) {
	return bson.Marshal(bson.D{{Key: "q", Value: filter}, {Key: "u", Value: update}})
}

// Write writes the filter and the update.
func (e Encoded) Write(m *Message) {
	m.Value("q", bson.Raw(e).Lookup("q"))
	m.Value("u", bson.Raw(e).Lookup("u"))
}

// Documents returns how many documents the statement is for.
func (e Encoded) Documents() int { return 1 }

// Size returns the bytes of the filter and the update.
func (e Encoded) Size() int { return len(e) }

// UpdateOne changes one document where a filter fits.
func UpdateOne(ctx context.Context, c *mongo.Collection, filter, update bson.D) (protocol.Result, error) {
	st, err := EncodeUpdate(filter, update)
	if err != nil {
		return protocol.NotSent, err
	}
	v := UpdateAll(ctx, c, []Encoded{st}).Verdicts[0]
	return v.Result, v.Err
}

// FindAndModify changes one document and returns it as it is afterwards.
func FindAndModify(ctx context.Context, c *mongo.Collection, filter bson.D, update any) (bson.Raw, protocol.Result, error) {
	return modify(ctx, c, filter, update, false)
}

// Upsert is findAndModify of a document that is created if it is not there.
func Upsert(ctx context.Context, c *mongo.Collection, filter bson.D, update any) (bson.Raw, protocol.Result, error) {
	return modify(ctx, c, filter, update, true)
}

func modify(ctx context.Context, c *mongo.Collection, filter bson.D, update any, upserts bool) (bson.Raw, protocol.Result, error) {
	encoded, err := bson.Marshal(bson.D{{Key: "query", Value: filter}, {Key: "update", Value: update}})
	if err != nil {
		return nil, protocol.NotSent, err
	}
	parts := bson.Raw(encoded)
	command := NewMessage(len(encoded) + 128)
	command.Text("findAndModify", c.Name())
	command.Value("query", parts.Lookup("query"))
	command.Value("update", parts.Lookup("update"))
	command.Flag("new", true)
	right := rightFindAndModify
	if upserts {
		command.Flag("upsert", true)
		right = rightFindAndUpsert
	}
	reply, result, err := Send(ctx, c, command, right)
	if result != protocol.Applied {
		// One document: a refusal that names its cause has changed nothing.
		if code := CommandCode(err); result == protocol.Unknown && code != 0 && IsRefusal(code) {
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

// InSession performs work in a causally consistent session of its own.
// A majority read in it, after a write in it that matched, is a deciding one: a primary
// that was replaced can't answer it. Through mongos this does not hold, as the write and
// the read may be for different shards.
func InSession(ctx context.Context, c *mongo.Collection, work func(context.Context)) {
	session, err := c.Database().Client().StartSession(options.Session().SetCausalConsistency(true))
	if err != nil {
		work(ctx) // the client is disconnected, as the work will find out
		return
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	work(mongo.NewSessionContext(ctx, session))
}
