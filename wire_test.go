package transfer_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// fault is what happens to one message on its way to the server.
type fault string

const (
	lost       fault = "the message is lost"
	answerLost fault = "the answer is lost"
	held       fault = "the message is held back, and arrives after everything else is over"
	swallowed  fault = "the message is lost, and nobody is told"
	resent     fault = "the server calls itself overloaded, when it has done what it was asked, and the driver sends the message again"
)

// wire is the network between one client and the server. It can do something to one of the commands that are sent to a collection, and
// cut everything off from then on, as if the process had died.
type wire struct {
	mu       sync.Mutex
	at       int           // which command, counted from 0
	what     fault         // what happens to it
	also     map[int]fault // what happens to others
	die      bool          // after the one at nothing gets through any more
	onDeath  func()
	onStrike func()
	idle     bool // nothing is counted and nothing happens
	seen     int
	struck   bool
	dead     bool
	late     []func() error // deliveries that are due
	commands []string       // that were seen, for the story of a failure
}

// cutOff is the error of everything that a wire doesn't let through.
func cutOff() error { return errors.New("the wire is cut") }

// client returns the options of a client over this wire.
func (w *wire) client() *options.ClientOptions {
	return options.Client().SetDialer(w).SetMaxPoolSize(4)
}

// DialContext implements options.ContextDialer.
func (w *wire) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	dead := w.dead
	w.mu.Unlock()
	if dead {
		return nil, cutOff()
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	return &wiredConn{Conn: conn, wire: w}, err
}

// deliver lets the messages that were held back arrive, and waits until the server has answered them.
func (w *wire) deliver(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	late := w.late
	w.late = nil
	w.mu.Unlock()
	for _, arrive := range late {
		require.NoError(t, arrive())
	}
}

func (w *wire) hasStruck() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.struck
}

func (w *wire) isDead() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead
}

// judge tells what is to happen to a message.
func (w *wire) judge(message []byte) fault {
	command, counts := commandIn(message)
	if !counts {
		return ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.idle {
		return ""
	}
	w.commands = append(w.commands, command)
	w.seen++
	if w.seen-1 != w.at {
		return w.also[w.seen-1]
	}
	w.struck, w.dead = true, w.die
	if w.onStrike != nil {
		w.onStrike()
	}
	return w.what
}

func (w *wire) setIdle(idle bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.idle = idle
}

// commandIn names the command of a message, if it is one on a collection of the test's.
func commandIn(message []byte) (string, bool) {
	for _, command := range []string{"insert", "update", "findAndModify", "find"} {
		if bytes.Contains(message, []byte("\x02"+command+"\x00")) {
			return command, true
		}
	}
	return "", false
}

// wiredConn is one connection over a wire.
type wiredConn struct {
	net.Conn
	wire   *wire
	mu     sync.Mutex
	broken bool
	answer bytes.Buffer // that is read before anything else
}

// Write sends one message: the driver writes each in one piece.
func (c *wiredConn) Write(message []byte) (int, error) {
	if c.wire.isDead() {
		return 0, c.breakOff()
	}
	what := c.wire.judge(message)
	if c.wire.isDead() && c.wire.onDeath != nil {
		defer c.wire.onDeath() // the message has met its fate by then
	}
	switch what {
	case lost:
		return 0, c.breakOff()
	case swallowed:
		return len(message), nil
	case held:
		c.hold(bytes.Clone(message))
		return 0, c.half()
	case resent:
		return c.overload(message)
	case answerLost:
		if _, err := c.Conn.Write(message); err != nil {
			return 0, err
		}
		if err := c.skipAnswer(); err != nil {
			return 0, err
		}
		return 0, c.breakOff()
	}
	return c.Conn.Write(message)
}

// Read doesn't tell what comes over a wire that is cut.
func (c *wiredConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	if c.answer.Len() > 0 && !c.wire.isDead() {
		defer c.mu.Unlock()
		return c.answer.Read(p)
	}
	c.mu.Unlock()
	n, err := c.Conn.Read(p)
	if c.wire.isDead() {
		return 0, cutOff()
	}
	return n, err
}

// Close leaves the connection open where a message is still to be delivered over it.
func (c *wiredConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken {
		return nil
	}
	return c.Conn.Close()
}

func (c *wiredConn) breakOff() error {
	_ = c.Conn.Close()
	return cutOff()
}

// half makes the driver think that the connection is gone.
func (c *wiredConn) half() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = true
	return cutOff()
}

func (c *wiredConn) hold(message []byte) {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	c.wire.late = append(c.wire.late, func() error {
		defer func() { _ = c.Conn.Close() }()
		if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			return err
		}
		if _, err := c.Conn.Write(message); err != nil {
			return err
		}
		return c.skipAnswer()
	})
}

// overload lets a message arrive, and makes of its answer one after which the driver
// sends the message again: that what was done is not acknowledged, as the server has too
// much to do. What is no write is answered as it is.
func (c *wiredConn) overload(message []byte) (int, error) {
	if _, err := c.Conn.Write(message); err != nil {
		return 0, err
	}
	header := make([]byte, headerBytes)
	if _, err := io.ReadFull(c.Conn, header); err != nil {
		return 0, err
	}
	body := make([]byte, binary.LittleEndian.Uint32(header)-headerBytes)
	if _, err := io.ReadFull(c.Conn, body); err != nil {
		return 0, err
	}
	if command, _ := commandIn(message); command != "find" {
		reply, err := overloaded(body[5:]) // flags and the kind of section come before the document
		if err != nil {
			return 0, err
		}
		body = append(make([]byte, 5), reply...)
		binary.LittleEndian.PutUint32(header, uint32(headerBytes+len(body)))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer.Write(header)
	c.answer.Write(body)
	return len(message), nil
}

// overloaded adds to a reply what makes the driver send the command again.
func overloaded(reply bson.Raw) ([]byte, error) {
	var document bson.D
	if err := bson.Unmarshal(reply, &document); err != nil {
		return nil, err
	}
	concern := bson.D{{Key: "code", Value: 64}, {Key: "errmsg", Value: "overloaded"}}
	return bson.Marshal(append(document, bson.E{Key: "writeConcernError", Value: concern},
		bson.E{Key: "errorLabels", Value: bson.A{"SystemOverloadedError", "RetryableError"}}))
}

// skipAnswer reads one message of the server's: its first four bytes are its length.
func (c *wiredConn) skipAnswer() error {
	var header [4]byte
	if _, err := io.ReadFull(c.Conn, header[:]); err != nil {
		return err
	}
	rest := int64(binary.LittleEndian.Uint32(header[:])) - int64(len(header))
	_, err := io.CopyN(io.Discard, c.Conn, rest)
	return err
}
