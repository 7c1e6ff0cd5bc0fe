package transfertest_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
)

// The same random calls, one after another, have the same answers from a fake and from a
// coordinator on a server. FAKE_SEED repeats a run.
func TestFakeAgreesOnRandomCalls(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	if text := os.Getenv("FAKE_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	calls := 150
	if testing.Short() {
		calls = 50
	}
	t.Logf("FAKE_SEED=%d", seed)
	server, memory := onServer(t), inMemory(t)
	for _, w := range []*world{server, memory} {
		w.openBank()
		for order := range 3 {
			w.putDocument(bson.D{{Key: "_id", Value: order}, {Key: "state", Value: "open"}})
		}
	}
	drawn := rand.New(rand.NewPCG(seed, 1))
	for n := range calls {
		call := drawCall(drawn)
		call(server)
		call(memory)
		last := len(server.log) - 1
		require.Len(t, memory.log, len(server.log))
		require.Equal(t, server.log[last], memory.log[last], "FAKE_SEED=%d, call %d: %s", seed, n, server.log[last].call)
	}
	for _, w := range []*world{server, memory} {
		w.noteBank()
		for order := range 3 {
			w.document(order)
		}
	}
	requireAgreement(t, server, memory)
}

// drawCall draws a call. IDs and accounts are few, so that calls meet. A worker never has
// two things to do at once: which of them comes first would decide who has the money.
func drawCall(r *rand.Rand) func(w *world) {
	id, other := drawID(r), drawID(r)
	req := drawRequest(r, id)
	switch r.IntN(20) {
	case 0, 1, 2, 3:
		return func(w *world) { w.transfer(req) }
	case 4:
		return func(w *world) { w.hold(req, time.Hour) }
	case 5:
		expiresIn := time.Duration(1+r.IntN(3)) * time.Hour
		return func(w *world) { w.extend(id, expiresIn) }
	case 6:
		return func(w *world) { w.pass(0); w.hold(req, time.Millisecond); w.pass(5 * time.Millisecond); w.get(id) }
	case 7, 8:
		return func(w *world) { w.post(id) }
	case 9:
		part := transfer.PostAmount(units(1 + r.Int64N(20)))
		return func(w *world) { w.post(id, part) }
	case 10:
		return func(w *world) { w.void(id) }
	case 11:
		return func(w *world) { w.cancel(id, other) }
	case 12:
		return func(w *world) { w.pass(0); w.submit(req) }
	case 13:
		return func(w *world) { w.pass(0); w.get(id) }
	case 14, 15, 16:
		back := drawReversal(r, id, other)
		return func(w *world) { w.reverse(back) }
	case 17:
		return drawChange(r)
	case 18:
		account := drawAccount(r)
		return func(w *world) { w.account("", account); w.statement("", account, transfer.StatementQuery{}) }
	}
	return func(w *world) { w.get(id) }
}

func drawID(r *rand.Rand) string { return fmt.Sprint("t", r.IntN(60)) }

func drawAccount(r *rand.Rand) string {
	all := []string{
		"alice", "alice", "bob", "bob", "carol", "lender", "world", "euro", "euro-desk", "dave", "erin", "frozen", "closed", "nobody",
	}
	return all[r.IntN(len(all))]
}

func drawRequest(r *rand.Rand, id string) transfer.Request {
	amount := units(1 + r.Int64N(40))
	req := transfer.Request{ID: id, From: drawAccount(r), To: drawAccount(r), Amount: amount}
	switch r.IntN(8) {
	case 0:
		req = transfer.Request{ID: id, Legs: []transfer.Leg{
			{Account: "alice", Amount: amount.Neg()}, {Account: "bob", Amount: amount},
			{Ledger: "eu", Account: "eve", Amount: units(-1)}, {Account: drawAccount(r), Amount: units(1)},
		}}
	case 1:
		req.From, req.To, req.Amount = "dave", "erin", decimal(fmt.Sprintf("%d.%02d", r.IntN(4), r.IntN(100)))
	case 2:
		req.From, req.To, req.Currency = "euro", "euro-desk", "EUR"
	case 3:
		req.AtMost = true
	case 4:
		states := []string{"open", "paid", "sent"}
		req.Effects = []transfer.Effect{{
			Documents: "orders", ID: r.IntN(4),
			Require: bson.D{{Key: "state", Value: states[r.IntN(3)]}}, Set: bson.D{{Key: "state", Value: states[r.IntN(3)]}},
		}}
	}
	return req
}

func drawReversal(r *rand.Rand, id, of string) transfer.Reversal {
	back := transfer.Reversal{ID: id, Of: of}
	switch r.IntN(3) {
	case 0:
		back.All = true
	case 1:
		back.Amount = units(1 + r.Int64N(20))
	default:
		n := 1 + r.Int64N(10)
		back.Legs = []transfer.Leg{leg("bob", -n), leg("alice", n)}
	}
	return back
}

func drawChange(r *rand.Rand) func(w *world) {
	account, floor, flag := drawAccount(r), units(r.Int64N(60)-30), r.IntN(2) == 0
	switch r.IntN(4) {
	case 0:
		return func(w *world) { w.change("", account, transfer.AccountChange{Floor: &floor}) }
	case 1:
		return func(w *world) { w.change("", account, transfer.AccountChange{Frozen: &flag}) }
	case 2:
		return func(w *world) { w.closeAccount("", account) }
	}
	return func(w *world) { w.reopen("", account) }
}
