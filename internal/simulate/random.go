package simulate

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// maxExecutors is the largest number of executors of a transfer in a random run: the
// original and four others.
const maxExecutors = 5

// game is a random run.
// One to three transfers move between the same few accounts, each with up to five
// executors that crash, stall and meet every fate, while accounts are closed and opened,
// frozen and unfrozen, money comes in and primaries fail.
// Each seed draws which of these can happen in its run, and how often.
// Runs in which little can happen find again and again what needs only that little.
type game struct {
	*run
	random  *rand.Rand
	steps   int
	odds    float64            // of a fault at each operation
	crowd   float64            // that an executor joins, at each step
	weary   float64            // that an executor falls asleep after an operation
	sticky  float64            // that the executor which moved last moves again
	soon    float64            // that something arrives which is late, at each step
	memory  float64            // that a fence is remembered
	merging float64            // that an operation waits for others to be merged with
	may     [lastFate + 1]bool // which fates can be met
	ill     bool               // accounts are closed, and primaries fall
	frost   *rand.Rand         // draws when accounts are frozen; nil: never
	longer  *rand.Rand         // draws when holds are extended; nil: never
	missing int                // may be inserted by hand; -1: no account is missing
	paper   bool               // carol is a document that some transfers change
	guests  []int              // executors that are still to join
	last    int                // the executor that moved last
	made    []move
	wanting []int  // the executors that want something
	asleep  []bool // by executor
	choice  []Fate // of those that keep a message on its way
}

// stage returns the run of a seed before its first move, with everything that is drawn
// once.
func stage(seed uint64) *game {
	random := rand.New(rand.NewPCG(seed, 1))
	g := &game{
		random:  random,
		odds:    []float64{0.1, 0.3, 0.7}[random.IntN(3)],
		crowd:   []float64{0.1, 0.3, 0.7}[random.IntN(3)],
		weary:   []float64{0, 0.1, 0.3}[random.IntN(3)],
		sticky:  []float64{0, 0.5, 0.9}[random.IntN(3)],
		soon:    []float64{0.12, 0.12, 0.01}[random.IntN(3)],
		memory:  []float64{0, 0, 0.7}[random.IntN(3)],
		merging: []float64{0, 0.5, 0.95}[random.IntN(3)],
		ill:     random.IntN(2) == 0,
	}
	transfers := []int{1, 2, 2, 3}[random.IntN(4)]
	g.paper = random.IntN(4) == 0
	plans, initiated, holds := g.drawPlans(transfers)
	if seed%reversingEvery == 0 {
		g.paper = true
		plans, initiated, holds = drawReversals(random, max(2, transfers)), make([]bool, MaxTransfers), [MaxTransfers]bool{}
	}
	accounts := drawAccounts(random)
	if a := &accounts[MaxAccounts-1]; g.paper && !a.Missing {
		*a = Account{Fence: a.Fence}
	}
	g.drawFrost(seed, accounts)
	w := NewWorld(accounts, initiated, plans...)
	w.Holds = holds
	w.history = true
	if random.IntN(8) == 0 {
		w.MarkerLimit = 1
	}
	if random.IntN(8) == 0 {
		w.MostBalance = 100
	}
	g.missing = slices.IndexFunc(accounts, func(a Account) bool { return a.Missing })
	g.run = &run{w: *w, faults: 1 + random.IntN(12)}
	most, undoing := 1+random.IntN(maxExecutors), random.IntN(2) == 0
	for t := range plans {
		g.enrollAll(t, initiated[t], most, undoing)
	}
	g.drawEarlier(seed)
	g.drawOriginal(seed)
	g.drawLonger(seed)
	common := []float64{0.2, 0.5}[random.IntN(2)]
	for f := range g.may {
		g.may[f] = random.Float64() < common
	}
	g.asleep = make([]bool, len(g.executors))
	g.steps = 40 + 15*len(g.executors)
	return g
}

// drawEarlier draws which transfers an earlier release has stored, and which of their
// executors are of that release.
// It draws from a source of its own, so that all else in the run of a seed stays the
// same.
func (g *game) drawEarlier(seed uint64) {
	random := rand.New(rand.NewPCG(seed, 2))
	for t := range g.w.Earlier {
		g.w.Earlier[t] = random.IntN(10) == 0
	}
	for i := range g.executors {
		e := &g.executors[i]
		e.start.ByRecord = g.w.Earlier[e.transfer] && random.IntN(2) == 0
	}
}

// drawFrost draws whether accounts are frozen and unfrozen, and whether one of them is
// frozen from the beginning.
// It draws from a source of its own, so that all else in the run of a seed stays the
// same.
func (g *game) drawFrost(seed uint64, accounts []Account) {
	random := rand.New(rand.NewPCG(seed, 3))
	if random.IntN(4) > 0 {
		return
	}
	g.frost = random
	a := &accounts[g.drawChilled()]
	a.Frozen = !a.Missing && random.IntN(3) == 0
}

// drawLonger draws whether holds are extended.
// It draws from a source of its own as well.
func (g *game) drawLonger(seed uint64) {
	random := rand.New(rand.NewPCG(seed, 5))
	if random.IntN(4) == 0 {
		g.longer = random
	}
}

// drawChilled draws an account that is frozen or unfrozen.
// A document never is.
func (g *game) drawChilled() int {
	if g.paper {
		return g.frost.IntN(MaxAccounts - 1)
	}
	return g.frost.IntN(MaxAccounts)
}

// drawOriginal draws what reversals take back, and how much there is.
// It draws from a source of its own as well.
func (g *game) drawOriginal(seed uint64) {
	random := rand.New(rand.NewPCG(seed, 4))
	for t, legs := range g.w.Plans {
		if len(legs) == 0 || !legs[len(legs)-1].MayBeGone {
			continue
		}
		original := &legs[len(legs)-1]
		original.Takes = cmp.Or(original.Takes, 60)
		g.w.Accounts[original.Account].Room = []int64{60, 100, 100, 120, 180}[random.IntN(5)]
		first := g.executors[slices.IndexFunc(g.executors, func(e executor) bool { return e.transfer == t })]
		g.w.Alls[t] = first.start.Claim == protocol.Insert && !first.start.Hold && random.IntN(4) > 0 && (t > 0 || random.IntN(4) == 0)
	}
	g.w.majority, g.w.past = g.w.Version, []Version{g.w.Version}
}

// reversingEvery is how many seeds there are to one whose transfers are all reversals of
// the same one.
const reversingEvery = 5

// drawReversals draws what reversals move.
func drawReversals(random *rand.Rand, transfers int) (plans [][]Leg) {
	for range transfers {
		units := []int64{20, 60, 60}[random.IntN(3)]
		original := Leg{Account: MaxAccounts - 1, MayBeGone: true, Takes: units}
		plans = append(plans, []Leg{{Account: 0, Amount: -units}, {Account: 1, Amount: units}, original})
	}
	return plans
}

// drawPlans draws what transfers move, which of them wait for a worker, and which are
// holds.
func (g *game) drawPlans(transfers int) (plans [][]Leg, initiated []bool, holds [MaxTransfers]bool) {
	mayBeGone := g.random.IntN(3) == 0
	for t := range transfers {
		plan := drawPlan(g.random)
		if g.paper {
			plan = drawEffect(g.random, plan, mayBeGone)
		}
		plans = append(plans, plan)
		holds[t] = g.random.IntN(3) == 0
		initiated = append(initiated, !holds[t] && g.random.IntN(3) == 0)
	}
	return plans, initiated, holds
}

// drawPlan draws what a transfer moves: mostly 60 from alice to bob, for which she has
// money once.
func drawPlan(random *rand.Rand) []Leg {
	switch random.IntN(10) {
	case 0:
		return []Leg{{Account: 0, Amount: 60}, {Account: 1, Amount: -60}}
	case 1:
		return []Leg{{Account: 0, Amount: -60}, {Account: 1, Amount: 40}, {Account: 2, Amount: 20}}
	case 2, 3:
		// More than bob gets from one other transfer.
		return []Leg{{Account: 0, Amount: 120}, {Account: 1, Amount: -120}}
	}
	return []Leg{{Account: 0, Amount: -60}, {Account: 1, Amount: 60}}
}

func drawAccounts(random *rand.Rand) []Account {
	accounts := []Account{{Balance: 100, Fence: "f0"}, {Balance: 10}, {Balance: 10, Fence: "f0"}}
	if random.IntN(3) == 0 {
		accounts[0].Balance += 2 * depositAmount
	}
	if random.IntN(3) > 0 {
		return accounts
	}
	a := &accounts[random.IntN(len(accounts))]
	switch random.IntN(6) {
	case 0, 1:
		*a = Account{Missing: true}
	case 2:
		a.Closed = true
	case 3:
		a.Foreign = true
	case 4:
		a.Odd = true
	case 5:
		a.Floor = a.Balance - 30
	}
	return accounts
}

// enrollAll draws the executors of a transfer: the original and later ones. If undoing is
// set, most of the later ones undo it.
func (g *game) enrollAll(transfer int, initiated bool, most int, undoing bool) {
	first := protocol.Start{Claim: protocol.Insert, WaitWhileBusy: g.random.IntN(2) == 0, Hold: g.w.Holds[transfer]}
	if initiated {
		first.Claim = protocol.FromInitiated
	}
	g.guests = append(g.guests, g.enroll(transfer, first))
	later := g.random.IntN(most)
	if first.Hold {
		later++ // by itself it ends nowhere
	}
	for range later {
		start := drawStart(g.random, first)
		if undoing && g.random.IntN(4) > 0 {
			start = drawUndoing(g.random)
		}
		if first.Hold && g.random.IntN(3) > 0 {
			start = drawOnHold(g.random)
		}
		who := g.enroll(transfer, start)
		g.executors[who].posted = g.drawPosted(transfer, start)
		g.guests = append(g.guests, who)
	}
}

// drawOnHold draws what an executor does to a hold.
func drawOnHold(random *rand.Rand) protocol.Start {
	return []protocol.Start{postHold(), postHold(), postHold(), void(), void(), expire(), holdOn()}[random.IntN(7)]
}

// drawPosted draws how much of a hold is posted: all of it, which is 0, or a part, if the
// hold is from one account to one other.
func (g *game) drawPosted(transfer int, start protocol.Start) int64 {
	money := 0
	for _, leg := range g.w.Plans[transfer] {
		if !leg.effect() {
			money++
		}
	}
	if start.Claim != protocol.Post || money != 2 {
		return 0
	}
	return []int64{0, 20, 59}[g.random.IntN(3)]
}

// drawEffect draws whether a transfer also changes a document, or does nothing else.
// Carol, the document, takes part in no other way.
func drawEffect(random *rand.Rand, plan []Leg, mayBeGone bool) []Leg {
	effect := Leg{Account: MaxAccounts - 1, MayBeGone: mayBeGone}
	switch {
	case len(plan) > 2:
		return []Leg{{Account: 0, Amount: -60}, {Account: 1, Amount: 60}, effect}
	case random.IntN(8) == 0:
		return []Leg{effect}
	case random.IntN(4) == 0:
		return plan
	}
	return append(plan, effect)
}

// drawStart draws how a later executor gets hold of its transfer.
func drawStart(random *rand.Rand, first protocol.Start) protocol.Start {
	switch random.IntN(16) {
	case 0, 1, 2:
		return first // the same ID, asked for again
	case 3, 4, 5:
		return withdraw()
	case 6, 7, 8:
		return drawUndoing(random)
	case 9:
		return drawOnHold(random) // which it may not be
	}
	return resume()
}

func drawUndoing(random *rand.Rand) protocol.Start {
	if random.IntN(2) == 0 {
		return cancel()
	}
	return rollBack()
}

// play makes moves until nothing is left to do, and tries out a recovery now and then.
func (g *game) play() error {
	for range g.steps {
		if err := g.make(g.draw()); err != nil {
			return err
		}
		if g.random.IntN(20) == 0 {
			if err := g.make(g.drawRecovery()); err != nil {
				return err
			}
		}
	}
	if err := g.calm(); err != nil {
		return err
	}
	return g.make(g.drawRecovery())
}

func (g *game) drawRecovery() move { return move{kind: recovery, who: g.random.IntN(len(policies()))} }

func (g *game) make(m move) error {
	g.made = append(g.made, m)
	return g.take(m)
}

// draw draws the next move.
// A move about nothing does nothing.
func (g *game) draw() move {
	if g.frost != nil && g.frost.IntN(25) == 0 {
		return move{kind: []moveKind{freeze, thaw}[g.frost.IntN(2)], who: g.drawChilled()}
	}
	if g.longer != nil && g.longer.IntN(6) == 0 {
		if t := g.longer.IntN(MaxTransfers); g.w.Expired[t] && g.w.heldNow(t) || g.longer.IntN(20) == 0 {
			return move{kind: extend, who: t}
		}
	}
	n := g.random.IntN(100)
	switch {
	case len(g.guests) > 0 && (g.random.Float64() < g.crowd || len(g.busy()) == 0):
		return g.drawGuest()
	case len(g.w.flight) > 0 && g.random.Float64() < g.soon:
		return g.delivery(g.random.IntN(len(g.w.flight)))
	case n < 2 && len(g.late) > 0:
		late := g.late[g.random.IntN(len(g.late))]
		return move{kind: answerLate, who: late.who, op: late.op, at: late.at}
	}
	return g.drawEvent(n)
}

// drawEvent draws what happens beside the executors and their messages for some values of
// n, of a hundred, and an operation for the others.
func (g *game) drawEvent(n int) move {
	switch {
	case n < 3 && g.ill:
		return g.drawOne(g.random.IntN(MaxAccounts), closeAccount, seal, reopen, failOver)
	case n < 5 && g.missing >= 0:
		return move{kind: create, who: g.missing}
	case n < 4:
		return move{kind: deposit, who: g.random.IntN(MaxAccounts)}
	case n == 5 && g.paper:
		return g.drawOne(MaxAccounts-1, change, purge)
	case n == 6:
		return move{kind: elapse, who: g.random.IntN(MaxTransfers)}
	}
	return g.drawOperation()
}

// drawOne draws one of several events of an account.
func (g *game) drawOne(who int, kinds ...moveKind) move {
	return move{kind: kinds[g.random.IntN(len(kinds))], who: who}
}

// drawGuest draws who joins: often the next one, so that originals come first.
// An executor that posts a hold, or voids an expired one, mostly comes when there is
// something to do.
func (g *game) drawGuest() move {
	which := 0
	if g.random.IntN(2) == 0 {
		which = g.random.IntN(len(g.guests))
	}
	who := g.guests[which]
	e := &g.executors[who]
	switch early := g.random.IntN(30) > 0; {
	case early && e.start.Claim == protocol.Post && !g.w.Transfers[e.transfer].Held:
		return g.drawOperation()
	case early && e.start.Claim == protocol.Expire && !g.w.Expired[e.transfer]:
		if g.w.Transfers[e.transfer].Held || g.random.IntN(4) == 0 {
			return move{kind: elapse, who: e.transfer}
		}
		return g.drawOperation()
	}
	g.guests = append(g.guests[:which], g.guests[which+1:]...)
	return move{kind: join, who: who}
}

// busy returns the executors that want something and are awake.
// When no such executor is awake, all others wake up.
func (g *game) busy() []int {
	g.wanting = g.wanting[:0]
	asleep := 0
	for who := range g.executors {
		switch {
		case len(g.executors[who].batch) == 0:
		case g.asleep[who]:
			asleep++
		default:
			g.wanting = append(g.wanting, who)
		}
	}
	if len(g.wanting) == 0 && len(g.guests) == 0 && asleep > 0 {
		clear(g.asleep)
		return g.busy()
	}
	return g.wanting
}

// calm lets some executors go on without faults, each to its end within a bounded number
// of steps.
// The others have crashed.
func (g *game) calm() error {
	for who := range g.executors {
		if g.executors[who].x == nil || g.random.IntN(3) == 0 {
			continue
		}
		if err := g.make(move{kind: hurry, who: who}); err != nil {
			return err
		}
		if err := g.make(move{kind: finish, who: who}); err != nil {
			return err
		}
	}
	return nil
}
