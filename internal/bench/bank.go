package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

const (
	// quietLimit is how long it may take until a contender is at rest after a round.
	quietLimit = time.Minute
	// quietInterval is the pause between two looks whether it is.
	// The looks take less than a hundredth of a round's processor time.
	quietInterval = 30 * time.Millisecond
)

// bank is the database of one contender, through a client of its own.
type bank struct {
	client    *mongo.Client
	db        *mongo.Database
	accounts  *mongo.Collection
	transfers *mongo.Collection
	// names are the names of the accounts.
	names    []string
	patterns patterns
	meter    *meter // of the client
}

// meter counts what is sent through a client.
type meter struct {
	commands atomic.Int64
	chain    chain
}

// uncounted marks the context of commands that a meter leaves out.
type uncounted struct{}

// monitor returns the driver's hook for a meter.
// The driver copies each command for it, which takes about 2 % of the program's time.
func (m *meter) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{
		Started: func(ctx context.Context, e *event.CommandStartedEvent) {
			if ctx.Value(uncounted{}) == nil {
				m.commands.Add(1)
				m.chain.started(ctx, e)
			}
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) { m.chain.ended(e.RequestID) },
		Failed:    func(_ context.Context, e *event.CommandFailedEvent) { m.chain.ended(e.RequestID) },
	}
}

// connect returns a client with the durability that all contenders have.
// The meter, if there is one, counts its commands.
func connect(uri string, m *meter, opts ...*options.ClientOptions) (*mongo.Client, error) {
	journaled := true
	concerns := options.Client().ApplyURI(uri).
		SetWriteConcern(&writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journaled}).
		SetReadConcern(readconcern.Majority())
	if m != nil {
		concerns.SetMonitor(m.monitor())
	}
	return mongo.Connect(append([]*options.ClientOptions{concerns}, opts...)...)
}

// openBank returns a contender's bank on a deployment.
func openBank(d *deployment, database string, accounts int, opts ...*options.ClientOptions) (*bank, error) {
	b := &bank{patterns: d.patterns, meter: &meter{}, names: make([]string, accounts)}
	var err error
	if b.client, err = connect(d.uri, b.meter, opts...); err != nil {
		return nil, err
	}
	b.db = b.client.Database(database)
	b.accounts, b.transfers = b.db.Collection("accounts"), b.db.Collection("transfers")
	for i := range b.names {
		b.names[i] = accountName(i)
	}
	return b, nil
}

// fill creates the accounts, and the transfers that are stored from the beginning.
func (b *bank) fill(ctx context.Context, size size, c contender) error {
	err := insertMany(ctx, b.accounts, size.Accounts, func(i int) any { return c.account(b, b.names[i]) })
	if err != nil {
		return fmt.Errorf("create accounts: %w", err)
	}
	old, err := newStream("uniform", size.Accounts, 0, 'o', 0, 0)
	if err != nil {
		return err
	}
	orders := make([]order, 1)
	begin := time.Now().Add(-time.Duration(size.Stored) * time.Second)
	err = insertMany(ctx, b.transfers, size.Stored, func(i int) any {
		old.fill(orders)
		return c.transfer(b, orders[0], begin.Add(time.Duration(i)*time.Second))
	})
	if err != nil {
		return fmt.Errorf("create transfers: %w", err)
	}
	return nil
}

// insertMany stores n documents.
func insertMany(ctx context.Context, c *mongo.Collection, n int, document func(int) any) error {
	const atOnce = 5000
	for from := 0; from < n; from += atOnce {
		batch := make([]any, 0, atOnce)
		for i := from; i < min(n, from+atOnce); i++ {
			batch = append(batch, document(i))
		}
		if _, err := c.InsertMany(ctx, batch, options.InsertMany().SetOrdered(false)); err != nil {
			return err
		}
	}
	return nil
}

// check returns an error if money was made or lost, or if a transfer that has ended left
// anything behind.
func (b *bank) check(ctx context.Context) error {
	cursor, err := b.accounts.Aggregate(ctx, bson.A{bson.D{{Key: "$group", Value: bson.D{
		{Key: "_id", Value: nil},
		{Key: "n", Value: bson.D{{Key: "$sum", Value: 1}}},
		{Key: "sum", Value: bson.D{{Key: "$sum", Value: "$balance"}}},
	}}}})
	if err != nil {
		return err
	}
	var sums []struct{ N, Sum int64 }
	if err := cursor.All(ctx, &sums); err != nil {
		return err
	}
	want := firstBalance * int64(len(b.names))
	if len(sums) != 1 || sums[0].N != int64(len(b.names)) || sums[0].Sum != want {
		return fmt.Errorf("%s: the balances of %d accounts should add up to %d: %+v", b.db.Name(), len(b.names), want, sums)
	}
	return nil
}

// awaitQuiet waits until no account holds a marker and no transfer of the library is
// open.
// It returns an error if that takes long.
func (b *bank) awaitQuiet(ctx context.Context) error {
	if err := b.awaitFinished(ctx); err != nil {
		return err
	}
	marked := bson.D{{Key: "pending", Value: bson.D{{Key: "$nin", Value: bson.A{nil, bson.D{}}}}}}
	return b.awaitNone(ctx, b.accounts, marked, "accounts hold markers")
}

// awaitFinished waits until no transfer of the library is open.
// An index answers that, so that it costs next to nothing.
func (b *bank) awaitFinished(ctx context.Context) error {
	open := bson.D{{Key: "open", Value: true}, {Key: "state", Value: bson.D{{Key: "$gt", Value: ""}}}}
	return b.awaitNone(ctx, b.transfers, open, "transfers are open")
}

// awaitNone waits until no document matches.
func (b *bank) awaitNone(ctx context.Context, in *mongo.Collection, filter bson.D, found string) error {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, uncounted{}, true), quietLimit)
	defer cancel()
	ticker := time.NewTicker(quietInterval)
	defer ticker.Stop()
	for {
		n, err := in.CountDocuments(ctx, filter)
		if err == nil && n == 0 {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: after %v, %d %s: %w", b.db.Name(), quietLimit, n, found, errors.Join(err, ctx.Err()))
		}
	}
}

// close drops the database and disconnects the client.
func (b *bank) close(ctx context.Context) error {
	return errors.Join(b.db.Drop(ctx), b.client.Disconnect(ctx))
}
