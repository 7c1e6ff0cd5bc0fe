// Package history reads the past of one account: its entries in the order of their
// commits, and its balance at an instant.
//
// A history is read in two steps. BalanceAsOf closes the past: it finds an instant before
// which no transfer on the account can be committed any more, and the balance at that
// instant. Page then reads entries from before it, which stay the same from then on.
package history

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Reader reads the past of accounts.
// It is safe for many goroutines.
type Reader struct {
	catalog *collections.Catalog
	barring collections.Failures // for want of the right to write to the transfers
	changes collections.Failures // for want of the right to watch a ledger
}

// New returns the reader of a catalog.
func New(c *collections.Catalog) *Reader {
	return &Reader{
		catalog: c, barring: collections.Failures{Span: refusalMemory}, changes: collections.Failures{Span: refusalMemory},
	}
}

// History is the past of one account: its entries in the order of their commits.
// It is used by one goroutine at a time.
type History struct {
	reader  *Reader
	catalog *collections.Catalog
	ledger  *collections.Collection
	key     bson.RawValue   // the _id of the account's document
	account string          // as the legs of transfers name it
	names   names           // under which they name the ledger
	seen    *bson.Timestamp // every page shows what the transfers' cluster had stored by then
	reached *bson.Timestamp // what the account's cluster had stored by an earlier read of it
	open    *openError      // why the past is closed only up to some instant, if so
}

// History returns the past of an account.
// Nothing is read yet.
func (r *Reader) History(ledger, id string) (*History, error) {
	key, err := r.catalog.IDs.Encode(id)
	if err != nil {
		return nil, err
	}
	return &History{
		reader: r, catalog: r.catalog, ledger: r.catalog.Ledgers[ledger],
		key: key, account: r.catalog.IDs.Canonical(id),
	}, nil
}

// session starts a session on the transfers' client.
func (h *History) session(opts *options.SessionOptionsBuilder) (*mongo.Session, error) {
	return h.catalog.Transfers.Database().Client().StartSession(opts)
}

// causalSession starts a session whose reads show at least what h.seen stands for.
func (h *History) causalSession(ctx context.Context) (*mongo.Session, error) {
	session, err := h.session(options.Session().SetCausalConsistency(true))
	if err != nil || h.seen == nil {
		return session, err
	}
	if err := session.AdvanceOperationTime(h.seen); err != nil {
		session.EndSession(context.WithoutCancel(ctx))
		return nil, err
	}
	return session, nil
}

// storedTime returns a time of the transfers' cluster by which it had stored everything
// that its primaries knew of when they were asked. Only a local read shows that time: a
// majority read shows the time of what the majority has stored.
func (h *History) storedTime(ctx context.Context) (*bson.Timestamp, error) {
	session, err := h.session(options.Session().SetCausalConsistency(true))
	if err != nil {
		return nil, err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	local := wire.ForReads(h.catalog.Transfers, readconcern.Local())
	// A mongos sends this filter to all shards.
	committed := bson.D{document.OfAccount(h.ledger.Name, h.account), {Key: "committedAt", Value: bson.D{{Key: "$exists", Value: true}}}}
	onlyID := options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}})
	_, err = wire.FindOne(mongo.NewSessionContext(ctx, session), local, committed, onlyID)
	if err != nil && !wire.NotFound(err) {
		return nil, err
	}
	return operationTime(session)
}

// operationTime returns the time of the session's latest operation.
func operationTime(session *mongo.Session) (*bson.Timestamp, error) {
	at := session.OperationTime()
	if at == nil {
		return nil, errors.New("the server did not report its operation time")
	}
	return at, nil
}
