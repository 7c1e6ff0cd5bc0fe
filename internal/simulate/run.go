package simulate

import (
	"errors"
	"slices"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// executor is an execution with the operations that it has asked for.
type executor struct {
	transfer int
	start    protocol.Start
	owner    int                 // its nonce
	epoch    int64               // which it believes to have, if it asked to use one
	x        *protocol.Execution // nil: it has not begun
	batch    []protocol.Operation
	refused  bool     // the server has refused it something
	posted   int64    // what it posts
	seen     Transfer // as it knows its transfer

	fact       bool // it was seen to know the fact
	byDecision bool // its transfer is never committed by fact
}

// own copies what an executor shares, so that it can be changed in a fork.
func (e *executor) own() {
	if e.x != nil {
		e.x, e.batch = e.x.Clone(), slices.Clone(e.batch)
	}
}

// recoveryOwner is the nonce of the recoveries that are tried out.
const recoveryOwner = 1000

// run is a world and the executors in it.
type run struct {
	w         World
	executors []executor
	faults    int // that may still happen
	late      []lateAnswer
	story     *story    // nil: nobody listens
	met       *Coverage // nil: nobody counts
}

// enroll adds an executor that is to join later, and returns its index.
func (r *run) enroll(transfer int, start protocol.Start) int {
	nonce := len(r.executors) + 1
	r.executors = append(r.executors, executor{transfer: transfer, start: start, owner: nonce})
	return len(r.executors) - 1
}

func (r *run) join(who int) error {
	e := &r.executors[who]
	if e.x != nil {
		return nil
	}
	e.seen = r.w.plan(e.transfer)
	e.x = r.w.Begin(e.transfer, e.start)
	legs := r.w.Plans[e.transfer]
	e.byDecision = r.w.Holds[e.transfer] || legs[len(legs)-1].MayBeGone
	r.note("%s begins for %s: %s", executorName(e.owner), transferName(e.transfer), describeStart(e.start))
	return r.ask(e)
}

func (r *run) joinAll() error {
	var err error
	for who := range r.executors {
		err = errors.Join(err, r.join(who))
	}
	return err
}

// ask fills an executor's batch with what its execution wants.
func (r *run) ask(e *executor) error {
	before := standing(e.x)
	operations, err := e.x.Next()
	r.met.countSituation(e, before)
	if err != nil {
		return violates(6, "%s fails: %v", executorName(e.owner), err)
	}
	e.batch = operations
	for _, op := range operations {
		e.epoch = max(e.epoch, op.Epoch)
	}
	if err := r.w.tell(e); err != nil || e.x.Outcome() != protocol.Outdated {
		return err
	}
	return r.replan(e)
}

// fork returns a copy of the run that is independent from here on.
func (r *run) fork() *run {
	fork := *r
	fork.w = r.w.fork()
	fork.executors = slices.Clone(r.executors)
	return &fork
}

// policies returns what a recovery may do with a stalled transfer.
func policies() []protocol.Start { return []protocol.Start{resume(), rollBack()} }

// recovers checks the sixth invariant.
// Recovery alone, without faults, ends every transfer and leaves no marker, and nothing
// that arrives afterwards changes that.
// The executions from before are dead; their messages are not.
func (r *run) recovers(policy protocol.Start) error {
	fork := &run{w: r.w.fork(), story: r.story.beginTrial()}
	fork.w.history = false
	for {
		if err := fork.recoverAll(policy); err != nil {
			return err
		}
		if len(fork.w.flight) == 0 {
			r.story.endTrial()
			return nil
		}
		late, before := fork.w.flight[0], fork.w.Version
		fork.w.flight = fork.w.flight[1:]
		fork.arrive(late)
		fork.noteChanges()
		if err := fork.w.check(&before); err != nil {
			return err
		}
	}
}

// recoverAll runs recoveries until no transfer is postponed any more.
// That takes one for each transfer at most.
func (r *run) recoverAll(policy protocol.Start) error {
	for range MaxTransfers {
		postponed := false
		for t := range r.w.Plans {
			again, err := r.recover(t, policy)
			if err != nil {
				return err
			}
			postponed = postponed || again
		}
		if !postponed {
			return nil
		}
	}
	return violates(6, "reversals wait for each other")
}

// recover runs one recovery of one transfer, or a worker on a transfer that waits for
// one.
// It reports whether the transfer waits for another one.
func (r *run) recover(transfer int, start protocol.Start) (postponed bool, err error) {
	state := r.w.Transfers[transfer].State
	switch {
	case state == "", state.Final():
		return false, nil
	case state == protocol.Initiated:
		start = fromQueue()
	case state == protocol.Preparing && r.w.Holds[transfer]:
		r.w.Expired[transfer] = true // recovery leaves it alone until then
		start = expire()
	}
	e := executor{
		transfer: transfer, start: start, owner: recoveryOwner, x: r.w.Begin(transfer, start), seen: r.w.plan(transfer),
	}
	r.executors = []executor{e}
	r.note("a recovery begins for %s", transferName(transfer))
	if err := r.ask(&r.executors[0]); err != nil {
		return false, err
	}
	if err := r.finish(0); err != nil {
		return false, err
	}
	outcome := r.executors[0].x.Outcome()
	if state := r.w.Transfers[transfer].State; !state.Final() && outcome != protocol.Postponed {
		return false, violates(6, "recovery leaves %s %q, with the outcome %d", transferName(transfer), state, outcome)
	}
	return outcome == protocol.Postponed, nil
}

// finish lets an executor go on without faults until it ends, which takes a bounded
// number of steps.
// It does not wait for other reversals.
// It may not give up, unless the server has refused it something.
func (r *run) finish(who int) error {
	const patience = 100
	if e := &r.executors[who]; e.x != nil {
		e.own()
		e.x.Postpone()
	}
	for step := 0; len(r.executors[who].batch) > 0 && r.knowsPlan(&r.executors[who]); step++ {
		if step == patience {
			return violates(6, "%s goes round in circles", executorName(r.executors[who].owner))
		}
		next := r.executors[who].batch[0]
		if err := r.take(move{kind: perform, who: who, op: next.Kind, at: next.Participant, fate: answered}); err != nil {
			return err
		}
	}
	if e := &r.executors[who]; e.x != nil && e.x.Outcome() == protocol.Stuck && !e.refused {
		return violates(6, "%s gives up, and the server has refused it nothing", executorName(e.owner))
	}
	return nil
}
