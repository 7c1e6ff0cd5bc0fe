package servers

import (
	"context"
	"errors"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// signpost leads a client to a server, whatever address it asks for, and to another one
// once it is turned.
type signpost struct {
	mu    sync.Mutex
	to    string
	next  string // where it leads once something was read, if anywhere
	conns []net.Conn
}

func hostOf(t *testing.T, server *mongotest.Server) string {
	t.Helper()
	u, err := url.Parse(server.URI())
	require.NoError(t, err)
	return u.Host
}

// DialContext implements options.ContextDialer.
func (s *signpost) DialContext(ctx context.Context, network, _ string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	conn, err := new(net.Dialer).DialContext(ctx, network, s.to)
	if err == nil {
		s.conns = append(s.conns, conn)
	}
	return conn, err
}

// turn leads to another server from now on.
func (s *signpost) turn(to string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to, s.next = to, ""
	for _, conn := range s.conns {
		_ = conn.Close()
	}
	s.conns = nil
}

// wasRead is called when something was read.
func (s *signpost) wasRead(_ context.Context, e *event.CommandSucceededEvent) {
	s.mu.Lock()
	next := s.next
	s.mu.Unlock()
	if next != "" && e.CommandName == "find" {
		s.turn(next)
	}
}

// database returns a database by the signpost.
func (s *signpost) database(t *testing.T, name string) *mongo.Database {
	t.Helper()
	opts := options.Client().SetDialer(s).SetServerMonitoringMode(options.ServerMonitoringModePoll).
		SetMonitor(&event.CommandMonitor{Succeeded: s.wasRead})
	return bank.Client(t, "mongodb://signpost.invalid:27017/?directConnection=true", opts).Database(name)
}

// crossing returns a request that moves units from a to x of the ledger eu, or back.
func crossing(id string, units int64) transfer.Request {
	return transfer.Request{ID: id, Legs: []transfer.Leg{
		{Account: "a", Amount: transfer.Units(-units)}, {Ledger: "eu", Account: "x", Amount: transfer.Units(units)},
	}}
}

// turned is a ledger eu behind a signpost, with holds in flight.
type turned struct {
	*bank.Bank

	post     *signpost
	one, two string
	c        *transfer.Coordinator
	eu       *transfer.Ledger
	decide   map[string]func(context.Context, string) (transfer.Record, error) // by hold
}

func newTurned(t *testing.T) *turned {
	t.Helper()
	one, two := bank.StartServer(t), bank.StartServer(t)
	b := &turned{Bank: bank.New(t, 100, 0).WithIndexes(), one: hostOf(t, one), two: hostOf(t, two)}
	b.post = &signpost{to: b.one}
	b.c = b.NewCoordinator(b.DB, transfer.WithLedger("eu", b.post.database(t, b.DB.Name()).Collection("accounts")))
	require.NoError(t, b.c.Setup(t.Context()))
	var err error
	b.eu, err = b.c.Ledger("eu")
	require.NoError(t, err)
	_, err = b.eu.Open(t.Context(), transfer.Account{ID: "x", Balance: transfer.Units(1000)})
	require.NoError(t, err)
	for id, units := range map[string]int64{"in": 50, "out": -300, "void in": 7, "void out": -8} {
		_, err = b.c.Hold(t.Context(), crossing(id, units), time.Hour)
		require.NoError(t, err)
	}
	wholly := func(ctx context.Context, id string) (transfer.Record, error) { return b.c.Post(ctx, id) }
	b.decide = map[string]func(context.Context, string) (transfer.Record, error){
		"in": wholly, "out": wholly, "void in": b.c.Void, "void out": b.c.Void,
	}
	there := bank.Client(t, two.URI()).Database(b.DB.Name()).Collection("accounts")
	_, err = there.InsertOne(t.Context(), bson.M{"_id": "x", "balance": int64(5)})
	require.NoError(t, err)
	return b
}

// While a process runs, the address of a ledger comes to lead to another server, where a
// collection of the same name has an account of the same ID.
// What is held is neither taken for posted there, nor for voided.
func TestLedgersServerIsReplaced(t *testing.T) {
	t.Parallel()
	b := newTurned(t)
	b.post.turn(b.two)
	var all sync.WaitGroup
	for id, decide := range b.decide {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			if rec, err := decide(ctx, id); err == nil {
				t.Errorf("%s: %s", id, rec.State)
			}
		})
	}
	all.Wait()
	isAnother := func() (bool, error) { // the client has to find the other server
		return errors.Is(b.c.Healthy(t.Context()), transfer.ErrUnsupportedDeployment), nil
	}
	bank.Until(t, 100*time.Millisecond, isAnother)
	_, err := b.c.Transfer(t.Context(), crossing("new", 5))
	require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
	for id := range b.decide {
		state := b.RawTransfer(id).State
		require.False(t, state == "Success" || state == "Fail", "%s: %s", id, state)
	}

	b.decidedRightly()
}

// The address leads back right after a hold was looked for on the other server. What was
// seen there counts for nothing all the same.
func TestLedgersServerIsBack(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"in", "out", "void in", "void out"} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			b := newTurned(t)
			b.post.turn(b.two)
			b.post.mu.Lock()
			b.post.next = b.one
			b.post.mu.Unlock()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := b.decide[id](ctx, id)
			t.Log(err)
			b.decidedRightly()
		})
	}
}

// decidedRightly has the address lead back, and requires that all holds come to the right
// end.
func (b *turned) decidedRightly() {
	t := b.T
	t.Helper()
	b.post.turn(b.one)
	bank.Until(t, 100*time.Millisecond, func() (bool, error) { return b.c.Healthy(t.Context()) == nil, nil })
	for id, decide := range b.decide {
		_, err := decide(t.Context(), id)
		require.NoError(t, err, id)
	}
	x, err := b.eu.Get(t.Context(), "x")
	require.NoError(t, err)
	require.Equal(t, transfer.Units(750), x.Posted)
	a, err := b.c.GetAccount(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, transfer.Units(350), a.Posted)
	report, err := b.c.Audit(t.Context())
	require.NoError(t, err)
	require.Empty(t, report.Findings)
}

// While a process runs, the address of the transfers comes to lead to another server,
// which has none. What was moved is not moved again.
func TestTransfersServerIsReplaced(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	one, two := bank.StartServer(t), bank.StartServer(t)
	post := &signpost{to: hostOf(t, one)}
	c := b.NewCoordinator(post.database(t, b.DB.Name()), transfer.WithAccounts(b.DB.Collection("accounts")))
	require.NoError(t, c.Setup(t.Context()))
	for _, id := range []string{"a", "b"} {
		_, err := c.OpenAccount(t.Context(), transfer.Account{ID: id, Balance: transfer.Units(100)})
		require.NoError(t, err)
	}
	_, err := c.Transfer(t.Context(), bank.Move("t", "a", "b", 10))
	require.NoError(t, err)
	post.turn(hostOf(t, two))
	bank.Until(t, 100*time.Millisecond, func() (bool, error) { // the client has to find the other server
		err := c.Healthy(t.Context())
		return errors.Is(err, transfer.ErrUnsupportedDeployment), nil
	})
	for _, id := range []string{"t", "u"} {
		_, err = c.Transfer(t.Context(), bank.Move(id, "a", "b", 10))
		require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
	}
	_, err = c.BalanceAt(t.Context(), "a", time.Now())
	require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)

	post.turn(hostOf(t, one))
	bank.Until(t, 100*time.Millisecond, func() (bool, error) {
		_, err = c.Transfer(t.Context(), bank.Move("u", "a", "b", 10))
		return err == nil, nil
	})
	_, err = c.Transfer(t.Context(), bank.Move("t", "a", "b", 10))
	require.NoError(t, err)
	a, err := c.GetAccount(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, transfer.Units(80), a.Balance)
	report, err := c.Audit(t.Context())
	require.NoError(t, err)
	require.Empty(t, report.Findings)
}
