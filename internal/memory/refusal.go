package memory

import (
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The server's codes.
const (
	codeBadValue             = 2
	codeFailedToParse        = 9
	codeTypeMismatch         = 14
	codeNamespaceNotFound    = 26
	codePathNotViable        = 28
	codeConflictingOperators = 40
	codeNamespaceExists      = 48
	codeDollarName           = 52
	codeInvalidID            = 53
	codeEmptyFieldName       = 56
	codeCommandNotFound      = 59
	codeImmutableField       = 66
	codeIndexOptionsConflict = 85
	codeIndexKeyConflict     = 86
	codeNotSupported         = 115
	codeUnknownExpression    = 168
	codeSnapshotTooOld       = 239
	codeTooLarge             = 10334
	codeDuplicateKey         = 11000
	codeUndefinedVariable    = 17276
	codeMixedProjection      = 31254
	codeOperands             = 40065
	codeBadStage             = 40323
	codeUnknownStage         = 40324
)

// refusal is an error that a client gets.
type refusal struct {
	code    int
	message string
}

// Error returns the message.
func (r *refusal) Error() string { return r.message }

// refuse returns a refusal.
func refuse(code int, format string, args ...any) error {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

// fields returns an error as a reply shows it.
func fields(err error) bson.D {
	refused := &refusal{code: codeBadValue, message: err.Error()}
	errors.As(err, &refused)
	return bson.D{{Key: "code", Value: int32(refused.code)}, {Key: "errmsg", Value: refused.message}}
}
