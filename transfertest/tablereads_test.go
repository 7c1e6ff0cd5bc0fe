package transfertest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
)

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
	w.unordered = true
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
	brief, stop := context.WithTimeout(w.t.Context(), 2*time.Second)
	defer stop()
	rec, err = w.verbs.Wait(brief, "later")
	w.note("Wait later", plain(rec), err)
	var none context.Context // it is refused, and ends nothing
	rec, err = w.verbs.Transfer(none, move("t", "alice", "bob", 1))
	w.note("Transfer", plain(rec), err)
}

func closed(w *world) {
	w.transfer(move("t", "alice", "bob", 1))
	w.note("Redeliver", nil, w.verbs.Redeliver(w.t.Context(), "nothing"))
	w.note("Healthy", nil, w.verbs.Healthy(w.t.Context()))
	w.note("Close", nil, w.verbs.Close(w.t.Context()))
	w.note("Healthy", nil, w.verbs.Healthy(w.t.Context()))
	w.note("Close", nil, w.verbs.Close(w.t.Context()))
	w.transfer(move("t", "alice", "bob", 1))
	w.submit(move("t2", "alice", "bob", 1))
	w.hold(move("t3", "alice", "bob", 1), time.Hour)
	w.post("t3")
	w.get("t")
	w.wait("t")
	w.account("", "alice")
	w.recover()
}
