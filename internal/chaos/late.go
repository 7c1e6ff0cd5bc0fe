package chaos

import (
	"context"
	"maps"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

const (
	faultLate = "arrived late"
	// deliveryLimit is how long a server may take to answer a late message.
	deliveryLimit = 5 * time.Second
	// keptUntilEnd says that one in this many held-back messages arrives after everything
	// else is over.
	keptUntilEnd = 3
	// mostKept is the largest number of messages that are kept until the end.
	mostKept = 1000
)

// late keeps messages that arrive after their senders gave up: some after a while, some
// at the very end.
type late struct {
	members []string
	tally   *tally

	mu   sync.Mutex
	rng  *rand.Rand
	kept []message
	// door is when a message that closes or reopens an account last came late, by
	// account.
	door map[string]time.Time
	all  sync.WaitGroup
}

func newLate(members []string, seed uint64, t *tally) *late {
	return &late{members: members, tally: t, rng: rand.New(rand.NewPCG(seed, 2)), door: map[string]time.Time{}}
}

// hold keeps a message, which arrives after the given time or at the end.
func (l *late) hold(ctx context.Context, m message, howLong time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rng.IntN(keptUntilEnd) == 0 && len(l.kept) < mostKept {
		l.kept = append(l.kept, m)
		return
	}
	l.all.Go(func() {
		if pause(ctx, howLong) && l.deliver(ctx, m) {
			l.tally.add(faultLate, m.kind(), 1)
		}
	})
}

// deliverAll waits for the messages whose time has come, and delivers those that were
// kept until the end.
// It returns how many writes reached a server that performed them.
// The audit finds out whether they changed anything.
func (l *late) deliverAll(ctx context.Context) map[string]int {
	l.all.Wait()
	l.mu.Lock()
	kept := l.kept
	l.kept = nil
	l.mu.Unlock()
	arrived := map[string]int{}
	for _, m := range kept {
		if l.deliver(ctx, m) {
			l.tally.add(faultLate, m.kind(), 1)
			arrived[m.kind()]++
		}
	}
	return arrived
}

// deliver sends a message to one member after the other until one performs it, which is
// the present primary.
func (l *late) deliver(ctx context.Context, m message) bool {
	defer l.note(m)
	for _, member := range l.members {
		if l.deliverTo(ctx, member, m) {
			return true
		}
	}
	return false
}

func (l *late) deliverTo(ctx context.Context, member string, m message) bool {
	ctx, cancel := context.WithTimeout(ctx, deliveryLimit)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", member)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := conn.Write(m); err != nil {
		return false
	}
	reply, err := readMessage(conn)
	return err == nil && reply.ok()
}

// note records when a message came late, if it closes or reopens an account.
func (l *late) note(m message) {
	account := m.door()
	if account == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.door[account] = time.Now()
}

// doors returns when a message that closes or reopens an account last came late, by
// account.
func (l *late) doors() map[string]time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.door)
}
