package transfer

import (
	"errors"
	"fmt"

	"github.com/mongotransfer/transfer/internal/wire"
)

// UnauthorizedError says which right is missing. errors.Is finds ErrUnauthorized through
// it, and the driver's own error.
type UnauthorizedError struct {
	// Action is the missing right as the server's roles name it, such as "update". Where a
	// command needs two, the server doesn't say which of them is missing, and both are
	// named: "find, update". It is "" where the server refuses the user or the password.
	Action string
	// Namespace is the database and collection that it is missing for, such as
	// "bank.accounts"; for what concerns a whole database, its name alone.
	Namespace string

	cause error
}

// Error names the right and the collection.
func (e *UnauthorizedError) Error() string {
	if e.Action == "" {
		return "the server refuses the user or the password"
	}
	return fmt.Sprintf("the user has no right to %s on %s: grant it, as docs/roles shows", e.Action, e.Namespace)
}

// Unwrap returns ErrUnauthorized, and the error that tells of it.
func (e *UnauthorizedError) Unwrap() []error {
	if e.cause == nil {
		return []error{ErrUnauthorized}
	}
	return []error{ErrUnauthorized, e.cause}
}

// refused reports whether an error says that a right is missing. What it is about is not
// tried again by itself: a caller who is told at once can have the right granted.
func refused(err error) bool {
	return errors.Is(err, ErrUnauthorized) || wire.Refused(err) != nil
}

// named gives an error that tells of a missing right its public name.
func named(err error) error {
	missing := wire.Refused(err)
	switch {
	case missing == nil || errors.Is(err, ErrUnauthorized):
		return err
	case missing.Code == wire.CodeNoUser:
		return &UnauthorizedError{cause: err}
	}
	return &UnauthorizedError{Action: missing.Action, Namespace: missing.Namespace, cause: err}
}
