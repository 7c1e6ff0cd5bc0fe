package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/mongotransfer/transfer"
)

const (
	// patience is how long most calls wait for an answer.
	patience = 10 * time.Second
	// sharedPeriod is how long all callers of all workers mean the same transfer by the
	// shared one.
	sharedPeriod = 250 * time.Millisecond
	// remembered is how many transfers a caller remembers in order to ask for them again.
	remembered = 64
)

// caller is one client of a worker's coordinator.
// It calls one verb after the other.
type caller struct {
	*worker
	name  string
	coord *transfer.Coordinator
	rng   *rand.Rand
	calls int
	again []string // transfers to ask for again
	known []string // transfers that are stored, according to an answer
	// held and succeeded hold those known transfers that an answer called held or
	// succeeded.
	held, succeeded map[string]bool
}

func newCaller(w *worker, coord *transfer.Coordinator, i int) *caller {
	c := &caller{
		worker: w, name: fmt.Sprintf("%d-%d-%d", w.Slot, w.Life, i), coord: coord, held: map[string]bool{}, succeeded: map[string]bool{},
	}
	c.rng = rand.New(rand.NewPCG(w.Seed, uint64(w.Slot)<<40+uint64(w.Life)<<16+uint64(i)+1))
	for n, id := range w.Again {
		if n%w.Clients == i {
			c.again = append(c.again, id)
		}
	}
	return c
}

func (c *caller) work(ctx context.Context) {
	for ctx.Err() == nil {
		limit := patience
		if c.rng.IntN(5) == 0 {
			limit = time.Duration(1+c.rng.Int64N(200)) * time.Millisecond
		}
		// A call that has begun may end even if the worker should end: its answer is
		// wanted.
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		c.act(limited)
		cancel()
	}
}

// act calls one verb, or several that belong together.
func (c *caller) act(ctx context.Context) {
	switch dice := c.rng.IntN(100); {
	case dice < 28:
		c.transfer(ctx, c.newID())
	case dice < 40:
		c.holds(ctx)
	case dice < 47:
		c.pay(ctx)
	case dice < 54:
		c.reverse(ctx)
	case dice < 60:
		c.transfer(ctx, fmt.Sprintf("shared-%d", time.Now().UnixNano()/int64(sharedPeriod)))
	case dice < 70:
		c.submit(ctx, c.newID())
	case dice < 80:
		c.cancelRace(ctx, c.newID())
	case dice < 90:
		c.askAgain(ctx)
	case dice < 94:
		c.askForSomethingElse(ctx)
	default:
		c.drain(ctx, doorName(c.rng.IntN(doors)))
	}
}

func (c *caller) newID() string {
	c.calls++
	return fmt.Sprintf("%s-%d", c.name, c.calls)
}

// call reports a call and remembers what is stored.
func (c *caller) call(ctx context.Context, v verb, id string, call func(ctx context.Context, name string) (transfer.Record, error)) entry {
	return c.callEntry(ctx, entry{Verb: v, ID: id, Known: c.knows(id)}, call)
}

// callEntry reports a call that needs more than a verb and an ID.
func (c *caller) callEntry(ctx context.Context, e entry, call func(ctx context.Context, name string) (transfer.Record, error)) entry {
	c.calls++
	e.Call, e.ReturnAt = fmt.Sprintf("%s:%d", c.name, c.calls), c.returnAt()
	e = c.report.during(ctx, e, func(ctx context.Context) (transfer.Record, error) { return call(ctx, e.Call) })
	switch {
	case e.Verb.changesAccount():
	case e.Word == done || e.Word == refused:
		c.learn(e)
	case (e.Word == inDoubt || e.Word == unwritten) && e.Verb.stores():
		c.again = append(c.again[max(0, len(c.again)-remembered+1):], e.ID)
	}
	return e
}

// learn remembers what a clear answer says about a transfer, and forgets the oldest one.
func (c *caller) learn(e entry) {
	if len(c.known) == remembered {
		delete(c.held, c.known[0])
		delete(c.succeeded, c.known[0])
		c.known = c.known[1:]
	}
	c.known = append(c.known, e.ID)
	if e.Verb == verbHold && e.Word == done {
		c.held[e.ID] = true
	}
	if e.Word == done && e.State == transfer.StateSuccess {
		c.succeeded[e.ID] = true
	}
}

// ask makes the request that an ID stands for.
func (c *caller) ask(ctx context.Context, id string) {
	_, reverses := originalOf(id)
	switch {
	case isHold(id):
		c.hold(ctx, id)
	case reverses:
		c.reversal(ctx, id)
	default:
		c.transfer(ctx, id)
	}
}

func (c *caller) knows(id string) bool {
	for _, known := range c.known {
		if known == id {
			return true
		}
	}
	return false
}

// transfer makes the transfer that the ID stands for.
// The call's name is stored in it, which shows whose call stored it.
func (c *caller) transfer(ctx context.Context, id string) {
	c.call(ctx, verbTransfer, id, func(ctx context.Context, name string) (transfer.Record, error) {
		return c.coord.Transfer(ctx, c.named(c.bank.request(id), name))
	})
}

func (c *caller) named(req transfer.Request, call string) transfer.Request {
	req.Metadata = map[string]any{"call": call}
	return req
}

// submit leaves a transfer to any worker, sometimes for a later time, and sometimes for
// when the money is there, and sometimes waits for it.
func (c *caller) submit(ctx context.Context, id string) {
	later, patient := c.rng.IntN(2) == 0, c.rng.IntN(2) == 0
	e := c.call(ctx, verbSubmit, id, func(ctx context.Context, name string) (transfer.Record, error) {
		req := c.named(c.bank.request(id), name)
		if later {
			req.NotBefore = time.Now().Add(time.Second)
		}
		if patient {
			req.AwaitFundsUntil = time.Now().Add(3 * time.Second)
		}
		return c.coord.Submit(ctx, req)
	})
	if e.Word == done && (later || c.rng.IntN(2) == 0) {
		c.call(ctx, verbWait, id, func(ctx context.Context, _ string) (transfer.Record, error) { return c.coord.Wait(ctx, id) })
	}
}

// cancelRace makes a transfer and cancels it at the same time.
func (c *caller) cancelRace(ctx context.Context, id string) {
	c.against(ctx, func(rival *caller) { rival.cancel(ctx, id) }, func() { c.transfer(ctx, id) })
}

func (c *caller) cancel(ctx context.Context, id string) {
	c.call(ctx, verbCancel, id, func(ctx context.Context, _ string) (transfer.Record, error) {
		return c.coord.Cancel(ctx, id, "the caller changed its mind")
	})
}

// askAgain repeats a request whose answer was not clear, and one whose answer was clear.
func (c *caller) askAgain(ctx context.Context) {
	if len(c.again) > 0 {
		id := c.again[0]
		c.again = c.again[1:]
		c.ask(ctx, id)
	}
	if len(c.known) == 0 {
		return
	}
	id := c.known[c.rng.IntN(len(c.known))]
	switch c.rng.IntN(3) {
	case 0:
		c.ask(ctx, id)
		if isHold(id) {
			c.decideHold(ctx, id)
		}
	case 1:
		c.call(ctx, verbGet, id, func(ctx context.Context, _ string) (transfer.Record, error) { return c.coord.Get(ctx, id) })
	case 2:
		c.cancel(ctx, id)
	}
}

// askForSomethingElse makes another request with an ID that is already used.
func (c *caller) askForSomethingElse(ctx context.Context) {
	if len(c.known) == 0 {
		return
	}
	id := c.known[c.rng.IntN(len(c.known))]
	c.call(ctx, verbConflict, id, func(ctx context.Context, name string) (transfer.Record, error) {
		req := transfer.Request{ID: id, From: accountName(0), To: accountName(1), Amount: transfer.Units(1_000_003)}
		return c.coord.Transfer(ctx, c.named(req, name))
	})
}

// freeze freezes a door and unfreezes it.
func (c *caller) freeze(ctx context.Context, door string) {
	for _, v := range []verb{verbFreeze, verbUnfreeze} {
		frozen := v == verbFreeze
		c.call(ctx, v, door, func(ctx context.Context, _ string) (transfer.Record, error) {
			_, err := c.coord.UpdateAccount(ctx, door, transfer.AccountChange{Frozen: &frozen})
			return transfer.Record{}, err
		})
	}
}

// drain empties a door, closes it, and opens it again.
func (c *caller) drain(ctx context.Context, door string) {
	account, err := c.coord.GetAccount(ctx, door)
	if err != nil {
		return
	}
	if n := units(account.Available); n > 0 {
		c.transfer(ctx, drainID(door, n, c.newID()))
	}
	if c.rng.IntN(2) == 0 {
		c.freeze(ctx, door)
	}
	none := func(err error) (transfer.Record, error) { return transfer.Record{}, err }
	c.call(ctx, verbClose, door, func(ctx context.Context, _ string) (transfer.Record, error) {
		return none(c.coord.CloseAccount(ctx, door))
	})
	c.call(ctx, verbReopen, door, func(ctx context.Context, _ string) (transfer.Record, error) {
		return none(c.coord.ReopenAccount(ctx, door))
	})
}
