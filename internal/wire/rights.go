package wire

import (
	"errors"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/auth"
)

// Rights that commands need, as the server's roles name them. Where a command needs two,
// the server doesn't say which of them is missing.
const (
	RightFind          = "find"
	rightInsert        = "insert"
	RightUpdate        = "update"
	rightUpsert        = "insert, update"
	rightFindAndModify = "find, update"
	rightFindAndUpsert = "find, insert, update"
)

// Denied returns the server's refusal of a user: a right is missing, or, with code 18,
// the user or the password is wrong. It returns nil for all other errors.
//
// It says nothing of what a write has done: like each refusal of a whole command it is
// ambiguous, but for that of the connection's own handshake, before which nothing is
// sent.
func Denied(err error) *ServerError {
	if err == nil {
		return nil
	}
	var refused *ServerError
	if code := CommandCode(err); code != CodeUnauthorized && code != CodeNoUser && !loginDenied(err) || !errors.As(err, &refused) {
		return nil
	}
	return refused
}

// Missing says which right is missing.
func (e *ServerError) Missing() string {
	if e.Code == CodeNoUser {
		return "the server refuses the user or the password"
	}
	return "the user has no right to " + e.Action + " on " + e.Namespace
}

// unconnected reports whether there was no connection for a command, so that it was never
// sent: the connection was refused in its handshake, as with a wrong password, or given
// up because another one was refused.
//
// One that was given up for another reason doesn't show that:
//
//  1. A command is carried out, and the server calls itself overloaded.
//  2. The driver sends it again, and waits for a connection. The pool is cleared.
//  3. No server is found for another try. The driver returns the error of the pool, and
//     has forgotten the first answer.
func unconnected(err error) bool {
	var handshake *auth.Error
	return errors.As(err, &handshake) || loginDenied(err)
}

// loginDenied reports whether a connection was given up because the server has refused
// the user or the password on another one. The driver passes on no more than its text,
// with the name of the server's code.
func loginDenied(err error) bool {
	var pool driver.RetryablePoolError
	if !errors.As(err, &pool) {
		return false
	}
	cleared, is := pool.(error)
	return is && strings.Contains(cleared.Error(), "("+codeName(CodeNoUser)+")")
}

// Cleared reports whether an error says that another connection has failed, and not why.
// Another try may say why.
func Cleared(err error) bool {
	var pool driver.RetryablePoolError
	return errors.As(err, &pool)
}
