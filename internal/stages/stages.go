// Package stages records which stages a call about a transfer has gone through, and when.
// A call's trail travels in its context, from the verb to the engine.
package stages

import (
	"context"
	"slices"
	"sync"
	"time"
)

// The names of the stages.
// There are no others: they are names of spans.
const (
	// Wait is for a place, or for another call about the same transfer or original.
	Wait = "wait"
	// Read reads the transfer, or the documents that it is about to change.
	Read = "read"
	// Store stores a transfer for a worker.
	Store = "store"
	// Claim stores a transfer, or takes one that is stored.
	Claim = "claim"
	// Prepare reserves what the transfer moves.
	Prepare = "prepare"
	// Hold records that everything is held.
	Hold = "hold"
	// Settle records the commit, and pays.
	Settle = "settle"
	// Undo records the roll-back, and gives back what was reserved.
	Undo = "undo"
	// Clear removes the marks that are left.
	Clear = "clear"
	// Finish records that nothing is left to be done.
	Finish = "finish"
	// Look finds out what became of a write whose answer is in doubt.
	Look = "look"
)

// Stage is one stage of a call.
type Stage struct {
	// Name is one of the names above.
	Name string
	// Begun is when the call came to it.
	Begun time.Time
	// Took is how long it stayed there: until the next stage began, or the call ended.
	Took time.Duration
}

// maxStages bounds the stages of one call.
// An undisturbed call has seven at most.
// One that goes back and forth for long keeps the first ones, and the last of these lasts
// until the end.
const maxStages = 64

// Trail is what one call has gone through.
// It is safe for concurrent use, and nil records nothing.
type Trail struct {
	verb string

	mu    sync.Mutex
	all   []Stage
	ended bool
}

type trailKey struct{}

// With returns a context with a new trail.
func With(ctx context.Context, verb string) (context.Context, *Trail) {
	t := &Trail{verb: verb}
	return context.WithValue(ctx, trailKey{}, t), t
}

// Of returns the trail in a context, nil if there is none.
func Of(ctx context.Context) *Trail {
	t, _ := ctx.Value(trailKey{}).(*Trail)
	return t
}

// Verb returns what the call was for, "" without a trail.
func (t *Trail) Verb() string {
	if t == nil {
		return ""
	}
	return t.verb
}

// Enter records that the call has come to a stage, unless it is there already, or has
// ended.
func (t *Trail) Enter(name string, now time.Time) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	last := len(t.all) - 1
	if t.ended || last >= 0 && t.all[last].Name == name || len(t.all) == maxStages {
		return
	}
	t.leave(now)
	t.all = append(t.all, Stage{Name: name, Begun: now})
}

// End records that the call has ended, and returns its stages.
// What goes on in the background is not recorded any more.
func (t *Trail) End(now time.Time) []Stage {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.leave(now)
		t.ended = true
	}
	return slices.Clone(t.all)
}

// leave ends the present stage.
// The caller holds the lock.
func (t *Trail) leave(now time.Time) {
	if last := len(t.all) - 1; last >= 0 {
		t.all[last].Took = now.Sub(t.all[last].Begun)
	}
}
