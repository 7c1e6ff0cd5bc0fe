package inspection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// CheckServers tries on each server what the protocol rests on. A server that only
// resembles MongoDB may lack it. It writes nothing: its update matches no document. A
// user without rights to write passes writes as false, and only the reads are tried.
func (i *Inspector) CheckServers(ctx context.Context, writes bool) error {
	tried := map[*mongo.Client]bool{}
	for _, c := range i.catalog.All() {
		client := c.Commands.Database().Client()
		if tried[client] {
			continue
		}
		tried[client] = true
		if err := i.tryReads(ctx, c); err != nil {
			return err
		}
		if writes {
			if err := i.tryWrite(ctx, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// tryReads tries a linearizable read, and a comparison with the server's time.
func (i *Inspector) tryReads(ctx context.Context, c *collections.Collection) error {
	limited, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	notes := notesOf(c)
	failure := func(err error) error { return wire.ServerErrorOf(err, wire.RightFind, wire.NamespaceOf(notes)) }
	byID := bson.D{{Key: "_id", Value: collections.NoteID}}
	err := wire.ForReads(notes, readconcern.Linearizable()).FindOne(limited, byID).Err()
	if wire.CommandCode(err) == wire.CodeInvalidNamespace {
		return fmt.Errorf("%w: the server allows no collection of the name %s: give the database or the collection a plainer one: %w",
			collections.ErrUnsupported, wire.NamespaceOf(notes), failure(err))
	}
	if refusesCommand(err) {
		return lacks(c, "linearizable read", failure(err))
	}
	if err != nil && !wire.NotFound(err) {
		return failure(err)
	}
	longAgo := bson.D{{Key: "$lt", Value: bson.A{time.UnixMilli(0), "$$NOW"}}}
	err = notes.FindOne(limited, append(byID, bson.E{Key: "$expr", Value: longAgo})).Err()
	if refusesCommand(err) {
		return lacks(c, "$$NOW", failure(err))
	}
	if wire.NotFound(err) {
		return nil
	}
	return failure(err)
}

// tryWrite tries an update that compares with the server's time, and matches nothing. The
// answer has to show two times: that of the write, and that of the server's latest
// operation. By these a majority read in the same session is known to come after the
// write. Without them a primary that was replaced might answer the read, and show money
// where it is no longer.
func (i *Inspector) tryWrite(ctx context.Context, c *collections.Collection) error {
	inFuture := bson.D{{Key: "$gt", Value: bson.A{time.UnixMilli(0), "$$NOW"}}} // never true
	filter := bson.D{{Key: "_id", Value: "probe"}, {Key: "$expr", Value: inFuture}}
	statement, err := wire.EncodeUpdate(filter, bson.D{{Key: "$inc", Value: bson.D{{Key: "changes", Value: int64(1)}}}})
	if err != nil {
		return err
	}
	reply, result, err := sendUpdate(ctx, c.Commands, statement)
	if refusal := err; wire.CommandCode(err) == wire.CodeUnauthorized { // a job that sets up need not be allowed to move money
		if reply, result, err = sendUpdate(ctx, notesOf(c), statement); wire.CommandCode(err) == wire.CodeUnauthorized {
			return refusal
		}
	}
	refusals := wire.StatementErrors(reply)
	switch {
	case refusesCommand(err):
		return lacks(c, "$$NOW in an update's filter, or no write concern majority", wire.ServerErrorOf(err, "update", c.Namespace))
	case result != protocol.Applied:
		return wire.ServerErrorOf(err, "update", c.Namespace)
	case len(refusals) > 0:
		return lacks(c, fmt.Sprintf("$$NOW in an update's filter (write error %d)", refusals[0].Code), nil)
	}
	if reply.Lookup("operationTime").Type != bson.TypeTimestamp {
		return lacks(c, "operationTime in the answer to a majority write", nil)
	}
	if !i.catalog.Routed(c.Commands) && reply.Lookup("opTime").Type == 0 { // a mongos leaves it out
		return lacks(c, "opTime in the answer to a majority write", nil)
	}
	return nil
}

// notesOf returns the collection of the note about a collection.
func notesOf(c *collections.Collection) *mongo.Collection {
	return wire.ForCommands(collections.NoteCollection(c.Commands))
}

func sendUpdate(ctx context.Context, handle *mongo.Collection, statement wire.Encoded) (bson.Raw, protocol.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	command, _ := wire.UpdateCommand(handle, []wire.Encoded{statement})
	return wire.Send(ctx, handle, command, wire.RightUpdate)
}

// lacks returns the error of a server that lacks something.
func lacks(c *collections.Collection, what string, cause error) error {
	err := fmt.Errorf("%w: the server of %s has no %s, which MongoDB 5.0 or later has and the protocol needs",
		collections.ErrUnsupported, c.Namespace, what)
	if cause != nil {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// refusesCommand reports whether an error comes from the server and is about the command
// itself. It is not where a right is missing, or a server was away or changed its role.
func refusesCommand(err error) bool {
	var refused mongo.CommandError
	if !errors.As(err, &refused) || refused.HasErrorLabel("RetryableWriteError") {
		return false
	}
	switch refused.Code {
	case 0, wire.CodeUnauthorized, wire.CodeNoUser, wire.CodeMaxTimeExpired:
		return false
	}
	return !isAbsence(int(refused.Code))
}

// isAbsence reports whether a code says that a server is not the primary, or not any
// longer, that it or another one can't be reached, or that it was too slow.
func isAbsence(code int) bool {
	switch code {
	case 6, 7, 8, 43, 64, 70, 89, 91, 133, 134, 189, 202, 237, 262, 365, 9001, 10058, 10107, 11600, 11601, 11602, 13388, 13435, 13436:
		return true
	}
	return false
}
