package liveness

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

const (
	// refusedRest is how long no note is tried after one for which a right is missing.
	refusedRest = time.Minute
	// staleNote is how old a note may be before a process that begins to work again
	// renews it at once: a note that somebody has removed as old says nothing.
	staleNote = time.Hour
	// latenessFactor is how many times as long as its latest note took a process may give
	// none: one that took a second says that the next one may be eight seconds away.
	latenessFactor = 8
)

// Pulse notes that this process lives, while it has transfers in progress.
// It is safe for many goroutines.
//
// The first note is written before the first claim, so that there is one however soon the
// process dies.
// After that a note is written only where something is in progress at a beat.
// A transfer that takes less than a beat costs nothing, and needs no note: it is not
// thought abandoned before it has been quiet for longer.
type Pulse struct {
	notes   *Notes
	process string
	busy    func() bool // whether a transfer is in progress
	now     func() time.Time
	log     *slog.Logger

	base   context.Context // of all notes; ends with Close
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu        sync.Mutex
	announced chan struct{} // closed once the first note was tried; nil: nobody has begun
	begun     int           // calls of Begin
	beating   bool
	closed    bool
	noted     time.Time // when the latest note was written
	restUntil time.Time
	warned    bool
	silence   time.Duration
}

// NewPulse returns the pulse of a process.
// The function busy reports whether it has a transfer in progress.
func NewPulse(notes *Notes, process string, busy func() bool, now func() time.Time, log *slog.Logger) *Pulse {
	base, cancel := context.WithCancel(context.Background())
	return &Pulse{
		notes: notes, process: process, busy: busy, now: now, log: log,
		base: base, cancel: cancel, silence: Silence,
	}
}

// Process returns the identity of the process.
func (p *Pulse) Process() string { return p.process }

// Announce writes the first note, and waits for it, but not for long.
// It is called before each claim, and costs nothing after the first one.
// Where the note can't be written, the process works as it would without.
func (p *Pulse) Announce(ctx context.Context) {
	p.mu.Lock()
	announced := p.announced
	if announced == nil && !p.closed {
		announced = make(chan struct{})
		p.announced = announced
		p.all.Go(func() {
			defer close(announced)
			p.note(p.now())
		})
	}
	p.mu.Unlock()
	if announced == nil {
		return
	}
	select {
	case <-announced:
	case <-ctx.Done():
	}
}

// Begin says that something is in progress now, where nothing was before.
// It may be called on the way of a transfer: it waits for nothing.
func (p *Pulse) Begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun++
	if !p.beating && !p.closed {
		p.beating = true
		stale := !p.noted.IsZero() && p.now().Sub(p.noted) > staleNote
		p.all.Go(func() { p.beat(stale) })
	}
}

// beat writes a note at each beat, until nothing is in progress at one.
func (p *Pulse) beat(atOnce bool) {
	if atOnce {
		p.note(p.now())
	}
	next := p.now()
	for {
		next = next.Add(Beat)
		if late := p.now(); next.Before(late) {
			next = late // a note that took long is followed by the next one at once
		}
		timer := time.NewTimer(next.Sub(p.now()))
		select {
		case <-timer.C:
		case <-p.base.Done():
			timer.Stop()
			return
		}
		if p.rests() {
			return
		}
		p.note(next)
	}
}

// rests reports whether nothing is in progress any more, and ends the beat if so.
func (p *Pulse) rests() bool {
	p.mu.Lock()
	begun := p.begun
	p.mu.Unlock()
	if p.busy() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.begun != begun { // something has begun since
		return false
	}
	p.beating = false
	return true
}

// note writes a note that was due at a given time.
func (p *Pulse) note(due time.Time) {
	p.mu.Lock()
	silence, refused := p.silence, p.now().Before(p.restUntil)
	p.mu.Unlock()
	if refused {
		return
	}
	p.written(due, p.notes.Write(p.base, p.process, silence))
}

// written records how a note ended that was due at a given time, and logs that.
// It logs without the lock: a log handler may block, or call the Coordinator.
func (p *Pulse) written(due time.Time, err error) {
	warns := p.record(due, err)
	switch {
	case err == nil, p.base.Err() != nil:
	case warns:
		p.log.Warn("this process may not note that it lives: if it dies, its transfers are left alone for the stall threshold",
			slog.Any(words.KeyCause, err))
	case wire.Denied(err) == nil:
		p.log.Debug("a note that this process lives could not be written", slog.Any(words.KeyCause, err))
	}
}

// record records how a note ended that was due at a given time, and reports whether a
// missing right is worth a warning: only the first time.
func (p *Pulse) record(due time.Time, err error) (warns bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	// A process that is slow asks for more time, and for less only little by little.
	took := latenessFactor * now.Sub(due)
	p.silence = min(max(Silence, took, p.silence*3/4), longestSilence)
	switch {
	case err == nil:
		p.noted, p.warned = now, false
	case p.base.Err() != nil:
	case wire.Denied(err) != nil:
		p.restUntil = now.Add(refusedRest)
		warns = !p.warned
		p.warned = true
	}
	return warns
}

// Close ends the notes.
// Where nothing is left, in progress or unfinished, it removes the latest one.
// Otherwise the note stays, and grows old: others take over what is left.
// Where ctx ends first, another Close removes it.
func (p *Pulse) Close(ctx context.Context, left bool) {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	ended := make(chan struct{})
	go func() {
		p.all.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		return
	}
	p.mu.Lock()
	noted := !p.noted.IsZero()
	p.mu.Unlock()
	if !noted || left || p.busy() {
		return
	}
	removed := make(chan struct{})
	go func() { // a command monitor of the driver may block
		defer close(removed)
		p.remove(ctx)
	}()
	select {
	case <-removed:
	case <-ctx.Done():
	}
}

// remove removes the latest note.
func (p *Pulse) remove(ctx context.Context) {
	if err := p.notes.Remove(ctx, p.process); err != nil {
		p.log.Debug("the note that this process lived could not be removed", slog.Any(words.KeyCause, err))
		return
	}
	p.mu.Lock()
	p.noted = time.Time{}
	p.mu.Unlock()
}
