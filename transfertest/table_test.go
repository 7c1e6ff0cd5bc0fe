package transfertest_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
)

// A fake and a coordinator on a server give the same answers to the same calls: the
// records, the errors with their texts, the accounts, the statements and the lists. Every
// verb that a fake has is among the calls.
func TestFakeAgreesWithAServer(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	done, called := 0, map[string]bool{}
	t.Run("scenarios", func(t *testing.T) {
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
				mu.Lock()
				defer mu.Unlock()
				done++
				for _, e := range server.log {
					verb, _, _ := strings.Cut(e.call, " ")
					called[verb] = true
				}
			})
		}
	})
	if done < len(scenarios()) {
		return // some were not asked for, or have failed
	}
	coordinator := reflect.TypeFor[*transfer.Coordinator]()
	for i := range coordinator.NumMethod() {
		if name := coordinator.Method(i).Name; !slices.Contains(withoutFake(), name) {
			require.True(t, called[name], "the table has no call of %s", name)
		}
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
		"waits for funds":     waitsForFunds,
		"explained":           explained,
		"recovered":           recovered,
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
