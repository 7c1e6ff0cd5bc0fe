package storetest

import (
	"log/slog"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/accounts"
	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/deployment"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/history"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/outbox"
	"github.com/mongotransfer/transfer/internal/queries"
	"github.com/mongotransfer/transfer/internal/repair"
	"github.com/mongotransfer/transfer/internal/retention"
)

// Rooms is the store and the rooms beside it, all on one catalog.
// A test calls their methods as if they were methods of one value.
type Rooms struct {
	*collections.Catalog
	*deployment.Deployment
	*retention.Retention
	*queries.Queries
	*accounts.Accounts
	*history.Reader
	*repair.Repairs
	*mongostore.Store
}

// Config is what the rooms are opened with.
type Config struct {
	// Transfers is the collection of the transfers.
	Transfers *mongo.Collection
	// Ledgers are the collections of the accounts, by the ledger's name.
	Ledgers map[string]*mongo.Collection
	// Documents are the collections of the effects' documents, by name. New sets none.
	Documents map[string]*mongo.Collection
	// Fields are the names of an account's fields. New sets StandardFields.
	Fields document.Fields
	// IDs encodes the accounts' IDs. The zero value stores them as strings.
	IDs document.IDCodec
	// MarkerLimit bounds the transfers in flight on one account. New sets 100.
	MarkerLimit int
	// FenceBytes bounds the memory for known fences. New sets the least there is.
	FenceBytes int64
	// Shared is the least number of accounts that share a statement. At 0 it is the
	// store's own.
	Shared int
	// Retention is the time after which final transfers are purged. 0 purges none.
	Retention time.Duration
	// Events are the kinds of events. New sets none.
	Events document.Events
	// Now is the process's clock. New sets time.Now.
	Now func() time.Time
}

// NewRooms opens the rooms on a new catalog.
func NewRooms(c Config) (*Rooms, error) {
	catalog, err := collections.New(collections.Config{
		Transfers: c.Transfers, Ledgers: c.Ledgers, Documents: c.Documents,
		Fields: c.Fields, IDs: c.IDs, Events: c.Events, Now: c.Now,
	})
	if err != nil {
		return nil, err
	}
	kept := retention.New(catalog, c.Retention)
	store, err := mongostore.New(catalog, kept, mongostore.Limits{
		Markers: c.MarkerLimit, FenceBytes: c.FenceBytes, Shared: c.Shared, Outbox: outbox.NewHand(c.Events, c.Now),
	})
	if err != nil {
		return nil, err
	}
	return &Rooms{
		Catalog:    catalog,
		Deployment: deployment.New(catalog, kept, slog.New(slog.DiscardHandler)),
		Retention:  kept,
		Queries:    queries.New(catalog),
		Accounts:   accounts.New(catalog),
		Reader:     history.New(catalog),
		Repairs:    repair.New(catalog),
		Store:      store,
	}, nil
}
