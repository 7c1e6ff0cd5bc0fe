package overload

import (
	"context"
	"net"
	"sync"
	"syscall"
)

// traffic is what a line lets through.
type traffic int

const (
	flowing traffic = iota + 1
	// On a silent line connections stay and new ones are made, but nothing arrives.
	// When it flows again, everything arrives.
	silent
	// On a refusing line connections are cut, and no new ones are made.
	refusing
)

const (
	// piece is how much of a message passes at a time.
	// Connections share a narrow line in such pieces.
	piece = 4 << 10
	// kernelBuffer limits what has left the client and is not yet on the line.
	kernelBuffer = 64 << 10
)

// line is the network between the clients that dial through it and their servers.
// What a client has sent arrives even if the client has left since, as it would from the
// buffers of a real network.
type line struct {
	up, down *bucket // shared by all connections
	closed   chan struct{}
	all      sync.WaitGroup

	mu      sync.Mutex
	traffic traffic
	// changed is closed when the traffic changes, or what is held back.
	changed chan struct{}
	holds   func(command string) bool
	// doors holds the listener for each server, by the server's address.
	doors map[string]net.Listener
	conns map[net.Conn]struct{}
}

// newLine returns a line with a limit of bytes per second in each direction.
// Zero means no limit.
// It lives until close.
func newLine(bytesPerSecond int) *line {
	return &line{
		up: newBucket(bytesPerSecond), down: newBucket(bytesPerSecond), closed: make(chan struct{}),
		traffic: flowing, changed: make(chan struct{}), doors: map[string]net.Listener{}, conns: map[net.Conn]struct{}{},
	}
}

// DialContext implements options.ContextDialer.
func (l *line) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	door, err := l.door(ctx, address)
	if err != nil {
		return nil, err
	}
	if now, _ := l.now(); now == refusing {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: door, Err: syscall.ECONNREFUSED}
	}
	return new(net.Dialer).DialContext(ctx, network, door.String())
}

// door returns the address where the line to a server begins.
func (l *line) door(ctx context.Context, server string) (net.Addr, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.closed:
		return nil, net.ErrClosed
	default:
	}
	if l.doors[server] == nil {
		door, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		l.doors[server] = door
		l.all.Go(func() { l.accept(door, server) })
	}
	return l.doors[server].Addr(), nil
}

// set changes what the line lets through.
func (l *line) set(t traffic) {
	l.change(func() { l.traffic = t })
	if t == refusing {
		l.cut()
	}
}

// hold keeps back the commands for which named returns true, and everything after them on
// their connections, until the next call.
// Nil keeps nothing back.
func (l *line) hold(named func(command string) bool) { l.change(func() { l.holds = named }) }

func (l *line) change(what func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	what()
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *line) now() (traffic, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.traffic, l.changed
}

func (l *line) heldBack(m message) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holds != nil && l.holds(m.command())
}

// cut ends all connections.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.conns {
		_ = conn.Close()
	}
}

// close cuts all connections and waits until nothing passes over the line any more.
func (l *line) close() {
	l.mu.Lock()
	close(l.closed)
	for _, door := range l.doors {
		_ = door.Close()
	}
	l.mu.Unlock()
	l.cut()
	l.all.Wait()
}

func (l *line) accept(door net.Listener, server string) {
	for {
		client, err := door.Accept()
		if err != nil {
			return // The line is closed.
		}
		l.all.Go(func() { l.connect(client, server) })
	}
}

// connect connects a client to its server, once the line lets it.
func (l *line) connect(client net.Conn, address string) {
	if !l.keep(client) {
		return
	}
	defer l.drop(client)
	if !l.flows(nil) {
		return
	}
	server, err := net.Dial("tcp", address)
	if err != nil || !l.keep(server) {
		return
	}
	l.all.Go(func() {
		defer l.drop(server)
		defer func() { _ = client.Close() }()
		l.answers(server, client)
	})
	defer func() { _ = server.Close() }()
	l.commands(client, server)
}

// keep registers a connection.
// If the line is closed, it closes the connection and returns false.
func (l *line) keep(conn net.Conn) bool {
	if tcp, is := conn.(*net.TCPConn); is {
		// Without it, the line is only wider than it should be.
		_ = tcp.SetReadBuffer(kernelBuffer)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.closed:
		_ = conn.Close()
		return false
	default:
		l.conns[conn] = struct{}{}
		return true
	}
}

func (l *line) drop(conn net.Conn) {
	_ = conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, conn)
}

// commands passes whole messages on to the server.
func (l *line) commands(from, to net.Conn) {
	for {
		m, err := readMessage(from)
		if err != nil || !l.flows(m) {
			return
		}
		for len(m) > 0 {
			n := min(len(m), piece)
			if !l.up.pass(l.closed, n) || !l.flows(nil) {
				return
			}
			if _, err := to.Write(m[:n]); err != nil {
				return
			}
			m = m[n:]
		}
	}
}

// answers passes on to the client what the server sends.
func (l *line) answers(from, to net.Conn) {
	buffer := make([]byte, kernelBuffer)
	if l.down != nil {
		buffer = buffer[:piece]
	}
	for {
		n, err := from.Read(buffer)
		if err != nil || !l.down.pass(l.closed, n) || !l.flows(nil) {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// flows waits until the line lets a message through.
// Nil stands for a part of one.
// It returns false if nothing will ever pass.
func (l *line) flows(m message) bool {
	for {
		now, changed := l.now()
		held := m != nil && l.heldBack(m)
		switch {
		case now == refusing:
			return false
		case now == flowing && !held:
			return true
		}
		select {
		case <-changed:
		case <-l.closed:
			return false
		}
	}
}
