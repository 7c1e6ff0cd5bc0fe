package wire

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// Verdict is what became of one document or statement of a command.
type Verdict struct {
	// Result is the answer to the protocol.
	Result protocol.Result
	// Err is why it is not Applied, nil where it just did not match.
	Err error
}

// verdicts returns n verdicts, all the same.
func verdicts(n int, result protocol.Result, err error) []Verdict {
	all := make([]Verdict, n)
	for i := range all {
		all[i] = Verdict{Result: result, Err: err}
	}
	return all
}

// InsertOne stores one document. NotMatched: its _id is taken.
func InsertOne(ctx context.Context, c *mongo.Collection, document any) (protocol.Result, error) {
	encoded, err := bson.Marshal(document)
	if err != nil {
		return protocol.NotSent, err
	}
	v := InsertAll(ctx, c, []bson.Raw{encoded})[0]
	return v.Result, v.Err
}

// InsertAll stores documents, each by itself, and returns what became of each.
// NotMatched: its _id is taken.
func InsertAll(ctx context.Context, c *mongo.Collection, documents []bson.Raw) []Verdict {
	all := make([]Verdict, 0, len(documents))
	for len(documents) > 0 {
		command, n := insertCommand(c, documents)
		all = append(all, insertPart(ctx, c, command, n)...)
		documents = documents[n:]
	}
	return all
}

// insertCommand writes as many documents as go into one command, and returns their
// number.
func insertCommand(c *mongo.Collection, documents []bson.Raw) (*Message, int) {
	n, size := 0, 0
	for n < len(documents) && (n == 0 || size+len(documents[n]) <= MaxCommandBytes) {
		size += len(documents[n]) + 8
		n++
	}
	m := commandOf("insert", c, "documents", size)
	for i, document := range documents[:n] {
		m.Document(Index(i), document)
	}
	m.End()
	return m, n
}

func insertPart(ctx context.Context, c *mongo.Collection, command *Message, documents int) []Verdict {
	reply, result, err := Send(ctx, c, command, rightInsert)
	return insertVerdicts(documents, reply, result, err)
}

// insertVerdicts reads the answer to a command that inserts some documents.
func insertVerdicts(documents int, reply bson.Raw, result protocol.Result, err error) []Verdict {
	// Documents that the server did not even begin to store.
	code := CommandCode(err)
	unreadable := code == CodeOverflow || code == codeInvalidBSON
	switch {
	case code == CodeUnauthorized, unreadable && documents == 1:
		result = protocol.Failed
	case unreadable:
		// One of them can't be read, and is found when they are stored one by one.
		result = protocol.NotSent
	}
	refusals := StatementErrors(reply)
	if stored, _ := reply.Lookup("n").AsInt64OK(); result == protocol.Applied && int(stored) != documents-len(refusals) {
		result, err = protocol.Unknown, fmt.Errorf("the server answers for %d of %d documents", stored, documents)
	}
	all := verdicts(documents, result, err)
	// A duplicate key is looked at first: it can come together with a write-concern
	// error.
	for _, e := range refusals {
		if e.index < 0 || e.index >= len(all) {
			continue
		}
		switch {
		case e.onID():
			all[e.index] = Verdict{Result: protocol.NotMatched, Err: e}
		case IsRefusal(e.Code):
			all[e.index] = Verdict{Result: protocol.Failed, Err: e}
		default:
			all[e.index] = Verdict{Result: protocol.Unknown, Err: e}
		}
	}
	return all
}
