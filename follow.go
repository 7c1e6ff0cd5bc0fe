package transfer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/liveness"
	"github.com/mongotransfer/transfer/internal/lookout"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/stages"
	"github.com/mongotransfer/transfer/internal/wire"
)

// queues are the callers in this process of each transfer or account, by its ID.
// The zero value has no callers.
type queues struct {
	mu  sync.Mutex
	all map[string]*queue
}

// queue is the callers of one transfer or account.
type queue struct {
	callers int           // guarded by the lock of the queues
	turn    chan struct{} // held by the caller that may go on
	arrived chan struct{} // closed by the caller that has seen that the money is there
}

// join adds a caller, which has to leave again.
func (qs *queues) join(id string) *queue {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if qs.all == nil {
		qs.all = map[string]*queue{}
	}
	q := qs.all[id]
	if q == nil {
		q = &queue{turn: make(chan struct{}, 1), arrived: make(chan struct{})}
		qs.all[id] = q
	}
	q.callers++
	return q
}

func (qs *queues) leave(id string) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.all[id]
	if q.callers--; q.callers == 0 {
		delete(qs.all, id)
	}
}

// turn is the right of one caller in this process to run a transfer or to reverse it, or
// to change an account.
// Others of this process wait for it, and not for the document: they come in the order in
// which they ask, and cost the server nothing meanwhile.
type turn struct {
	c     *Coordinator
	of    *queues
	id    string
	queue *queue
	mine  bool
}

// newTurn joins the callers of a transfer or account, and has to be left again.
func (c *Coordinator) newTurn(of *queues, id string) *turn {
	return &turn{c: c, of: of, id: id, queue: of.join(id)}
}

// isFree takes the turn if no other caller has it.
func (t *turn) isFree() bool {
	select {
	case t.queue.turn <- struct{}{}:
		t.mine = true
	default:
	}
	return t.mine
}

// await waits for the turn.
func (t *turn) await(ctx context.Context) error {
	select {
	case t.queue.turn <- struct{}{}:
		t.mine = true
		return nil
	case <-ctx.Done():
	case <-t.c.engine.Closing():
	}
	return t.c.stopped(ctx)
}

// leave gives the turn to the next caller.
func (t *turn) leave() {
	if t.mine {
		<-t.queue.turn
	}
	t.of.leave(t.id)
}

// follow waits for a transfer that another execution runs, here or elsewhere.
// It runs the transfer itself where it is its turn and the transfer still waits for a
// worker, has stalled, or was never stored.
func (c *Coordinator) follow(ctx context.Context, planned document.Transfer) (Record, error) {
	f := c.newFollower(planned, 0)
	defer f.turn.leave()
	return f.follow(ctx)
}

// follower is one caller of a transfer.
// All callers of one ID in this process share the reads of it.
// One of them at a time has the turn: only that one runs the transfer, or takes it over.
// The others judge what is seen, each by its own digest, and answer at the same time as
// the first.
// When the first leaves, for any reason, the next one has the turn.
// Its own answer is never passed on: it may be true for that caller only.
type follower struct {
	c       *Coordinator
	planned document.Transfer
	holdFor time.Duration
	turn    *turn
	watch   *lookout.Watch
	seen    Record // as it was seen last
	cause   error  // of the latest read that failed
	outage  engine.Outage
}

func (c *Coordinator) newFollower(planned document.Transfer, holdFor time.Duration) *follower {
	return &follower{c: c, planned: planned, holdFor: holdFor, turn: c.newTurn(&c.queues, planned.ID)}
}

// follow reads the transfer until there is an answer.
// What ends it from outside leaves doubt, unless a commit was seen: another caller has
// stored the transfer, or may just be about to.
func (f *follower) follow(ctx context.Context) (Record, error) {
	f.watch = f.c.lookout.Watch(f.planned.ID)
	defer f.watch.End()
	f.c.enter(ctx, f.planned.ID, stages.Wait)
	seen, ended := f.watch.Look(ctx)
	for n := 1; ended == nil; n++ {
		if a := f.weigh(ctx, seen); a.done {
			return a.rec, a.err
		}
		if n == 1 {
			defer f.c.engine.HurryUp(f.planned.ID)()
		}
		seen, ended = f.next(ctx, seen, n)
	}
	return f.giveUp(f.c.stopped(ctx))
}

// weigh answers with what was seen, if it can. Otherwise it goes on with the transfer, if
// it has the turn and there is something to do.
func (f *follower) weigh(ctx context.Context, seen *lookout.Sight) answer {
	c, stored := f.c, seen.Transfer
	tooLong := c.tooLong(&f.outage, seen.Err)
	switch {
	case errors.Is(seen.Err, document.ErrUnreadable):
		return answerWith(f.giveUp(seen.Err))
	case seen.Err != nil:
		f.cause = latest(ctx, f.cause, seen.Err)
	case seen.Found && !stored.Digest.Same(f.planned.Digest):
		return answerWith(recordOf(stored), conflict(stored, f.planned))
	case seen.Found && f.answerable(ctx, stored):
		rec, judged, err := c.judge(ctx, stored, f.planned)
		if judged {
			return answerWith(rec, err)
		}
		f.cause, tooLong = latest(ctx, f.cause, err), c.tooLong(&f.outage, err)
	default:
		if a := f.goOn(ctx, seen); a.done {
			return a
		}
	}
	if tooLong {
		return answerWith(f.giveUp(ctx.Err()))
	}
	return notYet(nil)
}

// goOn goes on with the transfer, if it has the turn and there is something to do.
// It answers with a stuck transfer as it is stored, until the time for another try has
// come.
func (f *follower) goOn(ctx context.Context, seen *lookout.Sight) answer {
	c, stored := f.c, seen.Transfer
	f.seen = Record{}
	if seen.Found {
		f.seen = recordOf(stored)
	}
	t, start, due := c.nextStart(ctx, stored, seen.Found, f.planned)
	switch {
	case c.engine.Closed():
		return answerWith(f.giveUp(ErrClosed))
	case !due && standsStill(stored):
		return answerWith(asKnown(stored.ID, f.seen, nil))
	case !due || !f.turn.mine:
		return notYet(nil)
	}
	a := c.execute(ctx, t, terms{start: start, reason: reasonOf(start), holdFor: f.holdFor})
	if !a.done {
		c.enter(ctx, t.ID, stages.Wait)
	}
	if seen.Found {
		return asStored(f.seen, a)
	}
	if a.done && nothingSent(a.err) {
		return answerWith(asKnown(f.planned.ID, f.seen, a.err))
	}
	return a
}

// giveUp answers a caller that waits no longer, for a reason, by what it has seen.
func (f *follower) giveUp(why error) (Record, error) {
	return asKnown(f.planned.ID, f.seen, withCause(why, f.cause))
}

// standsStill reports whether a stored transfer is decided, and stuck: its outcome is
// known, and waiting doesn't help.
func standsStill(stored document.Transfer) bool {
	return stored.Stuck != nil && (stored.State == protocol.Committed || stored.State == protocol.Rollback)
}

// next waits until something else is seen, the turn has come, or the caller that has it
// can do something.
// Then it reads again, since that may have changed.
// The error says that ctx has ended, or the Coordinator was closed.
func (f *follower) next(ctx context.Context, seen *lookout.Sight, n int) (*lookout.Sight, error) {
	for ; ; n++ {
		var turn chan<- struct{}
		var arrived <-chan struct{}
		pause := newPause(n)
		if !f.turn.mine {
			turn = f.turn.queue.turn
			pause.Stop()
		}
		if seen.Transfer.State == protocol.Committed {
			arrived = f.turn.queue.arrived
		}
		select {
		case <-seen.Replaced:
			pause.Stop()
			return f.watch.Latest(), nil
		case <-arrived:
			pause.Stop()
			return seen, nil
		case turn <- struct{}{}:
			f.turn.mine = true
			return f.watch.Look(ctx)
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, ctx.Err()
		case <-f.c.engine.Closing():
			pause.Stop()
			return nil, ErrClosed
		}
		if seen.Err != nil {
			continue
		}
		if f.hasArrived(ctx, seen.Transfer) {
			return seen, nil
		}
		if _, _, due := f.c.nextStart(ctx, seen.Transfer, seen.Found, f.planned); due {
			return f.watch.Look(ctx)
		}
	}
}

// latest returns the latest cause.
// But of a read that the end of ctx has cut short it keeps what is known: that says more.
func latest(ctx context.Context, known, err error) error {
	if known != nil && ctx.Err() != nil {
		return known
	}
	return err
}

// answerable reports whether a stored transfer is where its callers get their answer.
// A caller of Hold gets it once everything is held.
func (f *follower) answerable(ctx context.Context, stored document.Transfer) bool {
	switch stored.State {
	case protocol.Preparing:
		return stored.Held && !f.c.queries.LooksExpired(ctx, stored)
	case protocol.Committed:
		return stored.Hold || f.c.settings.returnAt == AtCommit || f.hasArrived(ctx, stored)
	default:
		return stored.State.Final() || !stored.State.Known()
	}
}

// hasArrived reports whether the money of a committed transfer is there, where a caller
// waits for no more.
// Only the caller that has the turn reads that, for all of them.
func (f *follower) hasArrived(ctx context.Context, stored document.Transfer) bool {
	if stored.State != protocol.Committed || f.c.settings.returnAt != AtSettled {
		return false
	}
	select {
	case <-f.turn.queue.arrived:
		return true
	default:
	}
	if !f.turn.mine || !f.c.arrived(ctx, stored) {
		return false
	}
	close(f.turn.queue.arrived)
	return true
}

// judge answers with a stored transfer, for a caller that asks for the planned one.
// It is not judged if err says that it couldn't be.
//
// It must be of the same collections, too:
//
//  1. In one process the ledger eu is one collection, and in another process another one.
//  2. Both are asked for 7 to x of eu, under one ID.
//     One of them moves them.
//  3. The other one finds that, and must not say that its x has them.
func (c *Coordinator) judge(ctx context.Context, stored, planned document.Transfer) (rec Record, judged bool, err error) {
	rec = recordOf(stored)
	if !stored.Digest.Same(planned.Digest) {
		return rec, true, conflict(stored, planned)
	}
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	switch other, err := c.deployment.NamesOther(ctx, &stored); {
	case err != nil:
		return rec, false, err
	case other:
		return rec, true, &ConflictError{id: stored.ID, Differs: []string{"collections"}}
	case !stored.State.Known():
		return rec, true, inDoubt(rec.ID, unknownState(stored))
	}
	rec, err = asFinal(rec)
	return rec, true, err
}

// nextStart returns the execution by which a waiting caller goes on with the transfer
// itself, and whether it is time for one.
func (c *Coordinator) nextStart(ctx context.Context, stored document.Transfer, found bool, planned document.Transfer) (
	t document.Transfer, start protocol.Start, due bool,
) {
	switch {
	case !found:
		return planned, first(planned), true
	case stored.State == protocol.Initiated:
		return stored, protocol.Start{Claim: protocol.FromInitiated, WaitWhileBusy: true}, true
	case stored.State != protocol.Preparing || !stored.Hold:
		return stored, c.takeOver(), c.stalled(ctx, stored)
	case c.queries.LooksExpired(ctx, stored):
		return stored, expire(), true
	}
	return stored, protocol.Start{Claim: protocol.TakeUnheld, Hold: true}, c.stalled(ctx, stored)
}

// givenUpRest is how long a transfer that was given up is left alone.
const givenUpRest = time.Second

// stalled reports whether a transfer that others have begun has to be taken over.
func (c *Coordinator) stalled(ctx context.Context, stored document.Transfer) bool {
	return c.queries.LooksStalled(ctx, stored, c.settings.stallThreshold) || c.givenUp(ctx, stored)
}

// givenUp reports whether a transfer was stopped for lack of a right, or by this process
// for any reason that it could not store, and no execution is working on it now.
// A caller that asks for it again takes it over at once: either the reason is gone, or
// the caller learns that it is still there.
// Without a rest several such callers would take it from each other.
func (c *Coordinator) givenUp(ctx context.Context, stored document.Transfer) bool {
	switch n, _ := c.engine.Executions(stored.ID); {
	case stored.Stuck != nil && stored.Stuck.Code == document.UnauthorizedCode:
	case stored.Stuck == nil && liveness.ProcessOf(stored.Owner) == c.pulse.Process() && n == 0:
	default:
		return false
	}
	stored.Stuck, stored.Attempts = nil, 0
	return c.queries.LooksStalled(ctx, stored, givenUpRest)
}

// reasonOf returns what is stored with a transfer that is rolled back without a request.
func reasonOf(start protocol.Start) string {
	if start.RollBack == protocol.Expired {
		return expiredReason
	}
	return stalledReason
}

// stalledReason is stored with a transfer that RollBack has rolled back.
const stalledReason = "stalled and rolled back"

// takeOver returns the start of an execution that takes over what has stalled.
func (c *Coordinator) takeOver() protocol.Start {
	start := protocol.Start{Claim: protocol.TakeOver}
	if c.settings.policy == RollBack {
		start.RollBack = protocol.Stalled
	}
	return start
}

// asStored corrects the answer of an execution which says that nothing was stored, where
// the transfer was stored before: it answers as that is known.
func asStored(known Record, a answer) answer {
	if a.done && (nothingSent(a.err) || OutcomeOf(a.err) == NothingStored) {
		return answerWith(asKnown(known.ID, known, a.err))
	}
	return a
}

// nothingSent reports whether an error says that nothing was sent just now.
// Where a transfer with the ID is stored all the same, that is no answer.
func nothingSent(err error) bool {
	if errors.Is(err, ErrInDoubt) || errors.Is(err, ErrUnsettled) {
		return false
	}
	return errors.Is(err, engine.ErrNothingSent) || errors.Is(err, ErrClosed) || errors.Is(err, errAway) ||
		errors.Is(err, mongostore.ErrForeign) || errors.Is(err, document.ErrUnreadable) || denied(err)
}

// answersCommitted reports whether a committed transfer is where a caller gets its
// answer, by what WithReturnAt says.
// Another call, of this process or another, runs the transfer, and it may take a while
// until nothing is left to be done.
func (c *Coordinator) answersCommitted(ctx context.Context, stored document.Transfer) bool {
	switch c.settings.returnAt {
	case AtCommit:
		return true
	case AtSettled:
		return c.arrived(ctx, stored)
	default:
		return false
	}
}

// arrived reports whether the money of a committed transfer is there for every reader.
// The servers have to be known as those of the deployment: on another one nobody has a
// marker, which would look as if all were paid.
func (c *Coordinator) arrived(ctx context.Context, stored document.Transfer) bool {
	if stored.State != protocol.Committed || sound(stored) != nil {
		return false
	}
	attempt, err := c.store.NewAttempt(stored, "")
	if err != nil || c.connect(ctx, &stored) != nil {
		return false
	}
	limited, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	arrived, err := c.store.Arrived(limited, attempt)
	return err == nil && arrived
}
