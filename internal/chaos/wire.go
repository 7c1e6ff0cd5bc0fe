package chaos

import (
	"context"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

// The faults of messages.
const (
	faultDelay       = "delayed"
	faultLose        = "lost"
	faultAnswer      = "answer lost"
	faultDelayAnswer = "answer delayed"
	faultHold        = "held back"
)

func wireFaults() []string {
	return []string{faultDelay, faultLose, faultAnswer, faultDelayAnswer, faultHold}
}

const (
	// odds says that one in this many messages meets a fault.
	odds = 100
	// writeOdds is the same for writes to accounts, because a late one could move money,
	// and for inserts of transfers, because these are rare.
	writeOdds = 20
	// firstOdds is the same for messages of a kind that has not met every fault yet.
	firstOdds = 4
	// longestDelay is longer than the stall threshold of workers, and longer than some
	// callers wait at all.
	longestDelay = 2 * stallThreshold
	// longestHold is how long a message is held back, unless it is kept until the end.
	longestHold = 10 * time.Second
)

// wire is the network between the workers and one member of the set.
// It passes every message on to the member, except those that meet a fault.
type wire struct {
	member   string
	listener net.Listener
	tally    *tally
	late     *late

	mu    sync.Mutex
	rng   *rand.Rand
	calm  bool // no message meets a fault
	conns map[net.Conn]struct{}
	all   sync.WaitGroup
}

// newWire opens a wire to a member.
// It lives until close.
func newWire(ctx context.Context, member string, seed uint64, t *tally, l *late) (*wire, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &wire{
		member: member, listener: listener, tally: t, late: l,
		rng: rand.New(rand.NewPCG(seed, 1)), conns: map[net.Conn]struct{}{},
	}
	w.all.Go(func() { w.accept(ctx) })
	return w, nil
}

// address returns the address at which workers find the member.
func (w *wire) address() string { return w.listener.Addr().String() }

// settle lets all messages pass from now on.
func (w *wire) settle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calm = true
}

// close cuts all connections and waits until nothing passes over the wire any more.
func (w *wire) close() {
	_ = w.listener.Close()
	w.mu.Lock()
	for conn := range w.conns {
		_ = conn.Close()
	}
	w.mu.Unlock()
	w.all.Wait()
}

func (w *wire) accept(ctx context.Context) {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return // The wire is closed.
		}
		w.all.Go(func() {
			server, err := new(net.Dialer).DialContext(ctx, "tcp", w.member)
			if err != nil {
				_ = client.Close()
				return
			}
			l := &link{wire: w, client: client, server: server, struck: map[int]time.Duration{}}
			w.watch(client, server)
			w.all.Go(func() { l.answers(ctx) })
			l.commands(ctx)
		})
	}
}

func (w *wire) watch(conns ...net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range conns {
		w.conns[conn] = struct{}{}
	}
}

func (w *wire) forget(conns ...net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range conns {
		delete(w.conns, conn)
	}
}

// dice draws what happens to a message, and a time for it.
func (w *wire) dice(kind string) (fault string, howLong time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	faults := wireFaults()
	w.rng.Shuffle(len(faults), func(i, k int) { faults[i], faults[k] = faults[k], faults[i] })
	fault, met := w.tally.least(kind, faults)
	chance := odds
	switch {
	case met == 0 && slices.Contains(kinds(), kind):
		chance = firstOdds
	case kind == "update accounts" || kind == "insert transfers":
		chance = writeOdds
	}
	if kind == "" || w.calm || w.rng.IntN(chance) > 0 {
		return "", 0
	}
	w.tally.add(fault, kind, 1)
	longest := longestHold
	if fault == faultDelay || fault == faultDelayAnswer {
		longest = longestDelay
	}
	// Milliseconds are as likely as seconds.
	// A late message is at its worst before another executor has replaced the fence that
	// it names.
	return fault, time.Duration(float64(longest) * math.Pow(2, -10*w.rng.Float64()))
}

// link is one connection of a worker over a wire.
type link struct {
	wire           *wire
	client, server net.Conn

	mu sync.Mutex
	// struck is how long the answers to these requests are delayed.
	// Zero means for ever.
	struck map[int]time.Duration
}

// commands passes messages to the server until the connection ends.
func (l *link) commands(ctx context.Context) {
	defer l.cut()
	for {
		m, err := readMessage(l.client)
		if err != nil {
			return
		}
		fault, howLong := l.wire.dice(m.kind())
		switch fault {
		case faultLose:
			return
		case faultHold:
			l.wire.late.hold(ctx, m, howLong)
			return
		case faultDelay:
			if !pause(ctx, howLong) {
				return
			}
			l.wire.late.note(m)
		case faultAnswer:
			l.strike(m, 0)
		case faultDelayAnswer:
			l.strike(m, howLong)
		}
		if _, err := l.server.Write(m); err != nil {
			return
		}
	}
}

// strike records what happens to the answer to a message.
func (l *link) strike(m message, delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.struck[m.id()] = delay
}

// answers passes messages to the client until the connection ends.
func (l *link) answers(ctx context.Context) {
	defer l.cut()
	for {
		m, err := readMessage(l.server)
		if err != nil {
			return
		}
		l.mu.Lock()
		delay, struck := l.struck[m.replyTo()]
		delete(l.struck, m.replyTo())
		l.mu.Unlock()
		if struck && (delay == 0 || !pause(ctx, delay)) {
			return
		}
		if _, err := l.client.Write(m); err != nil {
			return
		}
	}
}

// cut ends the connection, on both sides.
func (l *link) cut() {
	// The second call fails, and nothing is lost by that.
	_, _ = l.client.Close(), l.server.Close()
	l.wire.forget(l.client, l.server)
}
