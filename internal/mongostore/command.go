package mongostore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// Codes of the server that the store tells apart.
const (
	codeBadValue          = 2
	codeUnauthorized      = 13
	codeOverflow          = 15 // nested too deeply
	codeNamespaceExists   = 48
	codeDuplicateKey      = 11000
	codeValidationFailure = 121
)

// definite returns whether a code says that the server looked at a statement and refused to apply it. Any other code, a
// mongos' report of a shard that it can't reach among them, leaves open what happened.
func definite(code int) bool {
	return slices.Contains([]int{
		codeBadValue,
		9,  // FailedToParse
		14, // TypeMismatch
		codeOverflow,
		28, // PathNotViable
		40, // ConflictingUpdateOperators
		52, // DollarPrefixedFieldName
		56, // EmptyFieldName
		57, // DottedFieldName
		66, // ImmutableField
		codeValidationFailure,
		10334, 17419, 17420, // the document would become too large
		codeDuplicateKey, 11001, 12582,
	}, code)
}

// send sends one write command, once. It answers Applied, with the reply, where the server says that whatever the statements
// did is stored for good; the reply's writeErrors are left to the caller. Otherwise it answers Unknown, or
// NotSent, with the cause.
//
// The driver repeats a plain command only when the server itself answers that it was too busy to begin.
func send(ctx context.Context, db *mongo.Database, command bson.D) (bson.Raw, protocol.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, protocol.NotSent, err
	}
	command = append(command, bson.E{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}, {Key: "j", Value: true}}})
	encoded, err := bson.Marshal(command)
	if err != nil {
		return nil, protocol.NotSent, err
	}
	reply, err := db.RunCommand(ctx, bson.Raw(encoded), options.RunCmd().SetReadPreference(readpref.Primary())).Raw()
	if succeeded(reply) {
		if concern, ok := reply.Lookup("writeConcernError").DocumentOK(); ok {
			return reply, protocol.Unknown, fmt.Errorf("write concern error: %s", concern)
		}
		return reply, protocol.Applied, nil
	}
	if err == nil {
		err = fmt.Errorf("the server answered %s", reply)
	}
	var (
		notSelected  topology.ServerSelectionError
		noConnection topology.WaitQueueTimeoutError
	)
	if errors.As(err, &notSelected) || errors.As(err, &noConnection) {
		return reply, protocol.NotSent, err
	}
	return reply, protocol.Unknown, err
}

func succeeded(reply bson.Raw) bool {
	ok, isNumber := reply.Lookup("ok").AsInt64OK()
	return isNumber && ok == 1
}

// statementError is the server's refusal of one statement of a command.
type statementError struct {
	index      int
	code       int
	message    string
	keyPattern bson.Raw // of the unique index, for a duplicate key
}

func (e statementError) Error() string { return fmt.Sprintf("write error %d: %s", e.code, e.message) }

// onID reports whether a duplicate key is one of _id, and not of a unique index of the user's.
func (e statementError) onID() bool {
	if e.code != codeDuplicateKey {
		return false
	}
	elements, err := e.keyPattern.Elements()
	return err != nil || len(elements) == 0 || (len(elements) == 1 && elements[0].Key() == "_id")
}

func statementErrors(reply bson.Raw) []statementError {
	list, ok := reply.Lookup("writeErrors").ArrayOK()
	if !ok {
		return nil
	}
	values, err := list.Values()
	if err != nil {
		return nil
	}
	var found []statementError
	for _, value := range values {
		document, _ := value.DocumentOK()
		index, _ := document.Lookup("index").AsInt64OK()
		code, _ := document.Lookup("code").AsInt64OK()
		message, _ := document.Lookup("errmsg").StringValueOK()
		keyPattern, _ := document.Lookup("keyPattern").DocumentOK()
		found = append(found, statementError{int(index), int(code), message, keyPattern})
	}
	return found
}

// insert stores one document.
func insert(ctx context.Context, c *mongo.Collection, document any) (protocol.Result, error) {
	reply, result, err := send(ctx, c.Database(), bson.D{
		{Key: "insert", Value: c.Name()},
		{Key: "documents", Value: bson.A{document}},
	})
	// A duplicate key is looked at first: it can come together with a write-concern error.
	for _, e := range statementErrors(reply) {
		switch {
		case e.onID():
			return protocol.NotMatched, e
		case definite(e.code):
			return protocol.Failed, e
		default:
			return protocol.Unknown, e
		}
	}
	// One document, which the server did not even begin to store.
	if code := commandCode(err); code == codeUnauthorized || code == codeOverflow {
		return protocol.Failed, err
	}
	return result, err
}

// commandCode returns the code of a command that the server refused as a whole, 0 if it did not.
func commandCode(err error) int {
	var refused mongo.CommandError
	if errors.As(err, &refused) {
		return int(refused.Code)
	}
	return 0
}

// statement is one update of one document.
type statement struct{ filter, update bson.D }

// updateAll sends statements as one command, in no order, and answers each. The server tells only how many matched: if
// it was some and not all, all are answered NotMatched.
func updateAll(ctx context.Context, c *mongo.Collection, statements []statement) ([]protocol.Result, error) {
	updates := make(bson.A, len(statements))
	for i, st := range statements {
		updates[i] = bson.D{{Key: "q", Value: st.filter}, {Key: "u", Value: st.update}}
	}
	reply, result, err := send(ctx, c.Database(), bson.D{
		{Key: "update", Value: c.Name()},
		{Key: "updates", Value: updates},
		{Key: "ordered", Value: false},
	})
	results := make([]protocol.Result, len(statements))
	if result != protocol.Applied {
		for i := range results {
			results[i] = result
		}
		return results, err
	}
	refusals := statementErrors(reply)
	for _, e := range refusals {
		err = e
		if e.index < 0 || e.index >= len(results) {
			continue
		}
		results[e.index] = protocol.Unknown
		if definite(e.code) {
			results[e.index] = protocol.Failed
		}
	}
	others := protocol.NotMatched
	if matched, _ := reply.Lookup("n").AsInt64OK(); int(matched) == len(statements)-len(refusals) {
		others = protocol.Applied
	}
	for i := range results {
		if results[i] == 0 {
			results[i] = others
		}
	}
	return results, err
}

// updateOne sends one statement.
func updateOne(ctx context.Context, c *mongo.Collection, filter, update bson.D) (protocol.Result, error) {
	results, err := updateAll(ctx, c, []statement{{filter, update}})
	return results[0], err
}

// findAndModify changes one document and returns it as it is afterwards.
func findAndModify(ctx context.Context, c *mongo.Collection, filter, update bson.D) (bson.Raw, protocol.Result, error) {
	reply, result, err := send(ctx, c.Database(), bson.D{
		{Key: "findAndModify", Value: c.Name()},
		{Key: "query", Value: filter},
		{Key: "update", Value: update},
		{Key: "new", Value: true},
	})
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
