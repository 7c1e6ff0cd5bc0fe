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
	// overdueAfter is how long others wait for a read.
	// A read that hangs in the network delays nobody else after that.
	overdueAfter = 250 * time.Millisecond
	// maxReaders bounds the reads in flight, including the overdue ones.
	maxReaders = 8
	// readPauseFactor is the pause between two reads of one transfer, as a multiple of
	// what the first one took.
	// So thousands of callers who ask for it one after the other cost the server little.
	readPauseFactor  = 4
	longestReadPause = 100 * time.Millisecond
)

// read is one command that reads targets, or glances at them.
type read struct {
	serial     int // in the order in which reads begin
	stream     int // the number of the stream that was live when it began
	batch      []readTarget
	superseded bool // it is overdue, or returned; guarded by the lock
}

// readTarget is a target in a read.
type readTarget struct {
	target *target
	done   chan struct{}
}

// beginRead returns a read that begins now.
// The caller holds the lock.
func (l *Lookout) beginRead() *read {
	l.readsBegun++
	return &read{serial: l.readsBegun, stream: l.stream.live}
}

// requestRead queues a target to be read.
// The channel is closed by the first read of it that begins from now on.
// The caller holds the lock.
func (l *Lookout) requestRead(t *target) (done <-chan struct{}) {
	if t.readDone == nil {
		t.readDone = make(chan struct{})
	}
	if t.queued {
		return t.readDone
	}
	t.queued = true
	earliest := t.readAt.Add(t.readTook + min(readPauseFactor*t.readTook, longestReadPause))
	pause := earliest.Sub(l.now())
	if t.readAt.IsZero() || pause <= 0 {
		l.enqueue(t)
		return t.readDone
	}
	time.AfterFunc(min(pause, longestReadPause), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.enqueue(t)
	})
	return t.readDone
}

// enqueue adds a target to the read queue.
// The caller holds the lock.
func (l *Lookout) enqueue(t *target) {
	l.readQueue = append(l.readQueue, t)
	l.startReading()
}

// startReading starts a reader, unless one is at work.
// The caller holds the lock.
func (l *Lookout) startReading() {
	if l.readersInTime > 0 || len(l.readQueue) == 0 || l.closed {
		return
	}
	l.readersInTime++
	l.goroutines.Go(l.readQueued)
}

// readQueued reads queued targets until none is left.
// While one read is in flight the next one gathers.
func (l *Lookout) readQueued() {
	for {
		r := l.takeRead()
		if len(r.batch) == 0 {
			return
		}
		overdueTimer := time.AfterFunc(overdueAfter, func() { l.supersede(r) })
		ids := make([]string, len(r.batch))
		for i, entry := range r.batch {
			ids[i] = entry.target.id
		}
		ctx, cancel := context.WithTimeout(l.base, wire.CommandLimit)
		begun := l.now()
		found, err := l.queries.ReadTransfers(ctx, ids)
		cancel()
		overdueTimer.Stop()
		if !l.deliver(r, found, err, l.now().Sub(begun)) {
			return // another reader has its turn
		}
	}
}

// supersede lets another read begin although one is still in flight.
func (l *Lookout) supersede(r *read) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !r.superseded && l.readersOverdue < maxReaders-1 {
		r.superseded = true
		l.readersOverdue++
		l.readersInTime--
		l.startReading()
	}
}

// takeRead takes the targets of the next read off the queue.
// If there are none it gives the turn back.
func (l *Lookout) takeRead() *read {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.beginRead()
	for len(l.readQueue) > 0 && len(r.batch) < maxRead && !l.closed {
		t := l.readQueue[0]
		l.readQueue[0] = nil
		l.readQueue = l.readQueue[1:]
		t.queued = false
		if t.callers > 0 {
			r.batch = append(r.batch, readTarget{t, t.readDone})
			t.readDone, t.readAt = nil, l.now()
			t.reads++
		}
	}
	if len(r.batch) == 0 {
		l.readersInTime--
	}
	return r
}

// deliver hands out what a read found, and reports whether the reader keeps its turn.
func (l *Lookout) deliver(
	r *read, found map[string]queries.Snapshot, err error, took time.Duration,
) (keepsTurn bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, entry := range r.batch {
		entry.target.readTook = took
		entry.target.reads--
		l.update(entry.target, found[entry.target.id], err, r)
		close(entry.done)
	}
	if r.superseded {
		l.readersOverdue--
		return false
	}
	r.superseded = true
	return true
}

// update makes what a read found the latest sight of a target, unless a later read was
// first.
// The caller holds the lock.
func (l *Lookout) update(t *target, found queries.Snapshot, err error, r *read) {
	if r.serial < t.latestRead {
		return
	}
	if err == nil {
		err = found.Err
	}
	before := t.latest
	sight := &Sight{Transfer: found.Transfer, Found: found.Fingerprint != "" && err == nil, Err: err, mark: found.Fingerprint}
	same := before != nil && err == nil && before.Err == nil && before.mark == sight.mark
	if same {
		sight.replaced = before.replaced
	} else {
		sight.replaced = make(chan struct{})
		if before != nil {
			close(before.replaced)
		}
	}
	sight.Replaced = sight.replaced
	t.latest, t.latestRead, t.coveredBy = sight, r.serial, r.stream
	if !same && err == nil {
		t.glances = 0
		l.scheduleGlance(t)
	}
}
