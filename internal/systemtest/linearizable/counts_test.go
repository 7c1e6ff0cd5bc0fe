package linearizable

import (
	"errors"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// counts are how many events of each kind a run has had.
type counts struct {
	Succeeded, Refused, RolledBack, InDoubt, AskedAgain int
	AtCommit, AtSettled, AtSuccess                      int // of the successes, by what the caller waits for
	Reads, LinearReads, Reserving                       int // of balances; those with a debit in flight
	StateReads, UnderWay                                int // of transfers; those that were not final
	Lost, AnswersLost, Held                             int // messages
	Deaths, Sweeps, Failovers                           int // of processes; those that took something over
}

func (l *load) counts() counts {
	c := l.h.counts()
	for _, lives := range l.lives {
		for _, life := range lives {
			struck := life.wire.Faults()
			c.Lost += struck[bank.Lost]
			c.AnswersLost += struck[bank.AnswerLost]
			c.Held += struck[bank.Held]
		}
	}
	c.Deaths, c.Sweeps, c.Failovers = int(l.deaths.Load()), int(l.sweeps.Load()), int(l.failovers.Load())
	return c
}

// counts returns how many calls and outcomes there were.
func (h *history) counts() counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	var c counts
	asked := map[string]bool{}
	for _, a := range h.asks {
		var refused *transfer.RefusedError
		switch {
		case a.told == nil:
			c.succeeded(a)
		case errors.Is(a.told, transfer.ErrInDoubt), errors.Is(a.told, transfer.ErrUnsettled):
			c.InDoubt++
		case errors.As(a.told, &refused):
			c.Refused++
		case errors.Is(a.told, transfer.ErrCancelled):
			c.RolledBack++
		}
		if asked[a.id] {
			c.AskedAgain++
		}
		asked[a.id] = true
	}
	for _, r := range h.balances {
		if r.linear {
			c.LinearReads++
			continue
		}
		c.Reads++
		if r.posted != r.available {
			c.Reserving++
		}
	}
	for _, r := range h.states {
		c.StateReads++
		if r.state != "" && !r.state.Final() {
			c.UnderWay++
		}
	}
	return c
}

// succeeded counts a success.
func (c *counts) succeeded(a ask) {
	c.Succeeded++
	switch a.returnAt {
	case transfer.AtCommit:
		c.AtCommit++
	case transfer.AtSettled:
		c.AtSettled++
	case transfer.AtSuccess:
		c.AtSuccess++
	}
}
