package transfertest_test

import (
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
)

func holds(w *world) {
	w.hold(move("h", "alice", "bob", 60), time.Hour)
	w.hold(move("h", "alice", "bob", 60), time.Minute)
	w.hold(move("h", "alice", "bob", 61), time.Hour)
	w.account("", "alice")
	w.account("", "bob")
	w.transfer(move("t", "alice", "bob", 41))
	w.transfer(move("h", "alice", "bob", 60))
	w.closeAccount("", "alice")
	w.closeAccount("", "carol")
	w.hold(transfer.Request{ID: "legs", Legs: []transfer.Leg{leg("bob", -3), leg("alice", 1), leg("carol", 2)}}, time.Hour)
	w.post("legs", transfer.PostAmount(units(1)))
	w.list(transfer.Query{Holds: true})
	w.list(transfer.Query{Unfinished: true})
	w.list(transfer.Query{ExpiresBefore: time.Now().Add(2 * time.Hour)})
	w.list(transfer.Query{ExpiresBefore: time.Now().Add(time.Minute)})
	w.statement("", "alice", transfer.StatementQuery{})
	w.post("h")
	w.post("h")
	w.post("h", transfer.PostAmount(units(60)))
	w.post("h", transfer.PostAmount(units(10)))
	w.void("h")
	w.cancel("h", "late")
	w.void("legs")
	w.void("legs")
	w.post("legs")
	w.hold(transfer.Request{ID: "legs", Legs: []transfer.Leg{leg("bob", -3), leg("alice", 1), leg("carol", 2)}}, time.Hour)
	w.get("legs")
}

func holdsDecided(w *world) {
	w.transfer(move("t", "alice", "bob", 1))
	for _, id := range []string{"t", "nothing", "fails"} {
		w.post(id)
		w.void(id)
	}
	w.hold(move("fails", "alice", "bob", 1000), time.Hour)
	w.post("fails")
	w.void("fails")
	w.hold(move("part", "alice", "bob", 50), time.Hour)
	w.post("part", transfer.PostAmount(units(51)))
	w.post("part", transfer.PostAmount(units(0)))
	w.post("part", transfer.PostAmount(units(-1)))
	w.post("part", transfer.PostAmount(decimal("1.0")))
	w.post("part", transfer.PostAmount(units(20)))
	w.get("part")
	w.post("part")
	w.reverse(transfer.Reversal{ID: "r1", Of: "part", Amount: units(21)})
	w.reverse(transfer.Reversal{ID: "r2", Of: "part", Amount: units(20)})
	w.hold(move("cancelled", "alice", "bob", 50), time.Hour)
	w.reverse(transfer.Reversal{ID: "r3", Of: "cancelled", All: true})
	w.cancel("cancelled", "the guest has left")
	w.post("cancelled")
	w.void("cancelled")
	w.wait("cancelled")
	w.submit(move("waits", "alice", "bob", 1))
	w.post("waits")
	w.void("waits")
}

func holdsExpire(w *world) {
	const soon = 200 * time.Millisecond
	w.hold(move("h", "alice", "bob", 60), soon)
	w.hold(move("long", "alice", "bob", 10), time.Hour)
	w.pass(soon)
	w.get("h")
	w.post("h")
	w.void("h")
	w.wait("h")
	w.cancel("h", "")
	w.hold(move("h", "alice", "bob", 60), time.Hour)
	w.account("", "alice")
	w.get("long")
	w.post("long")
}

func holdsExtended(w *world) {
	const soon, enough = 200 * time.Millisecond, 4 * time.Second // on a busy machine, too
	w.hold(move("h", "alice", "bob", 60), enough)
	w.extend("h", time.Hour)
	w.extend("h", time.Minute)
	w.extend("h", 0)
	w.pass(enough)
	w.get("h")
	w.extend("h", 2*time.Hour)
	w.post("h", transfer.PostAmount(units(10)))
	w.extend("h", 3*time.Hour)
	w.hold(move("short", "alice", "bob", 1), soon)
	w.pass(soon)
	w.extend("short", time.Hour)
	w.hold(move("void", "alice", "bob", 1), time.Hour)
	w.void("void")
	w.transfer(move("t", "alice", "bob", 1))
	for _, id := range []string{"void", "t", "nothing", ""} {
		w.extend(id, time.Hour)
	}
}

func busy(w *world) {
	for i := range 3 {
		w.hold(move(fmt.Sprint("h", i), "alice", "bob", 1), time.Hour)
	}
	var waiting sync.WaitGroup
	waiting.Go(func() { w.transfer(move("t", "alice", "carol", 1)) })
	busy := time.NewTimer(100 * time.Millisecond) // on any machine the answer is the same
	defer busy.Stop()
	<-busy.C
	_, err := w.verbs.Void(w.t.Context(), "h0")
	waiting.Wait()
	w.note("Void h0", nil, err)
	w.transfer(move("t", "alice", "carol", 1))
}

func submitted(w *world) {
	const soon = 200 * time.Millisecond
	w.submit(move("now", "alice", "bob", 1))
	later := move("later", "alice", "bob", 2)
	later.NotBefore = time.Now().Add(time.Hour)
	w.submit(later)
	w.get("now")
	w.list(transfer.Query{States: []transfer.State{transfer.StateInitiated}})
	w.pass(0)
	w.get("now")
	w.wait("now")
	due := move("due", "alice", "bob", 3)
	due.NotBefore = time.Now().Add(soon)
	w.submit(due)
	w.submit(due)
	w.list(transfer.Query{States: []transfer.State{transfer.StateInitiated}})
	w.pass(2 * soon)
	w.get("due")
	w.get("later")
	w.transfer(move("later", "alice", "bob", 2))
	w.submit(later)
	w.submit(move("fails", "alice", "bob", 1000))
	w.pass(0)
	w.get("fails")
	w.submit(move("fails", "alice", "bob", 1000))
}

func waitsForFunds(w *world) {
	waits := move("waits", "carol", "bob", 10)
	waits.AwaitFundsUntil = time.Now().Add(time.Hour)
	w.submit(waits)
	// Not from carol: once its time is over, it reserves what arrives until it fails.
	givesUp := move("gives up", "alice", "bob", 1000)
	givesUp.AwaitFundsUntil = time.Now().Add(time.Second)
	w.submit(givesUp)
	w.pass(0)
	w.get("waits")
	w.transfer(move("salary", "world", "carol", 15))
	w.pass(5 * time.Second)
	w.get("waits")
	w.get("gives up")
}

func explained(w *world) {
	w.stats()
	later := move("later", "alice", "bob", 2)
	later.NotBefore = time.Now().Add(time.Hour)
	w.submit(later)
	w.submit(move("due", "alice", "bob", 1))
	w.hold(move("h", "alice", "bob", 10), time.Hour)
	w.transfer(move("t", "alice", "bob", 10))
	w.transfer(move("fails", "alice", "bob", 1000))
	w.stats()
	for _, id := range []string{"later", "due", "h", "t", "fails", "nothing", ""} {
		w.explain(id)
	}
	w.pass(0)
	w.stats()
	w.explain("due")
}

// recovered has transfers whose processes have died: once all was paid, while money was
// given back, and while it was held.
func recovered(w *world) {
	w.recover()
	w.transfer(move("t", "alice", "bob", 1))
	for i, id := range []string{"rollback", "expired", "held"} {
		w.hold(move(id, "alice", "bob", int64(10+i)), time.Hour)
	}
	w.stall("t", transfer.StateCommitted)
	w.stall("rollback", transfer.StateRollback, bson.E{Key: "failure", Value: bson.D{
		{Key: "code", Value: "cancelled"}, {Key: "message", Value: "not wanted"},
	}})
	w.stall("expired", transfer.StatePreparing, bson.E{Key: "expiresAt", Value: time.Now().Add(-time.Minute)})
	w.stall("held", transfer.StatePreparing)
	w.stats()
	ids := []string{"t", "rollback", "expired", "held"}
	for _, id := range ids {
		w.explain(id)
	}
	w.recover(nil)
	w.recover()
	w.recover()
	for _, id := range ids {
		w.get(id)
	}
}

func cancelled(w *world) {
	later := move("later", "alice", "bob", 2)
	later.NotBefore = time.Now().Add(time.Hour)
	w.submit(later)
	w.cancel("later", "not wanted")
	w.cancel("later", "another reason")
	w.get("later")
	w.submit(later)
	w.transfer(move("later", "alice", "bob", 2))
	w.transfer(move("t", "alice", "bob", 2))
	w.cancel("t", "")
	w.cancel("nothing", "")
	w.submit(move("silent", "alice", "bob", 2))
	w.cancel("silent", "")
	w.wait("silent")
}

func reversals(w *world) {
	w.transfer(move("t", "alice", "bob", 60))
	w.reverse(transfer.Reversal{ID: "r", Of: "t", All: true, Metadata: map[string]any{"why": "damaged"}})
	w.reverse(transfer.Reversal{ID: "r", Of: "t", All: true})
	w.reverse(transfer.Reversal{ID: "r2", Of: "t", All: true})
	w.reverse(transfer.Reversal{ID: "r3", Of: "t", Amount: units(1)})
	w.get("t")
	w.get("r")
	w.reverse(transfer.Reversal{ID: "rr", Of: "r", All: true})
	w.reverse(transfer.Reversal{ID: "r", Of: "rr", All: true})
	w.transfer(move("spent", "alice", "carol", 40))
	w.transfer(move("gone", "carol", "bob", 40))
	w.reverse(transfer.Reversal{ID: "fails", Of: "spent", All: true})
	w.reverse(transfer.Reversal{ID: "fails", Of: "spent", All: true})
	w.transfer(move("refused", "alice", "bob", 1000))
	w.reverse(transfer.Reversal{ID: "r4", Of: "refused", All: true})
	w.reverse(transfer.Reversal{ID: "r5", Of: "nothing", All: true})
	w.submit(move("waits", "alice", "bob", 1))
	w.reverse(transfer.Reversal{ID: "r6", Of: "waits", All: true})
	w.list(transfer.Query{Reverses: "t"})
}

func partialReversals(w *world) {
	w.transfer(move("t", "alice", "bob", 60))
	w.reverse(transfer.Reversal{ID: "r1", Of: "t", Amount: units(20)})
	w.reverse(transfer.Reversal{ID: "r1", Of: "t", Amount: units(21)})
	w.reverse(transfer.Reversal{ID: "r1", Of: "t", All: true})
	w.reverse(transfer.Reversal{ID: "r2", Of: "t", Amount: units(41)})
	w.reverse(transfer.Reversal{ID: "r3", Of: "t", Legs: []transfer.Leg{leg("bob", -10), leg("alice", 10)}})
	w.reverse(transfer.Reversal{ID: "r4", Of: "t", Legs: []transfer.Leg{leg("bob", -10), leg("carol", 10)}})
	w.reverse(transfer.Reversal{ID: "r5", Of: "t", Legs: []transfer.Leg{leg("bob", 10), leg("alice", -10)}})
	w.reverse(transfer.Reversal{ID: "r6", Of: "t", Amount: decimal("1.0")})
	w.get("t")
	w.reverse(transfer.Reversal{ID: "r7", Of: "t", All: true})
	w.get("t")
	w.get("r7")
	w.transfer(transfer.Request{ID: "split", Legs: []transfer.Leg{leg("alice", -10), leg("bob", 4), leg("carol", 6)}})
	w.reverse(transfer.Reversal{ID: "s1", Of: "split", Amount: units(1)})
	w.reverse(transfer.Reversal{ID: "s2", Of: "split", Legs: []transfer.Leg{leg("bob", -4), leg("alice", 4)}})
	w.reverse(transfer.Reversal{ID: "s3", Of: "split", Legs: []transfer.Leg{leg("bob", -1), leg("alice", 1)}})
	w.reverse(transfer.Reversal{ID: "s4", Of: "split", All: true})
	w.get("split")
}
