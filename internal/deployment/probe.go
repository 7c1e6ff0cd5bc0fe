package deployment

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

// probe tries, on each server, what the protocol rests on, and what something that only looks
// like MongoDB may lack. It writes nothing: its update matches no document. Who may not write
// tries what can be read.
func (s *Deployment) probe(ctx context.Context, writes bool) error {
	tried := map[*mongo.Client]bool{}
	for _, l := range s.All() {
		client := l.Commands.Database().Client()
		if tried[client] {
			continue
		}
		tried[client] = true
		if err := s.probeReads(ctx, l); err != nil {
			return err
		}
		if writes {
			if err := s.probeWrite(ctx, l); err != nil {
				return err
			}
		}
	}
	return nil
}

// lacks is the error of a server that lacks something.
func lacks(l *collections.Collection, what string, cause error) error {
	err := fmt.Errorf("%w: the server of %s has no %s, which MongoDB 5.0 or later has and the protocol needs",
		collections.ErrUnsupported, l.Namespace, what)
	if cause != nil {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// understood reports whether an error is the server's, and about the command itself: not
// that it may not be run, or that a server was away, or changed its role.
func understood(err error) bool {
	var refused mongo.CommandError
	if !errors.As(err, &refused) || refused.HasErrorLabel("RetryableWriteError") {
		return false
	}
	switch refused.Code {
	case 0, wire.CodeUnauthorized, wire.CodeNoUser, wire.CodeMaxTimeExpired:
		return false
	}
	return !away(int(refused.Code))
}

// away reports whether a code says that a server is not, or no longer, the primary, or
// that it or another one can't be reached, or was too slow.
func away(code int) bool {
	switch code {
	case 6, 7, 8, 43, 64, 70, 89, 91, 133, 134, 189, 202, 237, 262, 365, 9001, 10058, 10107, 11600, 11601, 11602, 13388, 13435, 13436:
		return true
	}
	return false
}

// probeReads tries a linearizable read, and a comparison with the server's time.
func (s *Deployment) probeReads(ctx context.Context, l *collections.Collection) error {
	limited, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	err := wire.ForReads(s.of(l).notes, readconcern.Linearizable()).FindOne(limited, bson.D{{Key: "_id", Value: noteID}}).Err()
	if understood(err) {
		return lacks(l, "linearizable read", wire.ServerErrorOf(err, "find", wire.NamespaceOf(s.of(l).notes)))
	}
	if err != nil && !wire.NotFound(err) {
		return wire.ServerErrorOf(err, "find", wire.NamespaceOf(s.of(l).notes))
	}
	err = s.of(l).notes.FindOne(limited, bson.D{{Key: "_id", Value: noteID}, {Key: "$expr", Value: beforeNow()}}).Err()
	if understood(err) {
		return lacks(l, "$$NOW", wire.ServerErrorOf(err, "find", wire.NamespaceOf(s.of(l).notes)))
	}
	if wire.NotFound(err) {
		return nil
	}
	return wire.ServerErrorOf(err, "find", wire.NamespaceOf(s.of(l).notes))
}

// beforeNow is an expression of the server's time, which it compares with one long ago.
func beforeNow() bson.D {
	return bson.D{{Key: "$lt", Value: bson.A{time.UnixMilli(0), "$$NOW"}}}
}

// probeWrite tries an update that compares with the server's time, and matches nothing. The
// server's answer tells two times: of the write, and of what it has done last. By these a
// majority read in the same session is known to come after the write; without them it might
// be answered by a primary that was replaced, and money would be taken for where it is not.
func (s *Deployment) probeWrite(ctx context.Context, l *collections.Collection) error {
	filter := bson.D{{Key: "_id", Value: "probe"}, {Key: "$expr", Value: bson.D{{Key: "$gt", Value: bson.A{time.UnixMilli(0), "$$NOW"}}}}}
	st, err := wire.EncodeUpdate(filter, bson.D{{Key: "$inc", Value: bson.D{{Key: "changes", Value: int64(1)}}}})
	if err != nil {
		return err
	}
	reply, result, err := s.tryUpdate(ctx, l.Commands, st)
	if refusal := err; wire.CommandCode(err) == wire.CodeUnauthorized { // a job that sets up need not be allowed to move money
		if reply, result, err = s.tryUpdate(ctx, s.of(l).notes, st); wire.CommandCode(err) == wire.CodeUnauthorized {
			return refusal
		}
	}
	refusals := wire.StatementErrors(reply)
	switch {
	case understood(err):
		return lacks(l, "$$NOW in an update's filter, or no write concern majority", wire.ServerErrorOf(err, "update", l.Namespace))
	case result != protocol.Applied:
		return wire.ServerErrorOf(err, "update", l.Namespace)
	case len(refusals) > 0:
		return lacks(l, fmt.Sprintf("$$NOW in an update's filter (write error %d)", refusals[0].Code), nil)
	}
	if reply.Lookup("operationTime").Type != bson.TypeTimestamp {
		return lacks(l, "operationTime in the answer to a majority write", nil)
	}
	if !s.Routed(l.Commands) && reply.Lookup("opTime").Type == 0 { // a mongos leaves it out
		return lacks(l, "opTime in the answer to a majority write", nil)
	}
	return nil
}

func (s *Deployment) tryUpdate(ctx context.Context, c *mongo.Collection, st wire.Encoded) (bson.Raw, protocol.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	command, _ := wire.UpdateCommand(c, []wire.Encoded{st})
	return wire.Send(ctx, c, command, wire.RightUpdate)
}
