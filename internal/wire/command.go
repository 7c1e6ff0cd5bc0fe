package wire

import (
	"context"
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// Codes of the server that have a meaning to the library.
const (
	CodeBadValue          = 2
	CodeUnauthorized      = 13
	CodeNoUser            = 18 // the user or the password is not accepted
	CodeOverflow          = 15 // nested too deeply
	codeInvalidBSON       = 22 // of the whole message, before anything of it is done
	codePathNotViable     = 28
	CodeNamespaceExists   = 48
	CodeCannotIndex       = 67
	CodeInvalidNamespace  = 73
	CodeIndexOptions      = 85 // of the same keys, or the same name
	CodeIndexKeys         = 86
	CodeNoPlan            = 291   // the server has been told to scan no collection
	CodeDiffersInCase     = 13297 // another database's name differs in case alone
	CodeAtlas             = 8000  // what a shared tier of MongoDB's hosting does not allow
	CodeDuplicateKey      = 11000
	codeValidationFailure = 121
	codeConversionFailure = 241
)

// NoRoom begins a text in place of a number, by which a statement fails that would pay in
// more than a balance can hold.
const NoRoom = "no room beside "

// IsRefusal reports whether a code says that the server has read a statement and refused
// to apply it.
// Any other code leaves open what happened, such as a mongos' report of a shard that it
// can't reach.
func IsRefusal(code int) bool {
	return slices.Contains([]int{
		CodeBadValue,
		9,  // FailedToParse
		14, // TypeMismatch
		CodeOverflow,
		codeInvalidBSON,
		codePathNotViable,
		40, // ConflictingUpdateOperators
		52, // DollarPrefixedFieldName
		56, // EmptyFieldName
		57, // DottedFieldName
		66, // ImmutableField
		codeValidationFailure,
		codeConversionFailure,
		10334, 17419, 17420, // the document would become too large
		CodeDuplicateKey, 11001, 12582,
	}, code) || isIndexKey(code)
}

// isIndexKey reports whether a code says that an index of the user's can't have a
// document, whatever its other documents are. The server then stores nothing of it, and
// refuses it again for as long as the index is there. A transfer for which this counted
// as unknown would be tried for ever, and nobody would hear why.
//
// The codes with names are of MongoDB's error_codes.yml. The others are assertions in its
// generation of keys: expression_keys_private.cpp, geo/hash.cpp, fts_spec.cpp and
// dotted_path_support.cpp.
func isIndexKey(code int) bool {
	return slices.Contains([]int{
		171,                 // CannotIndexParallelArrays
		201,                 // CannotBuildIndexKeys: an array beside a text
		13026, 13027, 13068, // 2d: no pair of numbers, out of bounds, only one number
		16746,        // a number as a name, below an array
		16755, 16756, // 2dsphere: no geometry
		16766,        // hashed: an array
		16804,        // 2d: a list of something else
		17261, 17262, // text: the language is no string, or not known
	}, code)
}

// IsEvaluation reports whether a code says that the server can't read or evaluate the
// pipeline of a statement, rather than store what comes of it.
func IsEvaluation(code int) bool {
	const (
		failedToParse    = 9
		typeMismatch     = 14
		pipelineOperator = 168
		tooLarge         = 17419
		tooLargeBy       = 17420
		firstExpression  = 16000 // the codes of single expressions are all above
	)
	switch code {
	case CodeBadValue, failedToParse, typeMismatch, pipelineOperator:
		return true
	case tooLarge, tooLargeBy:
		return false
	}
	return code >= firstExpression && !isIndexKey(code)
}

// Send sends one write command, once: a message that was begun and is ended here. It
// answers Applied, with the reply, where the server says that whatever the statements did
// is stored for good; the reply's writeErrors are left to the caller.
// Otherwise it answers Unknown, or NotSent, with the cause, which names the right that
// the command needs.
//
// The driver repeats a plain command only when it has an answer, with the labels of
// overload: that the server was too busy to begin, or that what it has done is not
// acknowledged. So each write is one that may be carried out twice: see docs/protocol.md.
// When the last answer is here none of them is on its way.
func Send(ctx context.Context, c *mongo.Collection, command *Message, right string) (bson.Raw, protocol.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, protocol.NotSent, err
	}
	command.Begin("writeConcern")
	command.Text("w", "majority")
	command.Flag("j", true)
	command.End()
	sending, stop := command.limit(ctx)
	defer stop()
	command.End()
	reply, err := c.Database().RunCommand(sending, bson.Raw(command.Data), options.RunCmd().SetReadPreference(readpref.Primary())).Raw()
	if succeeded(reply) {
		if concern, ok := reply.Lookup("writeConcernError").DocumentOK(); ok {
			code, _ := concern.Lookup("code").AsInt64OK()
			return reply, protocol.Unknown, ConcernError{code: int(code)}
		}
		return reply, protocol.Applied, nil
	}
	if err == nil {
		err = errors.New("the server's answer can't be understood")
	}
	var (
		notSelected  topology.ServerSelectionError
		noConnection topology.WaitQueueTimeoutError
	)
	result := protocol.Unknown
	if errors.As(err, &notSelected) || errors.As(err, &noConnection) || unconnected(err) || Disconnected(err) {
		result = protocol.NotSent
	}
	if ctx.Err() != nil && CommandCode(err) == 0 {
		err = silenced(ctx.Err(), err)
	}
	return reply, result, ServerErrorOf(err, right, NamespaceOf(c))
}

func succeeded(reply bson.Raw) bool {
	ok, isNumber := reply.Lookup("ok").AsInt64OK()
	return isNumber && ok == 1
}

// StatementError is the server's refusal of one statement of a command.
type StatementError struct {
	index int
	// Code is the server's error code.
	Code int
	text string

	keyPattern bson.Raw // of the unique index, for a duplicate key
}

func (e StatementError) Error() string { return e.text }

// onID reports whether a duplicate key is one of _id, and not of a unique index of the
// user's.
func (e StatementError) onID() bool {
	if e.Code != CodeDuplicateKey {
		return false
	}
	elements, err := e.keyPattern.Elements()
	return err != nil || len(elements) == 0 || (len(elements) == 1 && elements[0].Key() == "_id")
}

// StatementErrors returns the refusals of single statements that a reply has.
func StatementErrors(reply bson.Raw) []StatementError {
	list, ok := reply.Lookup("writeErrors").ArrayOK()
	if !ok {
		return nil
	}
	values, err := list.Values()
	if err != nil {
		return nil
	}
	var found []StatementError
	for _, value := range values {
		document, _ := value.DocumentOK()
		index, _ := document.Lookup("index").AsInt64OK()
		code, _ := document.Lookup("code").AsInt64OK()
		keyPattern, _ := document.Lookup("keyPattern").DocumentOK()
		found = append(found, StatementError{
			index: int(index), Code: int(code), text: refusalText(int(code), document), keyPattern: keyPattern,
		})
	}
	return found
}

// RefusedWhole reports whether an error is the server's refusal of a whole command, which
// it can't carry out for any sender.
func RefusedWhole(err error) bool {
	code := CommandCode(err)
	return code == CodeOverflow || code != 0 && IsRefusal(code)
}

// CommandCode returns the code of a command that the server refused as a whole, or 0.
func CommandCode(err error) int {
	if err == nil { // as nearly always: a target of errors.As is allocated
		return 0
	}
	var refused mongo.CommandError
	if errors.As(err, &refused) {
		return int(refused.Code)
	}
	return 0
}

// NotFound reports whether an error says that no document fits.
func NotFound(err error) bool { return errors.Is(err, mongo.ErrNoDocuments) }
