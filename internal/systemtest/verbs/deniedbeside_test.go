package verbs

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// denier is a network over which a server refuses reads of a test's collections, as if a
// right were revoked, and to which inserts come late.
type denier struct {
	denies  atomic.Bool
	holds   atomic.Bool
	reached chan struct{} // closed when an insert is held
	release chan struct{} // closed to let it go
}

// DialContext implements options.ContextDialer.
func (d *denier) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	return &deniedConn{Conn: conn, denier: d}, err
}

type deniedConn struct {
	net.Conn
	denier *denier
	answer bytes.Buffer // in place of the server's
}

// Read implements net.Conn.
func (c *deniedConn) Read(p []byte) (int, error) {
	if c.answer.Len() > 0 {
		return c.answer.Read(p)
	}
	return c.Conn.Read(p)
}

// Write implements net.Conn.
func (c *deniedConn) Write(message []byte) (int, error) {
	switch command, _ := bank.CommandIn(message); {
	case command == "insert" && c.denier.holds.Swap(false):
		close(c.denier.reached)
		<-c.denier.release
	case command == "find" && c.denier.denies.Load():
		return len(message), c.deny(message)
	}
	return c.Conn.Write(message)
}

// deny sends a message, and replaces its answer.
func (c *deniedConn) deny(message []byte) error {
	if _, err := c.Conn.Write(message); err != nil {
		return err
	}
	header := make([]byte, bank.HeaderBytes)
	if _, err := io.ReadFull(c.Conn, header); err != nil {
		return err
	}
	if _, err := io.CopyN(io.Discard, c.Conn, int64(binary.LittleEndian.Uint32(header)-bank.HeaderBytes)); err != nil {
		return err
	}
	refusal, err := bson.Marshal(bson.D{{Key: "ok", Value: 0.0}, {Key: "code", Value: 13}, {Key: "errmsg", Value: "not authorized"}})
	if err != nil {
		return err
	}
	body := append(make([]byte, 5), refusal...)
	binary.LittleEndian.PutUint32(header, uint32(bank.HeaderBytes+len(body)))
	c.answer.Write(append(header, body...))
	return nil
}

// A caller's claim is on its way when it leaves, and a right is revoked then. Another
// caller with the same ID does not learn that nothing is stored.
func TestDeniedBesideOneUnderWay(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.Insert("orders", bson.D{{Key: "_id", Value: "o"}, {Key: "status", Value: "unpaid"}})
	d := &denier{reached: make(chan struct{}), release: make(chan struct{})}
	release := sync.OnceFunc(func() { close(d.release) })
	defer release()
	c := b.NewCoordinator(b.Through(options.Client().SetDialer(d)), bank.Orders(b.DB)...)
	mustUpdate(t, c, "b", frozen(false))
	require.NoError(t, c.Healthy(t.Context())) // what it asks a server first is asked
	payment := bank.Payment("t", "o", 60)
	d.holds.Store(true)
	ctx, leave := context.WithCancel(t.Context())
	told := make(chan error, 1)
	go func() { told <- bank.ErrorOf(c.Transfer(ctx, payment)) }()
	<-d.reached
	leave()
	require.ErrorIs(t, bank.Within(t, told), transfer.ErrInDoubt)
	d.denies.Store(true)
	_, err := c.Transfer(t.Context(), payment)
	require.ErrorIs(t, err, transfer.ErrUnauthorized)
	require.ErrorIs(t, err, transfer.ErrInDoubt)
	d.denies.Store(false)
	release()
	bank.Until(t, 10*time.Millisecond, func() (bool, error) {
		rec, err := b.Get(t.Context(), "t")
		return rec.State == transfer.StateSuccess, err
	})
	b.CheckBooks(bank.Balances(100, 0))
}
