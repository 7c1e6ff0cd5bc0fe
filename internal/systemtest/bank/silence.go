package bank

import (
	"context"
	"net"
	"sync"
)

// Silence is a network over which, from some moment on, nothing comes back any more: no
// error, no answer.
type Silence struct {
	mu     sync.Mutex
	silent bool
}

// DialContext implements options.ContextDialer.
func (s *Silence) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	return &silentConn{conn, s}, err
}

// Set begins the silence, or ends it.
func (s *Silence) Set(silent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = silent
}

type silentConn struct {
	net.Conn
	silence *Silence
}

// Write swallows what is said into the silence.
func (c *silentConn) Write(message []byte) (int, error) {
	c.silence.mu.Lock()
	defer c.silence.mu.Unlock()
	if c.silence.silent {
		return len(message), nil
	}
	return c.Conn.Write(message)
}
