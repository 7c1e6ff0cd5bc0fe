package protocol

import "fmt"

// violation names an invariant of the protocol that is broken.
type violation struct {
	invariant int
	what      string
}

func (v *violation) Error() string { return fmt.Sprintf("invariant %d: %s", v.invariant, v.what) }

func violates(invariant int, format string, args ...any) error {
	return &violation{invariant: invariant, what: fmt.Sprintf(format, args...)}
}

// check checks the invariants 1 to 5. The sixth one needs a recovery: see recovers.
func (w *world) check(before *version) error {
	checks := []func(*version) error{w.checkConservation, w.checkMarkers, w.checkFloors, w.checkStates, w.checkBalances, w.checkTold}
	for _, check := range checks {
		if err := check(before); err != nil {
			return err
		}
	}
	return nil
}

// checkConservation checks that the balances and the money in transit add up to what was put in.
func (w *world) checkConservation(*version) error {
	sum, given := int64(0), int64(0)
	for i := range w.accounts {
		sum += w.accounts[i].balance
		given += w.given[i]
	}
	for t, r := range w.transfers {
		forward := r.state == Committed || r.state == Success
		for i, amount := range w.amounts[t] {
			// What was taken waits in the debit's marker until the decision, and in the credit's one after it.
			if w.accounts[i].markers[t] && (amount > 0) == forward {
				sum += max(amount, -amount)
			}
		}
	}
	if sum != given {
		return violates(1, "%d are there, %d were put in", sum, given)
	}
	return nil
}

func (w *world) checkMarkers(*version) error {
	for t, r := range w.transfers {
		for i := range w.accounts {
			live := r.state == Preparing || r.state == Committed || r.state == Rollback
			if w.accounts[i].markers[t] && !live {
				return violates(2, "transfer %d is %q and has a marker at account %d", t, r.state, i)
			}
		}
	}
	return nil
}

func (w *world) checkFloors(before *version) error {
	for i := range w.accounts {
		d := &w.accounts[i]
		if d.balance < d.floor {
			return violates(3, "account %d has %d, less than its floor", i, d.balance)
		}
		if d.closed && (d.marked() || before.accounts[i].closed && d.balance != before.accounts[i].balance) {
			return violates(3, "account %d is closed, and was moved", i)
		}
	}
	return nil
}

// checkStates checks that a transfer only ever goes forward.
func (w *world) checkStates(before *version) error {
	next := map[State][]State{
		"": {Preparing}, Initiated: {Preparing, Rollback}, Preparing: {Committed, Rollback},
		Committed: {Success}, Rollback: {Fail},
	}
	for t, r := range w.transfers {
		from := before.transfers[t].state
		allowed := r.state == from
		for _, state := range next[from] {
			allowed = allowed || r.state == state
		}
		if !allowed {
			return violates(4, "transfer %d went from %q to %q", t, from, r.state)
		}
	}
	return nil
}

// checkBalances checks each balance by itself: every transfer has moved its money there once, or not at all, as its
// state and its marker say.
func (w *world) checkBalances(*version) error {
	for i := range w.accounts {
		expected := w.given[i]
		for t, r := range w.transfers {
			amount := w.amounts[t][i]
			marker := w.accounts[i].markers[t]
			forward := r.state == Committed || r.state == Success
			if amount < 0 && (forward || marker) || amount > 0 && forward && !marker {
				expected += amount
			}
		}
		if w.accounts[i].balance != expected {
			return violates(4, "account %d has %d, and %d would be right", i, w.accounts[i].balance, expected)
		}
	}
	return nil
}

func (w *world) checkTold(*version) error {
	for t, r := range w.transfers {
		if w.told[t].success && r.state != Committed && r.state != Success {
			return violates(5, "success was told of transfer %d, which is %q", t, r.state)
		}
		if w.told[t].refused && r.state != Rollback && r.state != Fail {
			return violates(5, "a refusal was told of transfer %d, which is %q", t, r.state)
		}
		if r.found && w.told[t].unwritten&(1<<r.owner) != 0 {
			return violates(5, "executor %d said that nothing is stored of transfer %d, which is its own", r.owner, t)
		}
	}
	return nil
}

// recovers checks the sixth invariant: recovery alone, without faults, ends every transfer and leaves no marker, and
// nothing that arrives afterwards changes that. The executions of before are dead; their messages are not.
func (w *world) recovers() error {
	fork := w.fork()
	for {
		for t := range fork.transfers {
			if err := fork.recover(t); err != nil {
				return err
			}
		}
		if len(fork.flight) == 0 {
			return nil
		}
		late := fork.flight[0]
		fork.flight = fork.flight[1:]
		if _, err := fork.arrive(late); err != nil {
			return fmt.Errorf("after the recovery %s arrives late: %w", late, err)
		}
	}
}

// recover runs one recovery of one transfer, which leaves alone what waits for a worker.
func (w *world) recover(transfer int) error {
	state := w.transfers[transfer].state
	if state == "" || state == Initiated || state.Final() {
		return nil
	}
	const patience = 100
	e := executor{transfer: transfer, owner: recoveryOwner, x: New(Start{Claiming: TakeOver}, worldAccounts)}
	for range patience {
		operations, err := e.x.Next()
		if err != nil {
			return violates(6, "recovery fails: %v", err)
		}
		for _, op := range operations {
			m := w.send(transfer, e.owner, op)
			answer, err := w.arrive(m)
			if err != nil {
				return fmt.Errorf("recovery, at %s: %w", m, err)
			}
			w.observe(e.x, op, w.heard(m, answered, answer))
		}
		if e.x.Outcome() != Running {
			break
		}
	}
	if err := w.tell(transfer, e.owner, e.x); err != nil {
		return err
	}
	if state := w.transfers[transfer].state; !state.Final() {
		return violates(6, "recovery leaves transfer %d %q, with the outcome %d", transfer, state, e.x.Outcome())
	}
	return nil
}
