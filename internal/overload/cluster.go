package overload

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	transfer "github.com/mongotransfer/transfer"
)

// cluster is a server as one coordinator sees it: through a client of its own, which
// counts its commands.
type cluster struct {
	counts *counts
	client *mongo.Client
	line   *line // that leads there; nil: a direct connection
}

// reach returns a cluster.
// The scene disconnects it at its end.
func (s *scene) reach(uri string, l *line) (*cluster, error) {
	c := &cluster{counts: &counts{}, line: l}
	opts := options.Client().ApplyURI(uri).SetMonitor(c.counts.commands()).SetPoolMonitor(c.counts.pool())
	if l != nil {
		opts.SetDialer(l)
	}
	client, err := mongo.Connect(opts)
	if err != nil {
		return nil, err
	}
	c.client = client
	s.later(func() error {
		now, cancel := context.WithCancel(context.Background())
		cancel() // Otherwise the client says goodbye to a server that may be silent.
		if err := client.Disconnect(now); !errors.Is(err, mongo.ErrClientDisconnected) {
			return err
		}
		return nil
	})
	return c, nil
}

// member is a coordinator of a bank, with the cluster of each ledger as the coordinator
// sees it.
type member struct {
	*transfer.Coordinator
	clusters map[string]*cluster
}

func (m *member) home() *cluster { return m.clusters[""] }

// narrowRate is the rate of a line that is too narrow, in bytes per second.
const narrowRate = 300_000

// lines says which ledgers a member reaches over a line, and how wide each line is: see
// newLine.
type lines map[string]int

// join returns a new coordinator of the bank.
// The scene closes it at its end.
func (b *bank) join(ctx context.Context, over lines, opts ...transfer.Option) (*member, error) {
	m := &member{clusters: map[string]*cluster{}}
	for ledger, uri := range b.servers {
		var way *line
		if width, has := over[ledger]; has {
			way = newLine(width)
			b.scene.later(func() error { way.close(); return nil })
		}
		c, err := b.scene.reach(uri, way)
		if err != nil {
			return nil, err
		}
		m.clusters[ledger] = c
		if ledger != "" {
			opts = append(opts, transfer.WithLedger(ledger, b.accounts(c, ledger)))
		}
	}
	var err error
	if m.Coordinator, err = transfer.NewCoordinator(m.home().client.Database(b.database), opts...); err != nil {
		return nil, err
	}
	b.scene.later(func() error { return leave(m) })
	return m, m.Setup(ctx)
}

// openAndJoin returns a bank on the home server, and one coordinator of it.
func (s *scene) openAndJoin(ctx context.Context) (*bank, *member, error) {
	b, err := s.open(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	m, err := b.join(ctx, nil)
	return b, m, err
}

// accounts returns the collection of a ledger's accounts, through a given cluster.
func (b *bank) accounts(c *cluster, ledger string) *mongo.Collection {
	name := "accounts"
	if ledger != "" {
		name = ledger
	}
	return c.client.Database(b.database).Collection(name)
}

// transfers returns the collection of transfers, through a member's client, read without
// waiting for a majority.
func (b *bank) transfers(m *member) *mongo.Collection {
	return m.home().client.Database(b.database).Collection("transfers", options.Collection().SetReadConcern(readconcern.Local()))
}

// leave closes a coordinator at once.
// What is still in progress has been reported before.
func leave(m *member) error {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	if err := m.Close(now); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
