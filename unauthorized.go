package transfer

import "fmt"

// UnauthorizedError says which right is missing. errors.Is finds ErrUnauthorized through it.
type UnauthorizedError struct {
	// Action is the missing right as the server's roles name it, such as "update".
	Action string
	// Namespace is the database and collection that it is missing for, such as "bank.accounts".
	Namespace string
}

// Error names the right and the collection.
func (e *UnauthorizedError) Error() string {
	return fmt.Sprintf("the user has no right to %s on %s: grant it, as docs/roles shows", e.Action, e.Namespace)
}

// Unwrap returns ErrUnauthorized.
func (e *UnauthorizedError) Unwrap() error { return ErrUnauthorized }
