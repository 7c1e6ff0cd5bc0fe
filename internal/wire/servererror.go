package wire

import (
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/words"
)

// ServerError is what the server or the driver answered to one command, in words that
// carry no value of the user's: the server echoes commands and documents.
type ServerError struct {
	// Action is the right that the command needs, as the server's roles name it, such as
	// "update". Namespace is the collection, such as "bank.accounts".
	Action, Namespace string
	// Code is the server's error code, 0 where the server did not answer.
	Code int
	// Name is the name of the code, "" if the code has no name.
	Name string
	// cause is the error of the server or the driver.
	cause error
}

// Error names the command and the server's code. The cause is for programs.
func (e *ServerError) Error() string {
	return fmt.Sprintf("%s on %s: %s", e.Action, words.Clip(e.Namespace), ServerTextOf(e.cause))
}

// Unwrap returns the driver's error, for programs.
func (e *ServerError) Unwrap() error { return e.cause }

// ServerErrorOf returns the error of a command in words that can be passed on.
// It returns nil for nil, and an error that has these words already as it is.
func ServerErrorOf(err error, action, namespace string) error {
	var already *ServerError
	if err == nil || errors.As(err, &already) {
		return err
	}
	e := &ServerError{Action: action, Namespace: namespace, cause: err}
	e.Code, e.Name = codeOf(err)
	return e
}

// PathBlocked reports whether the server refuses a write because what is stored at its
// field, such as null, can't hold a field.
func PathBlocked(err error) bool {
	code, _ := codeOf(err)
	return code == codePathNotViable
}

// codeOf returns the code of the server's error and its name, 0 where the server did not
// answer with one. A write that was refused comes before the doubt whether others are
// stored for good.
func codeOf(err error) (code int, name string) {
	var (
		statement StatementError
		concern   ConcernError
		refused   mongo.CommandError
		write     mongo.WriteException
		bulk      mongo.BulkWriteException
	)
	switch {
	case loginDenied(err):
		return CodeNoUser, codeName(CodeNoUser)
	case errors.As(err, &statement):
		return statement.Code, codeName(statement.Code)
	case errors.As(err, &concern):
		return concern.code, codeName(concern.code)
	case errors.As(err, &refused):
		return int(refused.Code), nameOr(refused.Name, int(refused.Code))
	case errors.As(err, &write) && len(write.WriteErrors) > 0:
		return write.WriteErrors[0].Code, codeName(write.WriteErrors[0].Code)
	case errors.As(err, &write) && write.WriteConcernError != nil:
		return write.WriteConcernError.Code, nameOr(write.WriteConcernError.Name, write.WriteConcernError.Code)
	case errors.As(err, &bulk) && len(bulk.WriteErrors) > 0:
		return bulk.WriteErrors[0].Code, codeName(bulk.WriteErrors[0].Code)
	}
	return 0, ""
}
