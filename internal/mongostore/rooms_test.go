package mongostore

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// rooms is all that works on one catalog.
type rooms struct {
	*Catalog
	*Deployment
	*Queries
	*Accounts
	*Histories
	*Repairs
	*Store
}

// config is that of a catalog and of the store's limits.
type config struct {
	Transfers   *mongo.Collection
	Ledgers     map[string]*mongo.Collection
	Documents   map[string]*mongo.Collection
	Fields      Fields
	IDs         IDCodec
	MarkerLimit int
	FenceBytes  int64
	Retention   time.Duration
	Now         func() time.Time
}

func newRooms(c config) (*rooms, error) {
	catalog, err := NewCatalog(Config{
		Transfers: c.Transfers, Ledgers: c.Ledgers, Documents: c.Documents, Fields: c.Fields, IDs: c.IDs, Now: c.Now,
	})
	if err != nil {
		return nil, err
	}
	deployment := NewDeployment(catalog, c.Retention)
	store, err := New(deployment, Limits{Markers: c.MarkerLimit, FenceBytes: c.FenceBytes})
	if err != nil {
		return nil, err
	}
	return &rooms{
		catalog, deployment, NewQueries(catalog), NewAccounts(catalog), NewHistories(catalog), NewRepairs(catalog), store,
	}, nil
}
