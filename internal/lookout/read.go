package lookout

import (
	"context"
	"time"

	"github.com/mongotransfer/transfer/internal/queries"
	"github.com/mongotransfer/transfer/internal/wire"
)

const (
	// maxRead is how many transfers one command reads, which may be large.
	maxRead = 100
	// overdue is how long the others wait for a read. It may hang in the network, and
	// then it holds up no one else.
	overdue = 250 * time.Millisecond
	// maxReaders bounds the reads on their way, those that hang included.
	maxReaders = 8
	// One transfer is read again after a pause of so many times what the read has taken,
	// so that thousands who ask for it one after the other cost the server little.
	readPause   = 4
	longestRest = 100 * time.Millisecond
)

// look is one command that looks at targets.
type look struct {
	serial int // in the order in which they begin
	stream int // that was live when it began
	batch  []reading
	late   bool // it is overdue, or back; guarded by the lock
}

// reading is a target in a look.
type reading struct {
	target *target
	asked  chan struct{}
}

// begin returns a look that begins now. The caller holds the lock.
func (l *Lookout) begin() *look {
	l.looks++
	return &look{serial: l.looks, stream: l.stream.live}
}

// ask has a target read, and returns what is closed when a read is done that begins from
// now on. The caller holds the lock.
func (l *Lookout) ask(t *target) <-chan struct{} {
	if t.asked == nil {
		t.asked = make(chan struct{})
	}
	if t.queued {
		return t.asked
	}
	t.queued = true
	rest := t.began.Add(t.lasted + min(readPause*t.lasted, longestRest)).Sub(l.now())
	if t.began.IsZero() || rest <= 0 {
		l.enqueue(t)
		return t.asked
	}
	time.AfterFunc(min(rest, longestRest), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.enqueue(t)
	})
	return t.asked
}

// enqueue puts a target among those to be read. The caller holds the lock.
func (l *Lookout) enqueue(t *target) {
	l.asked = append(l.asked, t)
	l.startReading()
}

// startReading lets a read go out, if it may. The caller holds the lock.
func (l *Lookout) startReading() {
	if l.readers > 0 || len(l.asked) == 0 || l.closed {
		return
	}
	l.readers++
	l.all.Go(l.read)
}

// read reads what is asked for until nothing is left. While one read is on its way, what
// the next one reads gathers.
func (l *Lookout) read() {
	for {
		k := l.take()
		if len(k.batch) == 0 {
			return
		}
		giveWay := time.AfterFunc(overdue, func() { l.giveWay(k) })
		ids := make([]string, len(k.batch))
		for i, r := range k.batch {
			ids[i] = r.target.id
		}
		ctx, cancel := context.WithTimeout(l.base, wire.CommandLimit)
		begun := l.now()
		found, err := l.queries.ReadTransfers(ctx, ids)
		cancel()
		giveWay.Stop()
		if !l.deliver(k, found, err, l.now().Sub(begun)) {
			return // another one has taken this one's place
		}
	}
}

// giveWay lets another read go out although one is still on its way.
func (l *Lookout) giveWay(k *look) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !k.late && l.hanging < maxReaders-1 {
		k.late = true
		l.hanging++
		l.readers--
		l.startReading()
	}
}

// take takes what goes into the next read out of the queue. Where nothing is left, the
// turn is given back.
func (l *Lookout) take() *look {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.begin()
	for len(l.asked) > 0 && len(k.batch) < maxRead && !l.closed {
		t := l.asked[0]
		l.asked[0] = nil
		l.asked = l.asked[1:]
		t.queued = false
		if t.callers > 0 {
			k.batch = append(k.batch, reading{t, t.asked})
			t.asked, t.began = nil, l.now()
			t.reads++
		}
	}
	if len(k.batch) == 0 {
		l.readers--
	}
	return k
}

// deliver hands out what a read has found, and reports whether it still has its turn.
func (l *Lookout) deliver(k *look, found map[string]queries.Snapshot, err error, lasted time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range k.batch {
		r.target.lasted = lasted
		r.target.reads--
		l.show(r.target, found[r.target.id], err, k)
		close(r.asked)
	}
	if k.late {
		l.hanging--
		return false
	}
	k.late = true
	return true
}

// show makes what a read has found the latest sight of a target, unless a later one has
// been first. The caller holds the lock.
func (l *Lookout) show(t *target, found queries.Snapshot, err error, k *look) {
	if k.serial < t.serial {
		return
	}
	if err == nil {
		err = found.Err
	}
	before := t.sight
	seen := &Sight{Transfer: found.Transfer, Found: found.Fingerprint != "" && err == nil, Err: err, mark: found.Fingerprint}
	same := before != nil && err == nil && before.Err == nil && before.mark == seen.mark
	if same {
		seen.replaced = before.replaced
	} else {
		seen.replaced = make(chan struct{})
		if before != nil {
			close(before.replaced)
		}
	}
	seen.Replaced = seen.replaced
	t.sight, t.serial, t.covered = seen, k.serial, k.stream
	if !same && err == nil {
		t.glances = 0
		l.plan(t)
	}
}
