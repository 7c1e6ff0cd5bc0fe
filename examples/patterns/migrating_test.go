package patterns

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

// Transactions of MongoDB's own and transfers work on the same accounts at once. Each
// order is paid once, by either way, no matter how often it is asked for, and no account
// is overdrawn. Afterwards the old way works alone, as it did before.
func TestNativeAndTransfersSideBySide(t *testing.T) {
	t.Parallel()
	db := mongotest.Database(t)
	ctx := t.Context()
	var documents []bson.D
	for _, id := range []string{"ann", "bob", "shop"} {
		documents = append(documents, bson.D{{Key: "_id", Value: id}, {Key: "balance", Value: int64(100)}, {Key: "email", Value: id}})
	}
	_, err := db.Collection("accounts").InsertMany(ctx, documents)
	require.NoError(t, err)
	b := openBank(t, db, nil)
	b.sums[""] = 300

	var orders []paidOrder
	for i := range 12 {
		o := paidOrder{ID: fmt.Sprint("order-", i), Buyer: []string{"ann", "bob"}[i%2], Price: 20}
		if i%4 > 1 {
			o.Through = "transfer"
		}
		orders = append(orders, o)
	}
	paid := payAll(ctx, b, append(orders, orders...)) // each of them twice, and all at once
	require.Equal(t, paid[:len(orders)], paid[len(orders):], "the second call has the first one's outcome")
	each := map[string]int{}
	for i, done := range paid[:len(orders)] {
		if done {
			each[orders[i].Buyer]++
		}
	}
	assert.Equal(t, map[string]int{"ann": 5, "bob": 5}, each, "each of them had enough for five orders of six")
	b.checkBooks(map[string]int64{"ann": 0, "bob": 0, "shop": 300})

	require.NoError(t, payNatively(ctx, db, "back", "shop", "ann", 50))
	openBank(t, db, nil).expecting(300).checkBooks(map[string]int64{"ann": 50, "bob": 0, "shop": 250})
	var ann bson.M
	require.NoError(t, db.Collection("accounts").FindOne(ctx, bson.D{{Key: "_id", Value: "ann"}}).Decode(&ann))
	assert.Equal(t, "ann", ann["email"], "other fields stay")
}

// expecting sets what all accounts began with.
func (b *bank) expecting(units int64) *bank {
	b.sums[""] = units
	return b
}

// payAll pays all orders at once, and returns which are paid.
func payAll(ctx context.Context, b *bank, orders []paidOrder) []bool {
	b.t.Helper()
	var callers sync.WaitGroup
	errs := make([]error, len(orders))
	for i, o := range orders {
		callers.Go(func() { errs[i] = payEither(ctx, b.db, b.Coordinator, o) })
	}
	callers.Wait()
	paid := make([]bool, len(orders))
	for i, err := range errs {
		paid[i] = err == nil
		if !errors.Is(err, transfer.ErrInsufficientFunds) && !errors.Is(err, errNoSuchAccount) {
			require.NoError(b.t, err, orders[i].ID)
		}
	}
	return paid
}

// oldBooks stores accounts and transactions as the tutorial leaves them, with numbers as
// its shell stores them. A and B had 1,000 each before. Each transaction moves another
// power of two, so that the balances show which of them have happened.
func oldBooks(t *testing.T, db *mongo.Database) {
	t.Helper()
	var rows []bson.D
	for _, row := range []struct {
		id, state string
		value     float64
	}{
		{"nothing", "initial", 1}, {"neither", "pending", 2}, {"debited", "pending", 4}, {"both", "pending", 8},
		{"marked", "committed", 16}, {"halfMarked", "applied", 32},
		{"undoing", "canceling", 64}, {"halfUndone", "canceling", 128},
		{"over", "done", 256}, {"undone", "canceled", 512}, {"newlyUndone", "cancelled", 1024},
	} {
		rows = append(rows, bson.D{
			{Key: "_id", Value: row.id}, {Key: "source", Value: "A"}, {Key: "destination", Value: "B"},
			{Key: "value", Value: row.value}, {Key: "state", Value: row.state},
		})
	}
	_, err := db.Collection("transactions").InsertMany(t.Context(), rows)
	require.NoError(t, err)
	account := func(id string, balance float64, marks ...string) bson.D {
		return bson.D{{Key: "_id", Value: id}, {Key: "balance", Value: balance}, {Key: "pendingTransactions", Value: marks}}
	}
	_, err = db.Collection("accounts").InsertMany(t.Context(), []bson.D{
		account("A", 1000-4-8-16-32-64-128-256, "debited", "both", "marked", "halfMarked", "undoing", "halfUndone"),
		account("B", 1000+8+16+32+64+256, "both", "marked", "undoing"),
	})
	require.NoError(t, err)
}

// Every transaction of the tutorial comes to its end, from each state and half-done step
// that it may be in, and the library goes on with the same money.
func TestTutorialIsTakenOver(t *testing.T) {
	t.Parallel()
	db := mongotest.Database(t)
	ctx := t.Context()
	oldBooks(t, db)
	for c, field := range map[string]string{"accounts": "balance", "transactions": "value"} {
		left, err := makeWhole(ctx, db.Collection(c), field)
		require.NoError(t, err)
		require.Zero(t, left)
	}
	for range 2 {
		require.NoError(t, finishOld(ctx, db))
	}
	marked := bson.D{{Key: "pendingTransactions", Value: bson.D{{Key: "$ne", Value: bson.A{}}}}}
	require.ErrorIs(t, db.Collection("accounts").FindOne(ctx, marked).Err(), mongo.ErrNoDocuments)
	states, err := db.Collection("transactions").Distinct(ctx, "state", bson.D{}).Raw()
	require.NoError(t, err)
	require.NotContains(t, states.String(), "ing", "a transaction is left unfinished")

	b := openBank(t, db, nil).expecting(2_000)
	initial := transfer.Request{ID: "old:nothing", From: "A", To: "B", Amount: transfer.Units(1)}
	_, err = b.Transfer(ctx, initial)
	require.NoError(t, err)
	const moved = 1 + 2 + 4 + 8 + 16 + 32 + 256
	b.checkBooks(map[string]int64{"A": 1_000 - moved, "B": 1_000 + moved})
}

// What has a fraction, and what is no number, is counted and left as it is. So is a
// transaction whose account is gone.
func TestTutorialIsLeftAlone(t *testing.T) {
	t.Parallel()
	db := mongotest.Database(t)
	ctx := t.Context()
	accounts := db.Collection("accounts")
	decimal, err := bson.ParseDecimal128("3.50")
	require.NoError(t, err)
	for id, balance := range map[string]any{
		"A": 12.5, "B": 1e20, "C": "12", "D": 12.0, "E": int32(12), "F": math.NaN(), "G": bson.A{int32(1)}, "H": decimal,
		"I": bson.A{int64(1), int64(2)},
	} {
		_, err := accounts.InsertOne(ctx, bson.D{{Key: "_id", Value: id}, {Key: "balance", Value: balance}})
		require.NoError(t, err)
	}
	left, err := makeWhole(ctx, accounts, "balance")
	require.NoError(t, err)
	assert.EqualValues(t, 6, left, "the arrays, and not the decimal")
	rows, err := accounts.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$ne", Value: "F"}}}},
		options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	require.NoError(t, err)
	var found []struct{ Balance any }
	require.NoError(t, rows.All(ctx, &found))
	assert.Equal(t, []struct{ Balance any }{
		{12.5}, {1e20}, {"12"}, {int64(12)}, {int32(12)}, {bson.A{int32(1)}}, {decimal}, {bson.A{int64(1), int64(2)}},
	}, found)

	_, err = db.Collection("transactions").InsertOne(ctx, bson.D{
		{Key: "_id", Value: 1}, {Key: "source", Value: "gone"}, {Key: "destination", Value: "D"},
		{Key: "value", Value: int64(5)}, {Key: "state", Value: "pending"},
	})
	require.NoError(t, err)
	require.ErrorContains(t, finishOld(ctx, db), "there is no account gone")
	var d bson.M
	require.NoError(t, accounts.FindOne(ctx, bson.D{{Key: "_id", Value: "D"}}).Decode(&d))
	assert.EqualValues(t, 12, d["balance"], "nothing is paid that nobody has paid for")
}

// Euros that are doubles become cents in a field of their own, however often that is
// tried, and the library goes on with these.
func TestEurosBecomeCents(t *testing.T) {
	t.Parallel()
	db := mongotest.Database(t)
	ctx := t.Context()
	decimal, err := bson.ParseDecimal128("3.50")
	require.NoError(t, err)
	euros := map[string]any{
		"ann": 12.50, "bob": 1.15, "sum": 0.1 + 0.2, "debt": -3.20, "int": int32(7), "decimal": decimal, "rich": 9_999_999_999.99,
	}
	odd := map[string]any{"fraction": 12.505, "nan": math.NaN(), "text": "12", "array": bson.A{12.5}, "large": 1e11, "none": nil}
	accounts := db.Collection("accounts")
	add := func(account ...bson.E) {
		_, err := accounts.InsertOne(ctx, bson.D(account))
		require.NoError(t, err)
	}
	for _, group := range []map[string]any{odd, euros} {
		for id, balance := range group {
			add(bson.E{Key: "_id", Value: id}, bson.E{Key: "balance", Value: balance}, bson.E{Key: "floor", Value: bson.MinKey{}})
		}
	}
	add(bson.E{Key: "_id", Value: "before"}, bson.E{Key: "balance", Value: 1.0}, bson.E{Key: "cents", Value: int64(2)})
	for range 2 {
		left, err := addCents(ctx, accounts)
		require.NoError(t, err)
		require.EqualValues(t, len(odd), left)
	}
	_, err = accounts.DeleteMany(ctx, bson.D{{Key: "cents", Value: bson.D{{Key: "$exists", Value: false}}}})
	require.NoError(t, err)
	_, err = accounts.UpdateMany(ctx, bson.D{}, bson.D{{Key: "$rename", Value: bson.D{{Key: "balance", Value: "eurosBefore"}}}})
	require.NoError(t, err)

	want := map[string]int64{
		"ann": 1250, "bob": 115, "sum": 30, "debt": -320, "int": 700, "decimal": 350, "rich": 999_999_999_999, "before": 2,
	}
	b := openBank(t, db, nil, transfer.WithFields(transfer.Fields{Balance: "cents"}))
	for _, cents := range want {
		b.sums[""] += cents
	}
	_, err = b.Transfer(ctx, transfer.Request{ID: "order-1", From: "ann", To: "bob", Amount: transfer.Units(1250)})
	require.NoError(t, err)
	want["ann"], want["bob"] = 0, 1365
	b.checkBooks(want)
}

// The accounts of the house, which the users' collection refuses, are in a ledger of
// their own.
func TestAccountsOfTheHouse(t *testing.T) {
	t.Parallel()
	db := mongotest.Database(t)
	ctx := t.Context()
	validator := bson.D{{Key: "email", Value: bson.D{{Key: "$exists", Value: true}}}}
	require.NoError(t, db.CreateCollection(ctx, "accounts", options.CreateCollection().SetValidator(validator)))
	ann, fees := bson.NewObjectID(), bson.NewObjectID().Hex()
	_, err := db.Collection("accounts").InsertOne(ctx, bson.D{
		{Key: "_id", Value: ann}, {Key: "balance", Value: int64(100)}, {Key: "email", Value: "ann@example.org"},
	})
	require.NoError(t, err)
	b := openBank(t, db, nil, transfer.WithAccountIDs(transfer.ObjectIDs), transfer.WithLedger("house", db.Collection("house")))
	b.sums[""] = 100

	_, err = b.OpenAccount(ctx, transfer.Account{ID: fees})
	require.ErrorIs(t, err, transfer.ErrUnwritable)
	house, err := b.Ledger("house")
	require.NoError(t, err)
	_, err = house.Open(ctx, transfer.Account{ID: "fees"})
	require.ErrorIs(t, err, transfer.ErrInvalidRequest, "its accounts have ObjectIDs, too")
	_, err = house.Open(ctx, transfer.Account{ID: fees})
	require.NoError(t, err)
	_, err = b.Transfer(ctx, transfer.Request{ID: "fee-1", Legs: []transfer.Leg{
		{Account: ann.Hex(), Amount: transfer.Units(-30)}, {Ledger: "house", Account: fees, Amount: transfer.Units(30)},
	}})
	require.NoError(t, err)
	paid, err := house.Get(ctx, fees)
	require.NoError(t, err)
	require.Equal(t, transfer.Units(30), paid.Balance)
	b.checkBooks(map[string]int64{ann.Hex(): 70})
}
