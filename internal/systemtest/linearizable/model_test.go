package linearizable

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/mongotransfer/transfer"
)

// deed is the kind of a history's entry.
type deed uint8

const (
	moves    deed = iota + 1 // the units are added to the account, or taken off, for good
	reserves                 // a transfer that will fail takes its debit off, if there is enough, until
	restores                 // it gives it back
	refuses                  // a transfer of the units is refused for lack of funds
	reads                    // a balance is read
	shows                    // a transfer is seen in a state
	promises                 // a caller hears that a transfer is committed
)

// entry is one event, of an account or a transfer, at one moment of its span.
type entry struct {
	deed     deed
	of       string // the account or the transfer, each of which has a line of its own
	transfer string
	units    int64
	seen     *int64 // by refuses
	state    transfer.State
	told     bool // by Transfer
	linear   bool // a read with read concern linearizable
}

// String describes the entry in a picture of the history.
func (e entry) String() string {
	switch e.deed {
	case moves:
		return fmt.Sprintf("%s: %+d", e.transfer, e.units)
	case reserves:
		return fmt.Sprintf("%s takes %d, and will fail", e.transfer, e.units)
	case restores:
		return fmt.Sprintf("%s gives %d back", e.transfer, e.units)
	case refuses:
		return fmt.Sprintf("%s: no %d here", e.transfer, e.units)
	case reads:
		return fmt.Sprintf("read %d", e.units)
	case shows:
		return string(e.state)
	case promises:
		return "it is committed"
	}
	return ""
}

// line is a list of entries in the form that the checker takes.
type line []porcupine.Operation

func (l *line) add(s span, e entry) {
	*l = append(*l, porcupine.Operation{ClientId: s.client, Input: e, Call: s.called, Return: s.backAt})
}

// posted is the history of the posted balances.
// A transfer that succeeds takes the money from one account at one moment, and gives it
// to the other at another moment. One that fails does not exist.
// Where a caller was answered at the commit, both may come later than the answer.
func (h *history) posted(verdicts []verdict) line {
	var l line
	for _, v := range verdicts {
		if v.final == transfer.StateSuccess {
			l.add(v.until(v.recordedBy), entry{deed: moves, of: v.from, transfer: v.id, units: -v.units})
			l.add(v.until(v.paidBy), entry{deed: moves, of: v.to, transfer: v.id, units: v.units})
		}
	}
	for _, r := range h.balances {
		if !r.half {
			l.add(r.span, entry{deed: reads, of: r.account, units: r.posted, linear: r.linear})
		}
	}
	return l
}

// available is the history of the available balances.
// The debit of a transfer that succeeds is taken off by the first answer that knows of
// the commit.
// A transfer that fails may take its debit off the balance for a while, once, and only
// within its call.
// To take it and give it back at the same moment equals not taking it, so both entries
// always exist.
func (h *history) available(verdicts []verdict) line {
	var l line
	for _, v := range verdicts {
		if v.final == transfer.StateSuccess {
			l.add(v.span, entry{deed: moves, of: v.from, transfer: v.id, units: -v.units})
			l.add(v.until(v.paidBy), entry{deed: moves, of: v.to, transfer: v.id, units: v.units})
			continue
		}
		l.add(v.span, entry{deed: reserves, of: v.from, transfer: v.id, units: v.units})
		l.add(v.span, entry{deed: restores, of: v.from, transfer: v.id, units: v.units})
		if v.reason == "insufficientFunds" {
			l.add(v.span, entry{deed: refuses, of: v.from, transfer: v.id, units: v.units, seen: v.seen})
		}
	}
	for _, r := range h.balances {
		l.add(r.span, entry{deed: reads, of: r.account, units: r.available, linear: r.linear})
	}
	return l
}

// progress is the history of the transfers' states.
// Each answer of Transfer shows the transfer's state, or says that it is committed, and
// every transfer has its final state in the end.
func (h *history) progress(verdicts []verdict) line {
	var l line
	stored := map[string]bool{}
	for _, v := range verdicts {
		stored[v.id] = true
		l.add(v.until(v.finalBy), entry{deed: shows, of: v.id, state: v.final, told: true})
	}
	for _, a := range h.asks {
		switch {
		case !stored[a.id]:
		case a.settled():
			l.add(a.span, entry{deed: shows, of: a.id, state: a.state, told: true})
		case a.told == nil, errors.Is(a.told, transfer.ErrUnsettled):
			l.add(a.span, entry{deed: promises, of: a.id, told: true})
		}
	}
	for _, r := range h.states {
		if r.fact {
			l.add(r.span, entry{deed: promises, of: r.id, told: true})
		} else {
			l.add(r.span, entry{deed: shows, of: r.id, state: r.state})
		}
	}
	return l
}

// balanceModel is an account: a number that never falls below zero, and the debits that
// failing transfers have taken off it.
func balanceModel(opening int64) porcupine.Model {
	return model(balance{units: opening})
}

// balance is the state of an account. Equal states compare equal with ==.
type balance struct {
	units  int64
	failed string // the transfers in progress here that will fail: see with
}

// A transfer that will fail has taken its debit, or has found too little.
const (
	took  = "+"
	short = "-"
)

func (b balance) after(e entry) (state, bool) {
	switch e.deed {
	case moves:
		b.units += e.units
		return b, b.units >= 0
	case reserves:
		if b.units < e.units {
			return b.with(e.transfer, short), true
		}
		b.units -= e.units
		return b.with(e.transfer, took), true
	case restores:
		switch {
		case b.has(e.transfer, took):
			b.units += e.units
			return b.without(e.transfer, took), true
		case b.has(e.transfer, short):
			return b.without(e.transfer, short), true
		}
	case refuses: // the rest that others have left, regardless of what it has taken itself
		refused := b.units < e.units && !b.has(e.transfer, took)
		return b, refused && (e.seen == nil || *e.seen == b.units)
	case reads:
		return b, e.units == b.units
	case shows, promises:
	}
	return b, false
}

func (b balance) has(transfer, how string) bool {
	return slices.Contains(strings.Fields(b.failed), transfer+how)
}

// with adds a transfer, in an order that doesn't depend on which came first.
func (b balance) with(transfer, how string) balance {
	all := append(strings.Fields(b.failed), transfer+how)
	slices.Sort(all)
	b.failed = strings.Join(all, " ")
	return b
}

func (b balance) without(transfer, how string) balance {
	all := slices.DeleteFunc(strings.Fields(b.failed), func(one string) bool { return one == transfer+how })
	b.failed = strings.Join(all, " ")
	return b
}

// stateModel is a transfer: a state that only goes forward, and that of one which is
// promised to be committed goes to Success.
func stateModel() porcupine.Model { return model(stage{}) }

// stage is how far a transfer has come.
type stage struct {
	state    transfer.State // "" before it is stored
	promised bool           // that it is committed
}

func (s stage) after(e entry) (state, bool) {
	next := s
	if e.deed == promises {
		next.promised = true
		if s.state == "" {
			next.state = transfer.StatePreparing
		}
	} else if s.state != e.state {
		next.state = e.state
		if !slices.Contains(later(s.state), e.state) {
			return s, false
		}
	}
	back := next.state == transfer.StateRollback || next.state == transfer.StateFail
	return next, !back || !next.promised
}

// later returns the states that a transfer may be in after another one.
func later(s transfer.State) []transfer.State {
	forth := []transfer.State{transfer.StateCommitted, transfer.StateSuccess}
	back := []transfer.State{transfer.StateRollback, transfer.StateFail}
	switch s {
	case "":
		return slices.Concat([]transfer.State{transfer.StatePreparing}, forth, back)
	case transfer.StatePreparing:
		return slices.Concat(forth, back)
	case transfer.StateCommitted:
		return forth[1:]
	case transfer.StateRollback:
		return back[1:]
	}
	return nil
}

// state is what a model knows.
type state interface {
	after(e entry) (state, bool)
}

// model returns the model in which each account, or each transfer, begins in the given
// state.
func model(first state) porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			var parts [][]porcupine.Operation
			at := map[string]int{}
			for _, op := range history {
				of := op.Input.(entry).of
				if _, known := at[of]; !known {
					at[of] = len(parts)
					parts = append(parts, nil)
				}
				parts[at[of]] = append(parts[at[of]], op)
			}
			return parts
		},
		Init: func() any { return first },
		Step: func(now, input, _ any) (bool, any) {
			after, ok := now.(state).after(input.(entry))
			return ok, after
		},
		DescribeOperation: func(input, _ any) string { return input.(entry).String() },
		DescribeState:     func(now any) string { return fmt.Sprintf("%+v", now) },
	}
}
