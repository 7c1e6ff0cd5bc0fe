package bank

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// wiredConn is one connection over a wire.
type wiredConn struct {
	net.Conn
	wire   *Wire
	mu     sync.Mutex
	broken atomic.Bool  // as far as the driver knows: a message is still to be delivered
	sends  bool         // that message
	answer bytes.Buffer // that is read before anything else
}

// Close leaves the connection open where a message is still to be delivered over it. Who
// waits for its answer waits no longer.
func (c *wiredConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.sends:
		return nil
	case c.broken.Load():
		return c.SetReadDeadline(time.Now())
	}
	return c.Conn.Close()
}

// Read doesn't return what arrives over a wire that is cut.
func (c *wiredConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	if c.answer.Len() > 0 && !c.wire.isDead() {
		defer c.mu.Unlock()
		return c.answer.Read(p)
	}
	c.mu.Unlock()
	n, err := c.Conn.Read(p)
	if c.wire.isDead() {
		return 0, CutOff()
	}
	return n, err
}

// Write sends one message: the driver writes each in one piece.
func (c *wiredConn) Write(message []byte) (int, error) {
	if c.wire.isDead() {
		return 0, c.breakOff()
	}
	what := c.wire.judge(c, message)
	if c.wire.isDead() && c.wire.OnDeath != nil {
		defer c.wire.OnDeath() // the message has met its fate by then
	}
	switch what {
	case Lost:
		return 0, c.breakOff()
	case Swallowed:
		return len(message), nil
	case Held:
		c.hold(bytes.Clone(message))
		return 0, CutOff()
	case Delayed:
		c.hold(bytes.Clone(message))
		return len(message), nil
	case Resent:
		return c.overload(message)
	case AnswerLost:
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

func (c *wiredConn) breakOff() error {
	_ = c.Conn.Close()
	return CutOff()
}

// hold keeps the connection for a message that is delivered later.
func (c *wiredConn) hold(message []byte) {
	c.broken.Store(true)
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	c.wire.late = append(c.wire.late, func() error {
		defer func() { _ = c.Conn.Close() }()
		c.mu.Lock()
		c.sends = true
		c.mu.Unlock()
		if err := c.SetDeadline(time.Now().Add(eventually)); err != nil {
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
	header := make([]byte, HeaderBytes)
	if _, err := io.ReadFull(c.Conn, header); err != nil {
		return 0, err
	}
	body := make([]byte, binary.LittleEndian.Uint32(header)-HeaderBytes)
	if _, err := io.ReadFull(c.Conn, body); err != nil {
		return 0, err
	}
	if command, _ := CommandIn(message); command != "find" {
		reply, err := overloaded(body[5:]) // flags and the kind of section come before the document
		if err != nil {
			return 0, err
		}
		body = append(make([]byte, 5), reply...)
		binary.LittleEndian.PutUint32(header, uint32(HeaderBytes+len(body)))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer.Write(header)
	c.answer.Write(body)
	return len(message), nil
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

// The parts of MongoDB's wire protocol that a fake server needs.
const (
	OpReply     = 1    // the answer to an opQuery
	OpQuery     = 2004 // how a driver says hello for the first time
	OpMsg       = 2013 // everything else, both ways
	HeaderBytes = 16   // length, the message's ID, the ID that it answers, the kind of message
)
