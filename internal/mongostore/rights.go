package mongostore

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/auth"
)

// Rights that commands need, as the server's roles name them. Where a command needs two,
// the server doesn't say which of them is missing.
const (
	rightFind          = "find"
	rightInsert        = "insert"
	rightUpdate        = "update"
	rightUpsert        = "insert, update"
	rightFindAndModify = "find, update"
	rightFindAndUpsert = "find, insert, update"
)

// CodeNoUser is the server's code for a user or a password that it doesn't accept.
const CodeNoUser = 18

// Refused returns the server's refusal of a user: a right is missing, or, with code 18,
// the user or the password is wrong. It returns nil for all other errors.
//
// It says nothing of what a write has done: like each refusal of a whole command it is
// ambiguous, but for that of the connection's own handshake, before which nothing is sent.
func Refused(err error) *ServerError {
	var told *ServerError
	if code := commandCode(err); code != codeUnauthorized && code != CodeNoUser || !errors.As(err, &told) {
		return nil
	}
	return told
}

// Missing tells which right is missing.
func (e *ServerError) Missing() string {
	if e.Code == CodeNoUser {
		return "the server refuses the user or the password"
	}
	return "the user has no right to " + e.Action + " on " + e.Namespace
}

// unconnected reports whether no connection could be had for a command, so that it was never
// sent: it was refused in its handshake, as with a wrong password, or given up because
// another one was.
func unconnected(err error) bool {
	var handshake *auth.Error
	return errors.As(err, &handshake) || cleared(err)
}

// cleared reports whether an error says that another connection has failed, and not why: a
// look at why is worth while.
func cleared(err error) bool {
	var pool driver.RetryablePoolError
	return errors.As(err, &pool)
}

// findOne reads one document.
func findOne(
	ctx context.Context, from *mongo.Collection, filter bson.D, opts ...options.Lister[options.FindOneOptions],
) (bson.Raw, error) {
	document, err := from.FindOne(ctx, filter, opts...).Raw()
	if missing(err) {
		return nil, err
	}
	return document, serverErrorOf(err, rightFind, namespaceOf(from))
}

// findAll reads all documents that a filter selects.
func findAll(
	ctx context.Context, from *mongo.Collection, filter bson.D, into any, opts ...options.Lister[options.FindOptions],
) error {
	cursor, err := from.Find(ctx, filter, opts...)
	if err == nil {
		err = cursor.All(ctx, into)
	}
	return serverErrorOf(err, rightFind, namespaceOf(from))
}
