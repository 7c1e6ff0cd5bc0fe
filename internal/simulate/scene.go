package simulate

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// Scene is where a search starts: one or two transfers of 60 from alice, who has 100, to
// bob, and the executors of each.
type Scene struct {
	// Name says what happens in the scene.
	Name string
	// Faults is how many faults may happen.
	Faults int

	repeat   bool  // writes that may be repeated are
	coalesce bool  // writes of the two transfers may travel as one update
	back     bool  // the second transfer goes from bob to alice
	three    bool  // 40 of each transfer go to bob, and 20 to carol
	closing  bool  // bob's account may be closed at any time
	freezing bool  // bob's account may be frozen at any time
	longer   bool  // holds may be extended at any time
	posted   int64 // what is posted of holds; 0: all
	paper    paper
	room     int64 // what is left of the original of reversals; 0: what one takes
	all      bool  // the second transfer takes back all that is left
	starts   [][]protocol.Start
	prepare  func(*World)
}

// paper says how the transfers of a scene use a document.
type paper uint8

const (
	nothing          paper = iota
	besides                // they change carol, a document, besides moving money
	besidesMayBeGone       // the same, and carol may be removed at any time
	alone                  // they change bob, a document, and move nothing
	aloneMayBeGone         // the same, and bob may be removed at any time
)

// sceneAccounts is how many accounts a scene has, or may have.
const sceneAccounts = 2

// String names the scene and its size.
func (s Scene) String() string {
	return fmt.Sprintf("%s: %d executors, %d faults", s.Name, s.executors(), s.Faults)
}

func (s Scene) executors() int {
	count := 0
	for _, starts := range s.starts {
		count += len(starts)
	}
	return count
}

// plan returns what a transfer of the scene moves.
func (s Scene) plan(transfer int) []Leg {
	legs := []Leg{{Account: 0, Amount: -60}, {Account: 1, Amount: 60}}
	switch {
	case s.back && transfer == 1:
		legs = []Leg{{Account: 0, Amount: 60}, {Account: 1, Amount: -60}}
	case s.three:
		legs = []Leg{{Account: 0, Amount: -60}, {Account: 1, Amount: 40}, {Account: 2, Amount: 20}}
	}
	switch s.paper {
	case besides, besidesMayBeGone:
		legs = append(legs, Leg{Account: 2, MayBeGone: s.paper == besidesMayBeGone})
	case alone, aloneMayBeGone:
		legs = []Leg{{Account: 1, MayBeGone: s.paper == aloneMayBeGone}}
	case nothing:
	}
	if last := &legs[len(legs)-1]; last.MayBeGone {
		last.Takes = 60
	}
	return legs
}

func (s Scene) run() *run {
	plans := make([][]Leg, len(s.starts))
	initiated := make([]bool, len(s.starts))
	for t, starts := range s.starts {
		plans[t] = s.plan(t)
		initiated[t] = starts[0].Claim == protocol.FromInitiated
	}
	accounts := []Account{{Balance: 100, Fence: "f0"}, {Fence: "f0"}}
	if s.paper == besides || s.paper == besidesMayBeGone || s.three {
		accounts = append(accounts, Account{Fence: "f0"})
	}
	w := NewWorld(accounts, initiated, plans...)
	for t, starts := range s.starts {
		w.Holds[t], w.Earlier[t] = starts[0].Hold, starts[0].ByRecord
	}
	if last := plans[0][len(plans[0])-1]; last.MayBeGone {
		w.Accounts[last.Account].Room = cmp.Or(s.room, last.Takes)
		w.Alls[1] = s.all
	}
	if s.prepare != nil {
		s.prepare(w)
	}
	w.majority, w.past = w.Version, []Version{w.Version}
	for i := range w.past[0].Accounts {
		w.past[0].Accounts[i].Fence = "" // what a stale read shows
	}
	r := &run{w: *w, faults: s.Faults}
	for t, starts := range s.starts {
		for _, start := range starts {
			r.executors[r.enroll(t, start)].posted = s.posted
		}
	}
	return r
}

// Starts of executors.
func fromInsert() protocol.Start { return protocol.Start{Claim: protocol.Insert} }
func fromQueue() protocol.Start  { return protocol.Start{Claim: protocol.FromInitiated} }
func resume() protocol.Start     { return protocol.Start{Claim: protocol.TakeOver} }
func rollBack() protocol.Start {
	return protocol.Start{Claim: protocol.TakeOver, RollBack: protocol.Stalled}
}
func cancel() protocol.Start {
	return protocol.Start{Claim: protocol.TakeToCancel, RollBack: protocol.Cancelled}
}
func hold() protocol.Start     { return protocol.Start{Claim: protocol.Insert, Hold: true} }
func holdOn() protocol.Start   { return protocol.Start{Claim: protocol.TakeUnheld, Hold: true} }
func postHold() protocol.Start { return protocol.Start{Claim: protocol.Post} }
func void() protocol.Start {
	return protocol.Start{Claim: protocol.TakeToCancel, RollBack: protocol.Voided}
}
func expire() protocol.Start {
	return protocol.Start{Claim: protocol.Expire, RollBack: protocol.Expired}
}
func withdraw() protocol.Start {
	return protocol.Start{Claim: protocol.CancelInitiated, RollBack: protocol.Cancelled}
}

// Scenes returns all scenes: those with one transfer, then those with two.
func Scenes() []Scene {
	return slices.Concat(OneTransfer(), Facts(), Earlier(), Holds(), Effects(), Reversals(), TwoTransfers())
}

// OneTransfer returns the scenes with one transfer.
// One more fault multiplies their states by about ten, one more executor by about thirty.
func OneTransfer() []Scene {
	poor := func(w *World) { w.Accounts[0].Balance, w.given[0] = 50, 50 }
	shut := func(w *World) { w.Accounts[1].Closed = true }
	frozen := func(w *World) { w.Accounts[1].Frozen = true }
	missing := func(w *World) { w.Accounts[1].Missing = true }
	type executors = []protocol.Start
	var scenes []Scene
	for _, c := range []struct {
		name   string
		starts executors
	}{
		{"resumed", executors{fromInsert(), resume()}},
		{"rolled back", executors{fromInsert(), rollBack()}},
		{"cancelled", executors{fromInsert(), cancel()}},
		{"a worker's, cancelled", executors{fromQueue(), cancel()}},
		{"a worker's, withdrawn", executors{fromQueue(), withdraw()}},
		{"a worker's, resumed", executors{fromQueue(), resume()}},
		{"two workers'", executors{fromQueue(), fromQueue()}},
		{"asked for twice", executors{fromInsert(), fromInsert()}},
	} {
		starts := [][]protocol.Start{c.starts}
		scenes = append(scenes,
			Scene{Name: c.name, starts: starts, Faults: 2, repeat: true},
			Scene{Name: c.name + ", too little money", starts: starts, Faults: 2, prepare: poor},
			Scene{Name: c.name + ", closed account", starts: starts, Faults: 2, prepare: shut},
			Scene{Name: c.name + ", missing account", starts: starts, Faults: 2, prepare: missing})
	}
	return append(scenes,
		Scene{Name: "resumed, frozen account", starts: [][]protocol.Start{{fromInsert(), resume()}}, Faults: 2, prepare: frozen},
		Scene{Name: "rolled back, frozen account", starts: [][]protocol.Start{{fromInsert(), rollBack()}}, Faults: 2, prepare: frozen},
		Scene{Name: "resumed", starts: [][]protocol.Start{{fromInsert(), resume()}}, Faults: 3},
		Scene{Name: "rolled back", starts: [][]protocol.Start{{fromInsert(), rollBack()}}, Faults: 3},
		Scene{Name: "resumed and rolled back", starts: [][]protocol.Start{{fromInsert(), resume(), rollBack()}}, Faults: 1},
		Scene{Name: "a worker's, withdrawn and cancelled", starts: [][]protocol.Start{{fromQueue(), withdraw(), cancel()}}, Faults: 1},
		Scene{Name: "a worker's, withdrawn and resumed", starts: [][]protocol.Start{{fromQueue(), withdraw(), resume()}}, Faults: 1})
}

// Facts returns the scenes in which a roll-back competes with the fact that all is
// prepared: with two who take over, three participants, accounts that are closed or
// frozen meanwhile or missing at first, and an ID that is asked for twice.
// The last ten are large.
func Facts() []Scene {
	type starts = [][]protocol.Start
	poor := func(w *World) { w.Accounts[0].Balance, w.given[0] = 50, 50 }
	missing := func(w *World) { w.Accounts[1].Missing = true }
	scenes := []Scene{
		{Name: "three, resumed", starts: starts{{fromInsert(), resume()}}, Faults: 1, three: true},
		{Name: "three, rolled back", starts: starts{{fromInsert(), rollBack()}}, Faults: 1, three: true},
		{Name: "three, cancelled, missing account", starts: starts{{fromInsert(), cancel()}}, Faults: 1, three: true, prepare: missing},
		{Name: "three, resumed, closing", starts: starts{{fromInsert(), resume()}}, Faults: 0, three: true, closing: true},
		{Name: "resumed, closing", starts: starts{{fromInsert(), resume()}}, Faults: 1, closing: true},
		{Name: "cancelled, closing", starts: starts{{fromInsert(), cancel()}}, Faults: 2, closing: true},
		{Name: "three, resumed, freezing", starts: starts{{fromInsert(), resume()}}, Faults: 0, three: true, freezing: true},
		{Name: "resumed, freezing", starts: starts{{fromInsert(), resume()}}, Faults: 1, freezing: true},
		{Name: "cancelled, freezing", starts: starts{{fromInsert(), cancel()}}, Faults: 1, freezing: true},
	}
	large := []Scene{
		{Name: "two transfers of three, one cancelled", starts: starts{{fromInsert(), cancel()}, {fromInsert()}}, Faults: 0, three: true},
		{Name: "two transfers of three, one resumed", starts: starts{{fromInsert(), resume()}, {fromInsert()}}, Faults: 0, three: true},
	}
	for _, c := range []struct {
		name   string
		starts []protocol.Start
	}{
		{"asked for twice, and cancelled", []protocol.Start{fromInsert(), fromInsert(), cancel()}},
		{"cancelled twice", []protocol.Start{fromInsert(), cancel(), cancel()}},
		{"resumed and cancelled", []protocol.Start{fromInsert(), resume(), cancel()}},
		{"resumed twice", []protocol.Start{fromInsert(), resume(), resume()}},
	} {
		both := starts{c.starts}
		scenes = append(scenes,
			Scene{Name: c.name, starts: both, Faults: 0},
			Scene{Name: c.name + ", closing", starts: both, Faults: 0, closing: true},
			Scene{Name: c.name + ", too little money", starts: both, Faults: 1, prepare: poor},
			Scene{Name: c.name + ", missing account", starts: both, Faults: 0, prepare: missing})
		large = append(large,
			Scene{Name: c.name, starts: both, Faults: 1},
			Scene{Name: c.name + ", missing account", starts: both, Faults: 1, prepare: missing})
	}
	return append(scenes, large...)
}

// Earlier returns the scenes with a transfer that an earlier release has stored, and on
// which executors of that release and of this one work.
func Earlier() []Scene {
	earlier := func(start protocol.Start) protocol.Start {
		start.ByRecord = true
		return start
	}
	type executors = []protocol.Start
	missing := func(w *World) { w.Accounts[1].Missing = true }
	var scenes []Scene
	for _, c := range []struct {
		name   string
		starts executors
		faults int
	}{
		{"an earlier release's, resumed", executors{earlier(fromInsert()), resume()}, 2},
		{"an earlier release's, cancelled", executors{earlier(fromInsert()), cancel()}, 2},
		{"an earlier release's, run by this one", executors{earlier(fromQueue()), fromQueue()}, 2},
		{"an earlier release's, resumed, and cancelled there", executors{earlier(fromInsert()), resume(), earlier(cancel())}, 0},
		{"an earlier release's, resumed, and rolled back there", executors{earlier(fromInsert()), resume(), earlier(rollBack())}, 0},
	} {
		starts := [][]protocol.Start{c.starts}
		scenes = append(scenes,
			Scene{Name: c.name, starts: starts, Faults: c.faults},
			Scene{Name: c.name + ", missing account", starts: starts, Faults: c.faults, prepare: missing})
	}
	return scenes
}

// Holds returns the scenes with a hold, and what is done to it.
func Holds() []Scene {
	type executors = []protocol.Start
	var scenes []Scene
	scenes = append(scenes,
		Scene{Name: "held and posted, money and a document", starts: [][]protocol.Start{{hold(), postHold()}}, Faults: 1, paper: besides},
		Scene{Name: "held and voided, money and a document", starts: [][]protocol.Start{{hold(), void()}}, Faults: 1, paper: besides},
		Scene{Name: "held and posted, freezing", starts: [][]protocol.Start{{hold(), postHold()}}, Faults: 1, freezing: true},
		Scene{Name: "held and voided, freezing", starts: [][]protocol.Start{{hold(), void()}}, Faults: 1, freezing: true},
		Scene{Name: "extended and expired", starts: [][]protocol.Start{{hold(), expire()}}, Faults: 1, longer: true},
		Scene{Name: "extended and voided", starts: [][]protocol.Start{{hold(), void()}}, Faults: 1, longer: true},
		Scene{Name: "extended, posted and expired", starts: [][]protocol.Start{{hold(), postHold(), expire()}}, Faults: 0, longer: true},
		Scene{Name: "a hold beside a transfer", starts: [][]protocol.Start{{hold(), postHold()}, {fromInsert()}}, Faults: 0},
		Scene{Name: "a hold beside a transfer, in part", starts: [][]protocol.Start{{hold(), postHold()}, {fromInsert()}}, Faults: 0, posted: 20})
	for _, c := range []struct {
		name   string
		starts executors
		faults int
	}{
		{"held and posted", executors{hold(), postHold()}, 2},
		{"held and voided", executors{hold(), void()}, 2},
		{"held and expired", executors{hold(), expire()}, 2},
		{"held again", executors{hold(), holdOn()}, 2},
		{"asked to be held twice", executors{hold(), hold()}, 1},
		{"held again and posted", executors{hold(), holdOn(), postHold()}, 1},
		{"posted twice", executors{hold(), postHold(), postHold()}, 1},
		{"posted and voided", executors{hold(), postHold(), void()}, 1},
		{"posted and expired", executors{hold(), postHold(), expire()}, 1},
		{"posted and resumed", executors{hold(), postHold(), resume()}, 1},
		{"voided and rolled back", executors{hold(), void(), rollBack()}, 1},
	} {
		starts := [][]protocol.Start{c.starts}
		scenes = append(scenes, Scene{Name: c.name, starts: starts, Faults: c.faults})
		if slices.Contains(c.starts, postHold()) {
			scenes = append(scenes, Scene{Name: c.name + ", in part", starts: starts, Faults: c.faults, posted: 20})
		}
	}
	return scenes
}

// Effects returns the scenes with a document that transfers change.
func Effects() []Scene {
	type starts = [][]protocol.Start
	type executors = []protocol.Start
	return []Scene{
		{Name: "money and a document", starts: starts{{fromInsert(), resume()}}, Faults: 1, paper: besides},
		{Name: "money and a document, rolled back", starts: starts{{fromInsert(), rollBack()}}, Faults: 1, paper: besides},
		{Name: "a reversal, resumed", starts: starts{{fromInsert(), resume()}}, Faults: 0, paper: besidesMayBeGone},
		{Name: "a reversal, rolled back", starts: starts{{fromInsert(), rollBack()}}, Faults: 1, paper: besidesMayBeGone},
		{Name: "a document, resumed", starts: starts{{fromInsert(), resume()}}, Faults: 2, paper: alone},
		{Name: "a document, rolled back", starts: starts{{fromInsert(), rollBack()}}, Faults: 2, paper: alone},
		{Name: "a document of two transfers", starts: starts{{fromInsert()}, {fromInsert()}}, Faults: 2, paper: alone},
		{
			Name: "a document of two transfers, one resumed", Faults: 1, paper: alone,
			starts: starts{{fromInsert(), resume()}, executors{fromInsert()}},
		},
		{
			Name: "a document of two transfers, one rolled back", Faults: 1, paper: alone,
			starts: starts{{fromInsert(), rollBack()}, executors{fromInsert()}},
		},
		{Name: "a document that is removed, resumed", starts: starts{{fromInsert(), resume()}}, Faults: 2, paper: aloneMayBeGone},
		{Name: "a document that is removed, rolled back", starts: starts{{fromInsert(), rollBack()}}, Faults: 2, paper: aloneMayBeGone},
	}
}

// Reversals returns the scenes with two reversals of one transfer: with too little left
// for both, with enough, and with one that takes all that is left.
func Reversals() []Scene {
	rich := func(w *World) { w.Accounts[0].Balance, w.given[0] = 120, 120 }
	type executors = []protocol.Start
	var scenes []Scene
	for _, c := range []struct {
		name          string
		first, second executors
		faults        int
	}{
		{"two reversals", executors{fromInsert()}, executors{fromInsert()}, 1},
		{"two reversals, the first rolled back", executors{fromInsert(), rollBack()}, executors{fromInsert()}, 0},
		{"two reversals, the second resumed", executors{fromInsert()}, executors{fromInsert(), resume()}, 0},
		{"two reversals, the second cancelled", executors{fromInsert()}, executors{fromInsert(), cancel()}, 0},
	} {
		scene := Scene{Name: c.name, Faults: c.faults, paper: besidesMayBeGone, prepare: rich, starts: [][]protocol.Start{c.first, c.second}}
		enough, all := scene, scene
		enough.Name, enough.room = c.name+", enough for both", 120
		all.Name, all.room, all.all = c.name+", all that is left", 100, true
		scenes = append(scenes, scene, enough, all)
	}
	return scenes
}

// TwoTransfers returns the scenes with two transfers on the same two accounts, with money
// for one of them or for both.
// They go from the smallest to those that no search ends: one more fault multiplies the
// states about as much as one more executor.
// Some of them are coalesced: each two of their writes that may travel as one update do
// so, or go by themselves.
func TwoTransfers() []Scene {
	const mostFaults = 3
	rich := func(w *World) { w.Accounts[0].Balance, w.given[0] = 120, 120 }
	type executors = []protocol.Start
	var scenes []Scene
	for faults := range mostFaults + 1 {
		for _, c := range []struct {
			name          string
			first, second executors
		}{
			{"two transfers", executors{fromInsert()}, executors{fromInsert()}},
			{"two transfers, one rolled back", executors{fromInsert(), rollBack()}, executors{fromInsert()}},
			{"two transfers, one resumed", executors{fromInsert(), resume()}, executors{fromInsert()}},
			{"two transfers, one resumed, one rolled back", executors{fromInsert(), resume()}, executors{fromInsert(), rollBack()}},
		} {
			starts := [][]protocol.Start{c.first, c.second}
			scenes = append(scenes,
				Scene{Name: c.name + ", money for one", starts: starts, Faults: faults},
				Scene{Name: c.name + ", money for both", starts: starts, Faults: faults, prepare: rich},
				Scene{Name: c.name + ", money for one, coalesced", starts: starts, Faults: faults, coalesce: true},
				Scene{Name: c.name + ", money for both, coalesced", starts: starts, Faults: faults, prepare: rich, coalesce: true},
				Scene{Name: c.name + ", there and back, coalesced", starts: starts, Faults: faults, coalesce: true, back: true})
		}
	}
	slices.SortStableFunc(scenes, func(a, b Scene) int {
		return cmp.Compare(a.executors()+a.Faults, b.executors()+b.Faults)
	})
	return scenes
}
