package simulate

import (
	"slices"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// drawOperation draws which executor moves, with which operation, and its fate.
// If operations are merged, one that could be merged and finds no other mostly waits.
func (g *game) drawOperation() move {
	const patience = 4
	for tried := 0; ; tried++ {
		if !g.drawMover() {
			return move{}
		}
		e := &g.executors[g.last]
		if e.start.WaitWhileBusy && g.random.IntN(30) == 0 {
			return move{kind: hurry, who: g.last}
		}
		op := e.batch[g.random.IntN(len(e.batch))]
		first := asked{who: g.last, op: op.Kind, at: op.Participant}
		if !joins(op) || g.random.Float64() >= g.merging {
			return g.drawFate(move{kind: perform, who: first.who, op: first.op, at: first.at}, fates(op.Kind))
		}
		with, what := g.drawCompanions(first)
		if len(with) > 0 {
			return g.drawFate(move{kind: perform, who: first.who, op: first.op, at: first.at, with: with}, what.fates())
		}
		if tried == patience {
			return move{}
		}
	}
}

// drawMover draws the executor that moves.
// It reports false if none wants anything.
func (g *game) drawMover() bool {
	if g.random.Float64() >= g.sticky || len(g.executors[g.last].batch) == 0 || g.asleep[g.last] {
		busy := g.busy()
		if len(busy) == 0 {
			return false
		}
		g.last = busy[g.random.IntN(len(busy))]
	}
	g.asleep[g.last] = g.random.Float64() < g.weary
	return true
}

// drawCompanions draws operations of other executors that may travel with a first one,
// and returns what is merged then.
func (g *game) drawCompanions(first asked) ([]asked, mixture) {
	members := []Message{g.message(first)}
	var with []asked
	busy := slices.Clone(g.busy())
	g.random.Shuffle(len(busy), func(i, j int) { busy[i], busy[j] = busy[j], busy[i] })
	for _, who := range busy {
		for _, op := range g.executors[who].batch {
			next := asked{who: who, op: op.Kind, at: op.Participant}
			m := g.message(next)
			if slices.ContainsFunc(members, func(other Message) bool { return !g.w.Merges(other, m) }) {
				continue
			}
			members, with = append(members, m), append(with, next)
		}
	}
	return with, mixtureOf(members)
}

// drawFate draws the fate of a move.
func (g *game) drawFate(m move, possible []Fate) move {
	m.fate = answered
	if m.op == protocol.ReadFence && g.random.Float64() < g.memory {
		m.fate, m.past = cached, g.random.IntN(len(g.w.past))
		return m
	}
	odds := g.odds
	replans := m.op == protocol.Claim && g.executors[m.who].start.Claim == protocol.Replan
	if m.op == protocol.Verify || m.op == protocol.FenceOnly || m.op == protocol.MarkHeld || len(m.with) > 0 || replans {
		odds = max(odds, 0.5) // they are rare, and what they guard against is rarer
	}
	if g.faults > 0 && g.random.Float64() < odds {
		if g.random.IntN(2) == 0 {
			possible = g.flying(possible)
		}
		if fate := possible[g.random.IntN(len(possible))]; g.may[fate] {
			m.fate, m.past = fate, g.random.IntN(len(g.w.past))
		}
	}
	return m
}

// flying returns those fates that keep a message on its way, or all if there are none:
// most accidents begin with a late message.
func (g *game) flying(possible []Fate) []Fate {
	g.choice = g.choice[:0]
	for _, fate := range possible {
		if fate.flies() {
			g.choice = append(g.choice, fate)
		}
	}
	if len(g.choice) == 0 {
		return possible
	}
	return g.choice
}
