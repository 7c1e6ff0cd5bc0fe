package patterns

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

// A message of the bank that comes twice counts once, and a wallet spends what it has
// and no more, whoever races.
func TestWallets(t *testing.T) {
	t.Parallel()
	b := newBank(t, []transfer.Account{outside("bank", "EUR"), account("shop", 0)})
	ctx := t.Context()
	for range 2 {
		require.NoError(t, openWallet(ctx, b.Coordinator, "ann"))
		require.NoError(t, topUp(ctx, b.Coordinator, "sepa-4711", "ann", 10_000))
	}
	var (
		racers sync.WaitGroup
		paid   [3]bool
		errs   [3]error
	)
	for i, id := range []string{"order-1", "order-2", "order-3"} {
		racers.Go(func() { paid[i], errs[i] = spend(ctx, b.Coordinator, id, "ann", "shop", 6_000) })
	}
	racers.Wait()
	require.NoError(t, errors.Join(errs[:]...))
	assert.ElementsMatch(t, []bool{true, false, false}, paid[:])
	_, err := spend(ctx, b.Coordinator, "order-1", "ann", "shop", 5_000)
	require.ErrorIs(t, err, transfer.ErrIDConflict)
	b.checkBooks(map[string]int64{"bank": -10_000, "wallet:ann": 4_000, "shop": 6_000})
}

// The money of a deal goes to the seller or back to the buyer, never to both, and a deal
// is funded once. The money of other deals stays where it is.
func TestEscrow(t *testing.T) {
	t.Parallel()
	db := mongotest.Database(t)
	deals := db.Collection("deals")
	b := openBank(t, db, []transfer.Account{
		{ID: "ann", Balance: transfer.Units(500)}, {ID: "bob"}, {ID: "escrow", Balance: transfer.Units(9_000)},
	}, transfer.WithDocuments("deals", deals))
	ctx := t.Context()
	d := deal{ID: "deal-7", Buyer: "ann", Seller: "bob", Price: 200, State: "agreed"}
	_, err := deals.InsertOne(ctx, d)
	require.NoError(t, err)
	e := escrow{b.Coordinator}
	require.ErrorIs(t, e.payOut(ctx, "early", d), transfer.ErrRequirementFailed)
	require.NoError(t, e.fund(ctx, "fund-1", d))
	require.ErrorIs(t, e.fund(ctx, "fund-2", d), transfer.ErrRequirementFailed)

	var racers sync.WaitGroup
	var paid, returned error
	racers.Go(func() { paid = e.payOut(ctx, "pay-1", d) })
	racers.Go(func() { returned = e.giveBack(ctx, "return-1", d) })
	racers.Wait()
	require.NotEqual(t, paid == nil, returned == nil, "one of the two: %v, %v", paid, returned)
	require.ErrorIs(t, errors.Join(paid, returned), transfer.ErrRequirementFailed)
	want := map[string]int64{"ann": 300, "bob": 200, "escrow": 9_000}
	state := "paid"
	if returned == nil {
		want, state = map[string]int64{"ann": 500, "bob": 0, "escrow": 9_000}, "returned"
	}
	b.checkBooks(want)
	require.NoError(t, deals.FindOne(ctx, bson.D{{Key: "_id", Value: d.ID}}).Decode(&d))
	assert.Equal(t, state, d.State)
}

// Refunds give back a payment and no more, and a shop that has spent the money gives
// back nothing.
func TestRefunds(t *testing.T) {
	t.Parallel()
	b := newBank(t, []transfer.Account{account("ann", 100), account("bob", 9), account("shop", 0), account("supplier", 0)})
	ctx := t.Context()
	move := func(id, from, to string, cents int64) {
		_, err := b.Transfer(ctx, transfer.Request{ID: id, From: from, To: to, Amount: transfer.Units(cents), Currency: "EUR"})
		require.NoError(t, err)
	}
	move("payment-1", "ann", "shop", 60)
	require.NoError(t, refund(ctx, b.Coordinator, "refund-1", "payment-1", 25))
	require.NoError(t, refund(ctx, b.Coordinator, "refund-1", "payment-1", 25), "the same refund again")
	require.ErrorIs(t, refund(ctx, b.Coordinator, "refund-2", "payment-1", 40), transfer.ErrReversalExceeds)
	move("restocking", "shop", "supplier", 30)
	require.ErrorIs(t, refund(ctx, b.Coordinator, "refund-3", "payment-1", 35), transfer.ErrInsufficientFunds)
	move("return", "supplier", "shop", 30)
	require.NoError(t, refund(ctx, b.Coordinator, "refund-4", "payment-1", 35))
	move("payment-2", "bob", "shop", 9)
	require.ErrorIs(t, refund(ctx, b.Coordinator, "refund-5", "payment-1", 1), transfer.ErrAlreadyReversed, "of another's money")
	require.NoError(t, refund(ctx, b.Coordinator, "refund-5", "payment-2", 4), "the ID was left free")
	b.checkBooks(map[string]int64{"ann": 100, "bob": 4, "shop": 5, "supplier": 0})
}

// Points come with the payment or not at all, and those of a past year go, however
// often the job runs, and those of this year stay.
func TestPoints(t *testing.T) {
	t.Parallel()
	b := newBank(t, []transfer.Account{
		account("wallet:ann", 10_000), account("shop", 0), outside("points:issued", "PTS"),
		{ID: "points:2025:ann", Currency: "PTS"}, {ID: "points:2026:ann", Currency: "PTS"},
		account("wallet:bob", 500), {ID: "points:2025:bob", Currency: "PTS"},
	})
	ctx := t.Context()
	require.NoError(t, buy(ctx, b.Coordinator, "order-1", "ann", 2025, 2_550))
	require.NoError(t, buy(ctx, b.Coordinator, "order-2", "ann", 2026, 1_000))
	require.NoError(t, buy(ctx, b.Coordinator, "order-3", "ann", 2026, 99), "not a point")
	require.NoError(t, buy(ctx, b.Coordinator, "order-5", "bob", 2025, 500))
	require.ErrorIs(t, buy(ctx, b.Coordinator, "order-4", "ann", 2026, 9_900), transfer.ErrInsufficientFunds)
	for range 2 {
		require.NoError(t, expirePoints(ctx, b.Coordinator, "ann", 2025))
	}
	b.checkBooks(map[string]int64{
		"wallet:ann": 6_351, "shop": 4_149, "points:issued": -15, "points:2025:ann": 0, "points:2026:ann": 10,
		"wallet:bob": 0, "points:2025:bob": 5,
	})
}

// Points that are being spent while they expire are tried again, and where there are
// none the job ends.
func TestPointsThatAreHeld(t *testing.T) {
	t.Parallel()
	b := newBank(t, []transfer.Account{
		outside("points:issued", "PTS"), {ID: "points:2024:ann", Currency: "PTS"},
		{ID: "points:2025:bob", Currency: "PTS", Balance: transfer.Units(5)}, {ID: "shop", Currency: "PTS"},
	})
	ctx := t.Context()
	require.NoError(t, expirePoints(ctx, b.Coordinator, "ann", 2024))
	spent := transfer.Request{ID: "spent", From: "points:2025:bob", To: "shop", Amount: transfer.Units(5), Currency: "PTS"}
	_, err := b.Hold(ctx, spent, time.Hour)
	require.NoError(t, err)
	require.NoError(t, expirePoints(ctx, b.Coordinator, "bob", 2025))
	_, err = b.Void(ctx, "spent")
	require.NoError(t, err)
	require.NoError(t, expirePoints(ctx, b.Coordinator, "bob", 2025))
	b.checkBooks(map[string]int64{"points:issued": 5, "points:2024:ann": 0, "points:2025:bob": 0, "shop": 0})
}

// Points that come back after the job has taken all expire as well.
// What the floor keeps stays, and the job ends.
func TestPointsThatComeBack(t *testing.T) {
	t.Parallel()
	b := newBank(t, []transfer.Account{
		outside("points:issued", "PTS"), {ID: "shop", Currency: "PTS"},
		{ID: "points:2024:ann", Currency: "PTS", Balance: transfer.Units(9), Floor: transfer.Units(2)},
	})
	ctx := t.Context()
	_, err := b.Transfer(ctx, transfer.Request{
		ID: "spent", From: "points:2024:ann", To: "shop", Amount: transfer.Units(4), Currency: "PTS",
	})
	require.NoError(t, err)
	require.NoError(t, expirePoints(ctx, b.Coordinator, "ann", 2024))
	_, err = b.Reverse(ctx, transfer.Reversal{ID: "returned", Of: "spent", All: true})
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, expirePoints(ctx, b.Coordinator, "ann", 2024))
	}
	b.checkBooks(map[string]int64{"points:issued": 7, "points:2024:ann": 2, "shop": 0})
}

// The last lamp is reserved once. A basket is reserved as a whole, or not at all, and
// nobody pays for what is not there.
func TestStock(t *testing.T) {
	t.Parallel()
	b := newBank(t, []transfer.Account{
		{ID: "stock:lamp", Balance: transfer.Units(3), Currency: "lamp"}, {ID: "shipped:lamp", Currency: "lamp"},
		{ID: "stock:sofa", Balance: transfer.Units(1), Currency: "sofa"}, {ID: "shipped:sofa", Currency: "sofa"},
		account("ann", 1_000), account("shop", 0),
	})
	ctx := t.Context()
	require.NoError(t, reserve(ctx, b.Coordinator, "basket-1", map[string]int64{"lamp": 2, "sofa": 1}))
	require.ErrorIs(t, reserve(ctx, b.Coordinator, "basket-2", map[string]int64{"lamp": 1, "sofa": 1}),
		transfer.ErrInsufficientFunds)
	require.ErrorIs(t, sell(ctx, b.Coordinator, "sale-1", "ann", "lamp", 2, 100), transfer.ErrInsufficientFunds)
	require.NoError(t, sell(ctx, b.Coordinator, "sale-2", "ann", "lamp", 1, 60))
	_, err := b.Post(ctx, "basket-1")
	require.NoError(t, err)
	b.checkBooks(map[string]int64{
		"stock:lamp": 0, "shipped:lamp": 3, "stock:sofa": 0, "shipped:sofa": 1, "ann": 940, "shop": 60,
	})
}

// Fee and rest are what the buyer pays, to the cent.
func TestSplit(t *testing.T) {
	t.Parallel()
	b := newBank(t, []transfer.Account{account("ann", 100_000), account("bob", 0), account("fees", 0)})
	for id, cents := range map[string]int64{"order-1": 1, "order-2": 17, "order-3": 18, "order-4": 99_901} {
		require.NoError(t, paySeller(t.Context(), b.Coordinator, id, "ann", "bob", cents))
	}
	b.checkBooks(map[string]int64{"ann": 63, "bob": 97_039, "fees": 2_898})
}

// An exchange happens in both currencies or in none.
func TestExchange(t *testing.T) {
	t.Parallel()
	usd := func(id string, cents int64) transfer.Account {
		return transfer.Account{ID: id, Balance: transfer.Units(cents), Currency: "USD"}
	}
	b := newBank(t, []transfer.Account{account("ann:EUR", 10_000), usd("ann:USD", 0), account("dealer:EUR", 0), usd("dealer:USD", 10_000)})
	ctx := t.Context()
	first := quote{ID: "quote-1", Customer: "ann", Pays: 8_000, Gets: 9_288}
	require.NoError(t, exchange(ctx, b.Coordinator, first))
	require.NoError(t, exchange(ctx, b.Coordinator, first), "the same quote again")
	second := quote{ID: "quote-2", Customer: "ann", Pays: 1_000, Gets: 1_161}
	require.ErrorIs(t, exchange(ctx, b.Coordinator, second), transfer.ErrInsufficientFunds, "the dealer has too few dollars")
	b.checkBooks(map[string]int64{"ann:EUR": 2_000, "ann:USD": 9_288, "dealer:EUR": 8_000, "dealer:USD": 712})
}

// Whatever the bank answers, and whoever asks again, what it has paid leaves the wallet
// once, and what it has not paid goes back.
func TestPayout(t *testing.T) {
	t.Parallel()
	b := newBank(t, []transfer.Account{account("ann", 1_000), account("bob", 100), outside("bank", "EUR")})
	ctx := t.Context()
	verdicts := map[string]bool{"out-1": true, "out-2": false, "out-3": true}
	away := true
	pay := func(_ context.Context, rec transfer.Record) (bool, error) {
		if away && rec.ID == "out-3" {
			return false, errors.New("the bank doesn't answer")
		}
		return verdicts[rec.ID], nil
	}
	require.NoError(t, withdraw(ctx, b.Coordinator, pay, "out-1", "ann", 300))
	require.NoError(t, withdraw(ctx, b.Coordinator, pay, "out-1", "ann", 300), "asked again")
	require.ErrorIs(t, withdraw(ctx, b.Coordinator, pay, "out-2", "ann", 300), transfer.ErrCancelled, "the bank has not paid")
	require.ErrorIs(t, withdraw(ctx, b.Coordinator, pay, "out-2", "ann", 300), transfer.ErrCancelled, "asked again")
	require.ErrorContains(t, withdraw(ctx, b.Coordinator, pay, "out-3", "ann", 500), "doesn't answer")
	require.ErrorIs(t, withdraw(ctx, b.Coordinator, pay, "out-4", "ann", 300), transfer.ErrInsufficientFunds, "500 are held")
	require.ErrorIs(t, withdraw(ctx, b.Coordinator, pay, "out-5", "bob", 300), transfer.ErrInsufficientFunds)
	require.ErrorContains(t, resume(ctx, b.Coordinator, pay), "doesn't answer")
	away = false
	for range 2 {
		require.NoError(t, resume(ctx, b.Coordinator, pay))
	}
	b.checkBooks(map[string]int64{"ann": 200, "bob": 100, "bank": 800})
}

// A receipt is due for each order that was paid, and for no other, and is sent until
// that has succeeded.
func TestOutbox(t *testing.T) {
	t.Parallel()
	db := mongotest.Database(t)
	orders := db.Collection("orders")
	b := openBank(t, db, []transfer.Account{{ID: "ann", Balance: transfer.Units(100)}, {ID: "shop"}},
		transfer.WithDocuments("orders", orders))
	ctx := t.Context()
	_, err := orders.InsertMany(ctx, []bson.D{
		{{Key: "_id", Value: "order-1"}, {Key: "status", Value: "UnPaid"}},
		{{Key: "_id", Value: "order-2"}, {Key: "status", Value: "UnPaid"}},
	})
	require.NoError(t, err)
	require.NoError(t, payOrder(ctx, b.Coordinator, "payment-1", "order-1", "ann", 60))
	require.ErrorIs(t, payOrder(ctx, b.Coordinator, "payment-2", "order-2", "ann", 60), transfer.ErrInsufficientFunds)

	var sent []string
	fails := true
	send := func(order string) error {
		if fails {
			return errors.New("no connection")
		}
		sent = append(sent, order)
		return nil
	}
	require.Error(t, sendReceipts(ctx, orders, send))
	fails = false
	for range 2 {
		require.NoError(t, sendReceipts(ctx, orders, send))
	}
	assert.Equal(t, []string{"order-1"}, sent)
	b.checkBooks(map[string]int64{"ann": 40, "shop": 60})
	require.ErrorIs(t, orders.FindOne(ctx, bson.D{{Key: "pending", Value: bson.D{{Key: "$gt", Value: bson.D{}}}}}).Err(),
		mongo.ErrNoDocuments, "an order is still reserved")
}
