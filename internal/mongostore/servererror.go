package mongostore

import (
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// ServerError is what the server or the driver answered to one command, told in words
// that carry no value of the user's: the server echoes commands and documents.
type ServerError struct {
	// Action is the right that the command needs, as the server's roles name it, such as
	// "update". Namespace is the collection, such as "bank.accounts".
	Action, Namespace string
	// Code is the server's error code, 0 where the server did not answer.
	Code int
	// Name is the name of the code, "" where the server gave none.
	Name  string
	cause error
}

// Error tells the command and the server's code.
func (e *ServerError) Error() string {
	if e.Code == 0 {
		return fmt.Sprintf("%s on %s: %v", e.Action, e.Namespace, e.cause)
	}
	return fmt.Sprintf("%s on %s: server error %d %s", e.Action, e.Namespace, e.Code, e.Name)
}

// Unwrap returns the driver's error, for programs.
func (e *ServerError) Unwrap() error { return e.cause }

// told returns the error of a command in words that can be passed on. It returns nil for
// nil, and an error that was told already as it is.
func told(err error, action, namespace string) error {
	var already *ServerError
	if err == nil || errors.As(err, &already) {
		return err
	}
	e := &ServerError{Action: action, Namespace: namespace, cause: err}
	var refused mongo.CommandError
	if errors.As(err, &refused) {
		e.Code, e.Name = int(refused.Code), refused.Name
	}
	return e
}

// MissingRight returns the error by which a server has refused a user, nil if none did.
func MissingRight(err error) *ServerError {
	var refused *ServerError
	if errors.As(err, &refused) && (refused.Code == codeUnauthorized || refused.Code == codeAuthentication) {
		return refused
	}
	return nil
}
