package transfertest_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
)

// A fake and a coordinator on a server give the same answers to the same calls: the
// records, the errors with their texts, the accounts, the statements and the lists.
func TestFakeAgreesWithAServer(t *testing.T) {
	t.Parallel()
	for name, calls := range scenarios() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			few := transfer.WithMarkerLimit(3)
			server, memory := onServer(t, few), inMemory(t, few)
			for _, w := range []*world{server, memory} {
				w.openBank()
				calls(w)
				w.noteBank()
			}
			require.NotEmpty(t, server.log)
			requireAgreement(t, server, memory)
		})
	}
}

func scenarios() map[string]func(w *world) {
	return map[string]func(w *world){
		"transfers":           transfers,
		"refusals":            refusals,
		"malformed requests":  malformed,
		"repeats":             repeats,
		"at most":             atMost,
		"decimals":            decimals,
		"exchange":            exchange,
		"effects":             effects,
		"effects are refused": effectsRefused,
		"holds":               holds,
		"holds are decided":   holdsDecided,
		"holds expire":        holdsExpire,
		"holds are extended":  holdsExtended,
		"busy accounts":       busy,
		"submitted":           submitted,
		"cancelled":           cancelled,
		"reversals":           reversals,
		"reversals in parts":  partialReversals,
		"accounts":            accounts,
		"accounts change":     accountsChange,
		"other ledgers":       otherLedgers,
		"lists":               lists,
		"statements":          statements,
		"at an instant":       instants,
		"many at once":        many,
		"ended contexts":      ended,
		"closed":              closed,
	}
}

func units(n int64) transfer.Amount { return transfer.Units(n) }

func decimal(text string) transfer.Amount {
	amount, err := transfer.ParseDecimal(text)
	if err != nil {
		panic(err)
	}
	return amount
}

func move(id, from, to string, n int64) transfer.Request {
	return transfer.Request{ID: id, From: from, To: to, Amount: units(n)}
}

func leg(account string, n int64) transfer.Leg {
	return transfer.Leg{Account: account, Amount: units(n)}
}

// openBank opens the accounts that all scenarios have.
func (w *world) openBank() {
	for _, a := range []transfer.Account{
		{ID: "alice", Balance: units(100)}, {ID: "bob", Balance: units(100)}, {ID: "carol"},
		{ID: "world", NoFloor: true},
		{ID: "lender", Balance: units(10), Floor: units(-50)},
		{ID: "dave", Balance: decimal("10.50")}, {ID: "erin", Balance: decimal("0.00")},
		{ID: "euro", Balance: units(50), Currency: "EUR"}, {ID: "euro-desk", Balance: units(500), Currency: "EUR"},
		{ID: "dollar", Balance: units(50), Currency: "USD"}, {ID: "dollar-desk", Balance: units(500), Currency: "USD"},
		{ID: "frozen", Balance: units(5), Frozen: true},
		{ID: "closed"},
		{ID: "eve", Ledger: "eu", Balance: units(7)},
	} {
		w.open(a)
	}
	w.closeAccount("", "closed")
}

// noteBank notes what is there in the end.
func (w *world) noteBank() {
	w.accounts(transfer.AccountQuery{})
	w.accounts(transfer.AccountQuery{Ledger: "eu"})
	w.list(transfer.Query{})
	for _, id := range []string{"alice", "bob", "carol", "dave", "euro"} {
		w.statement("", id, transfer.StatementQuery{})
	}
}

func transfers(w *world) {
	req := move("t", "alice", "bob", 60)
	req.Metadata = map[string]any{"order": "17", "n": 5, "list": []string{"a"}, "inner": map[string]any{"x": 1.5}}
	w.transfer(req)
	w.transfer(move("from the world", "world", "carol", 1_000_000))
	w.transfer(move("into the red", "lender", "bob", 60))
	w.transfer(transfer.Request{ID: "split", Legs: []transfer.Leg{leg("alice", -10), leg("bob", 4), leg("carol", 6)}})
	w.transfer(transfer.Request{ID: "netted", Legs: []transfer.Leg{leg("alice", -10), leg("alice", 3), leg("bob", 7), leg("carol", 0)}})
	w.transfer(transfer.Request{ID: strings.Repeat("a.$%\x00", 10), From: "alice", To: "bob", Amount: units(1)})
	w.transfer(transfer.Request{ID: "1234", From: "alice", To: "bob", Amount: units(1)})
	w.get("t")
	w.wait("t")
	w.get("nothing")
	w.wait("nothing")
	w.account("", "alice")
	w.account("", "nobody")
	w.account("", "")
}

func refusals(w *world) {
	w.transfer(move("1", "alice", "bob", 101))
	w.transfer(move("2", "alice", "nobody", 1))
	w.transfer(move("3", "nobody", "alice", 1))
	w.transfer(move("4", "alice", "closed", 1))
	w.transfer(move("5", "alice", "frozen", 1))
	w.transfer(move("6", "frozen", "alice", 1))
	w.transfer(move("7", "alice", "euro", 1))
	w.transfer(move("8", "alice", "dave", 1))
	w.transfer(move("9", "lender", "bob", 61))
	eur := move("10", "euro", "dollar", 1)
	eur.Currency = "EUR"
	w.transfer(eur)
	w.transfer(transfer.Request{ID: "11", Legs: []transfer.Leg{
		leg("alice", -200), leg("bob", -200), leg("nobody", 100), leg("closed", 100), leg("frozen", 200),
	}})
	w.transfer(transfer.Request{ID: "12", Legs: []transfer.Leg{leg("bob", -200), leg("closed", 50), leg("frozen", 150)}})
	w.transfer(move("full", "world", "carol", 1<<48))
	w.open(transfer.Account{ID: "rich", Balance: units(1 << 62)})
	w.transfer(move("13", "world", "rich", 1))
	w.hold(move("14", "alice", "bob", 101), time.Hour)
	w.submit(move("15", "alice", "bob", 101))
	w.pass(0)
	w.wait("15")
	w.submit(move("15", "alice", "bob", 101))
	for _, id := range []string{"1", "2", "7", "10", "11"} {
		w.get(id)
		w.cancel(id, "too late")
		w.wait(id)
	}
	w.transfer(move("1", "alice", "bob", 101))
	w.transfer(eur)
}

func malformed(w *world) {
	w.transfer(transfer.Request{})
	w.transfer(move("", "alice", "bob", 1))
	w.transfer(move(strings.Repeat("x", 256), "alice", "bob", 1))
	w.transfer(move("bad \xff", "alice", "bob", 1))
	w.transfer(move("a", "alice", "alice", 1))
	w.transfer(move("a", "alice", "", 1))
	w.transfer(move("a", "alice", "bob", 0))
	w.transfer(move("a", "alice", "bob", -1))
	w.transfer(move("a", "alice", "bob", 1<<48+1))
	both := move("a", "alice", "bob", 1)
	both.Legs = []transfer.Leg{leg("alice", -1), leg("bob", 1)}
	w.transfer(both)
	w.transfer(transfer.Request{ID: "a", Legs: []transfer.Leg{leg("alice", -1), leg("bob", 2)}})
	w.transfer(transfer.Request{ID: "a", Legs: []transfer.Leg{leg("alice", -1), {Account: "dave", Amount: decimal("1.0")}}})
	w.transfer(transfer.Request{ID: "a", Legs: []transfer.Leg{{Ledger: "us", Account: "alice", Amount: units(-1)}, leg("bob", 1)}})
	later := move("a", "alice", "bob", 1)
	later.NotBefore = time.Now()
	w.transfer(later)
	w.hold(later, time.Hour)
	w.hold(move("a", "alice", "bob", 1), 0)
	w.transfer(transfer.Request{ID: "a", From: "alice", To: "bob", Amount: units(1), Metadata: map[string]any{"f": func() {}}})
	w.transfer(transfer.Request{ID: "a", Effects: []transfer.Effect{{Documents: "nothing", ID: 1}}})
	w.transfer(transfer.Request{ID: "a", Effects: []transfer.Effect{{Documents: "orders"}}})
	w.cancel("", "")
	w.post("")
	w.void("")
	w.wait("")
	w.get("")
	w.post("a", nil)
	for _, r := range []transfer.Reversal{
		{}, {ID: "r", Of: "r", All: true}, {ID: "r", Of: "t"},
		{ID: "r", Of: "t", All: true, Amount: units(1)}, {ID: "r", Of: "t", Amount: units(-1)},
	} {
		w.reverse(r)
	}
	w.open(transfer.Account{})
	w.open(transfer.Account{ID: "x", Balance: units(-1)})
	w.open(transfer.Account{ID: "x", Closed: true})
	w.list(transfer.Query{Limit: -1})
	w.list(transfer.Query{Metadata: map[string]any{"$where": 1}})
	w.statement("", "alice", transfer.StatementQuery{Limit: -1})
	w.balanceAt("", "alice", time.Time{})
	_, err := w.verbs.Ledger("us")
	w.note("Ledger us", nil, err)
}

func repeats(w *world) {
	w.transfer(move("t", "alice", "bob", 10))
	w.transfer(move("t", "alice", "bob", 10))
	w.transfer(transfer.Request{ID: "t", Legs: []transfer.Leg{leg("bob", 10), leg("alice", -10)}})
	w.transfer(move("t", "alice", "bob", 11))
	w.transfer(move("t", "alice", "carol", 10))
	eur := move("t", "alice", "bob", 10)
	eur.Currency = "EUR"
	w.transfer(eur)
	w.hold(move("t", "alice", "bob", 10), time.Hour)
	w.submit(move("t", "alice", "bob", 10))
	w.submit(move("t", "alice", "bob", 12))
	most := move("t", "alice", "bob", 10)
	most.AtMost = true
	w.transfer(most)
	ordered := move("t", "alice", "bob", 10)
	ordered.Effects = []transfer.Effect{{Documents: "orders", ID: 1, Set: bson.D{{Key: "a", Value: 1}}}}
	w.transfer(ordered)
	w.reverse(transfer.Reversal{ID: "t", Of: "t2", All: true})
	w.transfer(move("t2", "alice", "bob", 10))
	w.reverse(transfer.Reversal{ID: "t", Of: "t2", All: true})
	w.transfer(move("fails", "alice", "bob", 1000))
	w.transfer(move("fails", "alice", "bob", 1000))
	w.transfer(move("fails", "alice", "bob", 1))
}

func atMost(w *world) {
	for i, n := range []int64{30, 100, 5} {
		most := move(fmt.Sprint("most", i), "alice", "bob", n)
		most.AtMost = true
		w.transfer(most)
		w.transfer(most)
	}
	most := move("most0", "alice", "bob", 31)
	most.AtMost = true
	w.transfer(most)
}

func decimals(w *world) {
	pay := func(id, amount string) transfer.Request {
		return transfer.Request{ID: id, From: "dave", To: "erin", Amount: decimal(amount)}
	}
	w.transfer(pay("a", "0.25"))
	w.transfer(pay("b", "3"))
	w.transfer(pay("c", "3.000"))
	w.transfer(pay("a", "0.250"))
	w.transfer(pay("d", "100.00"))
	w.transfer(pay("e", "0.000000000001"))
	w.transfer(pay("f", "1000000000000000000"))
	w.transfer(move("units", "dave", "erin", 1))
	w.hold(pay("h", "1.10"), time.Hour)
	w.post("h", transfer.PostAmount(decimal("0.4")))
	w.post("h", transfer.PostAmount(decimal("0.40")))
	w.post("h", transfer.PostAmount(decimal("0.5")))
	w.get("h")
	w.reverse(transfer.Reversal{ID: "r", Of: "c", Amount: decimal("1.5")})
	w.reverse(transfer.Reversal{ID: "all", Of: "c", All: true})
	w.get("c")
	w.account("", "dave")
	w.account("", "erin")
}

func in(currency string, l transfer.Leg) transfer.Leg {
	l.Currency = currency
	return l
}

func exchange(w *world) {
	sale := func(id string, eur, usd int64) transfer.Request {
		return transfer.Request{ID: id, Legs: []transfer.Leg{
			in("EUR", leg("euro", -eur)), in("EUR", leg("euro-desk", eur)),
			in("USD", leg("dollar-desk", -usd)), in("USD", leg("dollar", usd)),
		}}
	}
	w.transfer(sale("s", 10, 11))
	w.transfer(sale("s", 10, 12))
	w.transfer(sale("much", 1000, 1100))
	uneven := sale("uneven", 10, 11)
	uneven.Legs[3].Amount = units(10)
	w.transfer(uneven)
	swapped := sale("swapped", 10, 11)
	swapped.Legs[0].Account, swapped.Legs[3].Account = "dollar", "euro"
	w.transfer(swapped)
	w.hold(sale("h", 5, 6), time.Hour)
	w.post("h", transfer.PostAmount(units(3)))
	w.post("h")
	w.reverse(transfer.Reversal{ID: "part", Of: "s", Legs: []transfer.Leg{leg("euro", 4), leg("euro-desk", -4)}})
	w.reverse(transfer.Reversal{ID: "rest", Of: "s", All: true})
	w.reverse(transfer.Reversal{ID: "again", Of: "s", All: true})
	w.get("s")
}

func effects(w *world) {
	w.putDocument(bson.D{{Key: "_id", Value: "order"}, {Key: "state", Value: "open"}, {Key: "items", Value: bson.A{1, 2}}})
	w.putDocument(bson.D{{Key: "_id", Value: int64(5)}, {Key: "n", Value: 1}})
	paid := transfer.Effect{
		Documents: "orders", ID: "order",
		Require: bson.D{{Key: "state", Value: "open"}, {Key: "items", Value: bson.A{1, 2}}},
		Set:     bson.D{{Key: "state", Value: "paid"}, {Key: "by", Value: bson.D{{Key: "name", Value: "alice"}}}},
	}
	req := move("pay", "alice", "bob", 10)
	req.Effects = []transfer.Effect{paid}
	w.transfer(req)
	w.transfer(req)
	w.document("order")
	alone := transfer.Request{ID: "alone", Effects: []transfer.Effect{
		{Documents: "orders", ID: 5, Require: bson.D{{Key: "missing", Value: nil}, {Key: "n", Value: 1.0}}, Set: bson.D{{Key: "n", Value: 2}}},
	}}
	w.transfer(alone)
	w.document(5)
	sent := transfer.Effect{Documents: "orders", ID: "order", Set: bson.D{{Key: "state", Value: "sent"}}}
	hold := transfer.Request{ID: "h", Effects: []transfer.Effect{sent}}
	w.hold(hold, time.Hour)
	w.document("order")
	w.transfer(transfer.Request{ID: "reserved", Effects: []transfer.Effect{sent}})
	w.post("h")
	w.document("order")
	w.reverse(transfer.Reversal{ID: "back", Of: "pay", All: true})
	w.reverse(transfer.Reversal{ID: "nothing", Of: "alone", All: true})
	w.document("order")
}

func effectsRefused(w *world) {
	w.putDocument(bson.D{{Key: "_id", Value: "order"}, {Key: "state", Value: "open"}})
	try := func(id string, effect transfer.Effect) {
		req := move(id, "alice", "bob", 10)
		effect.Documents = "orders"
		req.Effects = []transfer.Effect{effect}
		w.transfer(req)
		w.transfer(req)
		w.get(id)
	}
	try("1", transfer.Effect{ID: "nothing", Set: bson.D{{Key: "a", Value: 1}}})
	try("2", transfer.Effect{ID: "order", Require: bson.D{{Key: "state", Value: "paid"}}})
	try("3", transfer.Effect{ID: "order", Require: bson.D{{Key: "state", Value: "open"}, {Key: "more", Value: true}}})
	try("4", transfer.Effect{ID: "order", Set: bson.D{{Key: "pending", Value: 1}}})
	try("5", transfer.Effect{ID: "order", Set: bson.D{{Key: "a.b", Value: 1}}})
	try("6", transfer.Effect{ID: "order", Set: bson.D{{Key: "_id", Value: 1}}})
	poor := move("7", "carol", "bob", 10)
	poor.Effects = []transfer.Effect{{Documents: "orders", ID: "order", Require: bson.D{{Key: "state", Value: "paid"}}}}
	w.transfer(poor)
	w.document("order")
}

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
	const soon = 200 * time.Millisecond
	w.hold(move("h", "alice", "bob", 60), soon)
	w.extend("h", time.Hour)
	w.extend("h", time.Minute)
	w.extend("h", 0)
	w.pass(soon)
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
	require.Eventually(w.t, func() bool {
		rec, err := w.verbs.Get(w.t.Context(), "t")
		return err == nil && rec.State == transfer.StatePreparing
	}, time.Minute, time.Millisecond)
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
	due := move("due", "alice", "bob", 3)
	due.NotBefore = time.Now().Add(soon)
	w.submit(due)
	w.submit(due)
	w.get("now")
	w.list(transfer.Query{States: []transfer.State{transfer.StateInitiated}})
	w.pass(0)
	w.get("now")
	w.wait("now")
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

func accounts(w *world) {
	w.open(transfer.Account{ID: "alice", Balance: units(100)})
	w.open(transfer.Account{ID: "new", Balance: decimal("1.20"), Floor: decimal("-5"), Currency: "EUR", Metadata: map[string]any{"a": 1}})
	w.account("", "new")
	w.closeAccount("", "alice")
	w.closeAccount("", "nobody")
	w.closeAccount("", "carol")
	w.closeAccount("", "carol")
	w.transfer(move("1", "alice", "carol", 1))
	w.reopen("", "carol")
	w.reopen("", "carol")
	w.reopen("", "nobody")
	w.transfer(move("2", "alice", "carol", 1))
	w.accounts(transfer.AccountQuery{Limit: 3})
	w.accounts(transfer.AccountQuery{Limit: 3, Beyond: "carol"})
	w.accounts(transfer.AccountQuery{Currency: "EUR"})
	w.accounts(transfer.AccountQuery{Ledger: "us"})
	w.accounts(transfer.AccountQuery{Limit: -1})
}

func accountsChange(w *world) {
	yes, no := true, false
	floor, deep, odd := units(50), units(-100), decimal("1.5")
	w.change("", "alice", transfer.AccountChange{Frozen: &yes})
	w.transfer(move("1", "alice", "bob", 1))
	w.change("", "alice", transfer.AccountChange{Frozen: &no, Floor: &floor})
	w.transfer(move("2", "alice", "bob", 51))
	w.transfer(move("3", "alice", "bob", 50))
	w.change("", "alice", transfer.AccountChange{Floor: &deep, Metadata: map[string]any{"vip": true}})
	w.transfer(move("4", "alice", "bob", 150))
	w.change("", "alice", transfer.AccountChange{NoFloor: &yes})
	w.change("", "alice", transfer.AccountChange{NoFloor: &no})
	w.change("", "alice", transfer.AccountChange{NoFloor: &yes, Floor: &floor})
	w.change("", "alice", transfer.AccountChange{Floor: &odd})
	w.change("", "alice", transfer.AccountChange{})
	w.change("", "nobody", transfer.AccountChange{Frozen: &yes})
	w.change("", "closed", transfer.AccountChange{Frozen: &yes})
	w.account("", "alice")
}

func otherLedgers(w *world) {
	w.transfer(transfer.Request{ID: "across", Legs: []transfer.Leg{{Ledger: "eu", Account: "eve", Amount: units(-5)}, leg("alice", 5)}})
	w.transfer(transfer.Request{ID: "much", Legs: []transfer.Leg{{Ledger: "eu", Account: "eve", Amount: units(-5)}, leg("alice", 5)}})
	w.open(transfer.Account{ID: "x", Ledger: "eu"})
	w.account("eu", "eve")
	w.account("eu", "alice")
	w.closeAccount("eu", "eve")
	w.closeAccount("eu", "x")
	w.reopen("eu", "x")
	w.statement("eu", "eve", transfer.StatementQuery{})
	w.list(transfer.Query{Ledger: "eu"})
	w.list(transfer.Query{Ledger: "eu", Account: "eve"})
	w.reverse(transfer.Reversal{ID: "back", Of: "across", All: true})
	w.account("eu", "eve")
}

// tick lets the clock show another millisecond, so that lists have one order.
func (w *world) tick() { w.pass(2 * time.Millisecond) }

func lists(w *world) {
	for i := range 7 {
		req := move(fmt.Sprint("t", i), "alice", "bob", int64(1+40*(i%3)))
		req.Metadata = map[string]any{"order": i % 2, "tags": []string{"a", fmt.Sprint(i)}}
		w.transfer(req)
		w.tick()
	}
	all := w.list(transfer.Query{})
	w.list(transfer.Query{Limit: 3})
	w.list(transfer.Query{Limit: 3, Beyond: "t4"})
	w.list(transfer.Query{Beyond: "t0"})
	w.list(transfer.Query{Beyond: "nothing"})
	w.list(transfer.Query{States: []transfer.State{transfer.StateFail}})
	w.list(transfer.Query{States: []transfer.State{transfer.StateSuccess}, Account: "bob", Limit: 2})
	w.list(transfer.Query{Account: "nobody"})
	w.list(transfer.Query{Metadata: map[string]any{"order": 1.0}})
	w.list(transfer.Query{Metadata: map[string]any{"tags": "3"}})
	w.list(transfer.Query{Metadata: map[string]any{"other": nil}})
	w.list(transfer.Query{Unfinished: true})
	w.list(transfer.Query{Stuck: true})
	w.list(transfer.Query{IdleFor: time.Hour})
	w.list(transfer.Query{After: all[4].CreatedAt, Before: all[1].CreatedAt})
	w.list(transfer.Query{After: all[1].CreatedAt, Before: all[4].CreatedAt})
}

func statements(w *world) {
	for i := range 6 {
		req := move(fmt.Sprint("t", i), "alice", "bob", int64(i+1))
		req.Metadata = map[string]any{"n": i}
		w.transfer(req)
		w.tick()
	}
	w.transfer(move("back", "bob", "alice", 4))
	w.tick()
	all := w.statement("", "alice", transfer.StatementQuery{})
	w.statement("", "alice", transfer.StatementQuery{NewestFirst: true})
	w.statement("", "alice", transfer.StatementQuery{Limit: 2})
	w.statement("", "alice", transfer.StatementQuery{Limit: 2, Beyond: all[1]})
	w.statement("", "alice", transfer.StatementQuery{NewestFirst: true, Limit: 2, Beyond: all[4]})
	w.statement("", "alice", transfer.StatementQuery{After: all[1].At, Before: all[4].At})
	w.statement("", "alice", transfer.StatementQuery{Beyond: transfer.Entry{TransferID: "t1"}})
	w.statement("", "nobody", transfer.StatementQuery{})
	w.statement("", "carol", transfer.StatementQuery{})
	for _, e := range all {
		w.balanceAt("", "alice", e.At)
	}
	w.balanceAt("", "alice", all[0].At.Add(-time.Minute))
	w.balanceAt("", "nobody", all[0].At)
}

func instants(w *world) {
	w.hold(move("h", "alice", "bob", 30), time.Hour)
	w.tick()
	before := w.statement("", "alice", transfer.StatementQuery{})
	require.Empty(w.t, before)
	w.post("h", transfer.PostAmount(units(10)))
	w.tick()
	after := w.statement("", "alice", transfer.StatementQuery{})
	require.Len(w.t, after, 1)
	w.balanceAt("", "alice", after[0].At.Add(-time.Millisecond))
	w.balanceAt("", "alice", after[0].At)
	w.balanceAt("", "alice", after[0].At.Add(time.Hour))
}

func many(w *world) {
	w.transferMany(move("a", "alice", "carol", 10), move("b", "bob", "dave", 10), move("", "bob", "dave", 10),
		move("c", "nobody", "erin", 10), move("d", "world", "lender", 10))
	w.transferMany(move("a", "alice", "carol", 10), move("b", "bob", "carol", 10))
	w.transferMany()
}

func ended(w *world) {
	ctx, cancel := context.WithCancel(w.t.Context())
	cancel()
	rec, err := w.verbs.Transfer(ctx, move("t", "alice", "bob", 1))
	w.note("Transfer", plain(rec), err)
	rec, err = w.verbs.Wait(ctx, "t")
	w.note("Wait", plain(rec), err)
	rec, err = w.verbs.Get(ctx, "t")
	w.note("Get", plain(rec), err)
	account, err := w.verbs.GetAccount(ctx, "alice")
	w.note("GetAccount", account, err)
	later := move("later", "alice", "bob", 1)
	later.NotBefore = time.Now().Add(time.Hour)
	w.submit(later)
	brief, stop := context.WithTimeout(w.t.Context(), 50*time.Millisecond)
	defer stop()
	rec, err = w.verbs.Wait(brief, "later")
	w.note("Wait later", plain(rec), err)
	//nolint:staticcheck // a nil context is refused, and ends nothing
	rec, err = w.verbs.Transfer(nil, move("t", "alice", "bob", 1))
	w.note("Transfer", plain(rec), err)
}

func closed(w *world) {
	w.transfer(move("t", "alice", "bob", 1))
	w.note("Close", nil, w.verbs.Close(w.t.Context()))
	w.note("Close", nil, w.verbs.Close(w.t.Context()))
	w.transfer(move("t", "alice", "bob", 1))
	w.submit(move("t2", "alice", "bob", 1))
	w.hold(move("t3", "alice", "bob", 1), time.Hour)
	w.post("t3")
	w.get("t")
	w.wait("t")
	w.account("", "alice")
	_, err := w.verbs.Recover(w.t.Context())
	w.note("Recover", nil, err)
}
