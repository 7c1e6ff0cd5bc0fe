package mongostore

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/accounts"
	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/deployment"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/history"
	"github.com/mongotransfer/transfer/internal/queries"
	"github.com/mongotransfer/transfer/internal/repair"
	"github.com/mongotransfer/transfer/internal/retention"
)

// rooms is all that works on one catalog.
type rooms struct {
	*collections.Catalog
	*deployment.Deployment
	*retention.Retention
	*queries.Queries
	*accounts.Accounts
	*history.Reader
	*repair.Repairs
	*Store
}

// config is that of a catalog and of the store's limits.
type config struct {
	Transfers   *mongo.Collection
	Ledgers     map[string]*mongo.Collection
	Documents   map[string]*mongo.Collection
	Fields      document.Fields
	IDs         document.IDCodec
	MarkerLimit int
	FenceBytes  int64
	Retention   time.Duration
	Now         func() time.Time
}

func newRooms(c config) (*rooms, error) {
	catalog, err := collections.New(collections.Config{
		Transfers: c.Transfers, Ledgers: c.Ledgers, Documents: c.Documents, Fields: c.Fields, IDs: c.IDs, Now: c.Now,
	})
	if err != nil {
		return nil, err
	}
	kept := retention.New(catalog, c.Retention)
	store, err := New(catalog, kept, Limits{Markers: c.MarkerLimit, FenceBytes: c.FenceBytes})
	if err != nil {
		return nil, err
	}
	return &rooms{
		catalog, deployment.New(catalog, kept), kept, queries.New(catalog), accounts.New(catalog), history.New(catalog), repair.New(catalog), store,
	}, nil
}
