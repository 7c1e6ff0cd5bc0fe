package verbs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// An order becomes paid by the same transfer as its payment.
// It stays unpaid if the payment is refused.
func TestEffect(t *testing.T) {
	t.Parallel()
	b := bank.NewShop(t, 100, 0)
	rec, err := b.Transfer(t.Context(), bank.Payment("p-1", "o-1", 60))
	require.NoError(t, err)
	require.Equal(t, bank.Payment("p-1", "o-1", 60).Effects, rec.Effects)
	b.RequireOrder("o-1", "paid", false)

	_, err = b.Transfer(t.Context(), bank.Payment("p-2", "o-2", 60))
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	b.RequireOrder("o-2", "unpaid", false)

	_, err = b.Transfer(t.Context(), bank.Payment("p-3", "o-1", 10))
	require.ErrorIs(t, err, transfer.ErrRequirementFailed)
	var refused *transfer.RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, [2]string{"orders", "o-1"}, [2]string{refused.Ledger, refused.Account})

	_, err = b.Transfer(t.Context(), bank.Payment("p-4", "no such order", 10))
	require.ErrorIs(t, err, transfer.ErrRequirementFailed)
	_, err = b.Transfer(t.Context(), bank.Payment("p-5", "o-1", 1000))
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds, "it is told before what the order refuses")
	b.CheckBooks(bank.Balances(100, 0))
}

// Of many payments of one order by several processes, one wins.
// The others are refused and leave no trace.
func TestOnePaymentWins(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		balance int64
		refused []error
	}{
		"with money for all": {1000, []error{transfer.ErrRequirementFailed}},
		"with money for one": {10, []error{transfer.ErrRequirementFailed, transfer.ErrInsufficientFunds}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 5 {
				b := bank.NewShop(t, row.balance, 0)
				paid, refused := race(b, b.Processes(4, bank.Orders(b.DB)...), func(i int) transfer.Request {
					return bank.Payment(fmt.Sprint("p-", i), "o-1", 10)
				})
				require.Len(t, paid, 1)
				for _, err := range refused {
					require.Condition(t, func() bool {
						return slices.ContainsFunc(row.refused, func(why error) bool { return errors.Is(err, why) })
					}, "%v", err)
				}
				b.RequireOrder("o-1", "paid", false)
				b.CheckBooks(bank.Balances(row.balance, 0))
			}
		})
	}
}

// A payment without money doesn't reserve the order, so it keeps no other payment from
// it.
func TestThePoorReserveNothing(t *testing.T) {
	t.Parallel()
	b := bank.NewShop(t, 1000, 0, 5)
	_, err := b.Transfer(t.Context(), bank.Move("known", "c", "b", 1)) // so that something is known about the account
	require.NoError(t, err)
	for round := range 10 {
		id := fmt.Sprint("order-", round)
		b.Insert("orders", bank.Order(id))
		paid, refused := race(b, []*transfer.Coordinator{b.Coordinator}, func(i int) transfer.Request {
			req := bank.Payment(fmt.Sprint(id, " p-", i), id, 10)
			if i != 7 {
				req.From = "c"
			}
			return req
		})
		require.Equal(t, []string{id + " p-7"}, paid, "%v", refused)
	}
	b.CheckBooks(bank.Balances(1000, 0, 5))
}

// race runs 16 transfers at once, each by one of the coordinators in turn.
func race(b *bank.Bank, by []*transfer.Coordinator, request func(i int) transfer.Request) (succeeded []string, refused []error) {
	b.T.Helper()
	var (
		all sync.WaitGroup
		mu  sync.Mutex
	)
	for i := range 16 {
		all.Go(func() {
			req := request(i)
			_, err := by[i%len(by)].Transfer(b.T.Context(), req)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				succeeded = append(succeeded, req.ID)
			} else {
				refused = append(refused, err)
			}
		})
	}
	all.Wait()
	return succeeded, refused
}

// An effect doesn't show before the commit, and its document is reserved until then.
// A held order is unpaid, and no other transfer can pay it.
func TestEffectOfHold(t *testing.T) {
	t.Parallel()
	b := bank.NewShop(t, 100, 0)
	for _, id := range []string{"o-1", "o-2"} {
		_, err := b.Hold(t.Context(), bank.Payment("h-"+id, id, 30), time.Hour)
		require.NoError(t, err)
		b.RequireOrder(id, "unpaid", true)
		_, err = b.Transfer(t.Context(), bank.Payment("p-"+id, id, 10))
		require.ErrorIs(t, err, transfer.ErrRequirementFailed)
	}
	_, err := b.Post(t.Context(), "h-o-1", transfer.PostAmount(transfer.Units(20)))
	require.NoError(t, err)
	b.RequireOrder("o-1", "paid", false)
	_, err = b.Void(t.Context(), "h-o-2")
	require.NoError(t, err)
	b.RequireOrder("o-2", "unpaid", false)
	_, err = b.Transfer(t.Context(), bank.Payment("again", "o-2", 10))
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(100, 0))
}

// Effects are stored with their transfer.
// Another process, which knows nothing about the request, finishes or undoes them.
func TestEffectsAreRecovered(t *testing.T) {
	t.Parallel()
	steps := []bank.Step{
		bank.Prepares, bank.MorePrepares, bank.Decision, bank.Settles, bank.MoreSettles, bank.Clears, bank.MoreClears, bank.Finish,
	}
	for n, at := range steps {
		for _, policy := range []transfer.StallPolicy{transfer.Resume, transfer.RollBack} {
			want := "paid"
			if policy == transfer.RollBack && n < slices.Index(steps, bank.Decision) {
				want = "unpaid"
			}
			t.Run(fmt.Sprint(at, ", ", policy), func(t *testing.T) {
				t.Parallel()
				b := bank.NewShop(t, 100, 0)
				b.Dying(at, bank.Lost, func(ctx context.Context, c *transfer.Coordinator) error {
					_, err := c.Transfer(ctx, bank.Payment("p", "o-1", 60))
					return err
				}, bank.Orders)
				b.RecoverAll(append(bank.Orders(b.DB), transfer.WithStallPolicy(policy))...)
				b.RequireOrder("o-1", want, false)
				b.CheckBooks(bank.Balances(100, 0))
			})
		}
	}
}

// A transfer of effects needs no money.
// IDs and values may be of any kind that the server takes.
func TestEffectsAlone(t *testing.T) {
	t.Parallel()
	b := bank.NewShop(t)
	oid := bson.NewObjectID()
	ids := []any{int32(7), int64(1) << 40, oid, bson.D{{Key: "shop", Value: int32(1)}, {Key: "no", Value: "x"}}, true}
	var effects []transfer.Effect
	for _, id := range ids {
		b.Insert("orders", bson.D{{Key: "_id", Value: id}, {Key: "lines", Value: bson.A{1, 2}}})
		effects = append(effects, transfer.Effect{
			Documents: "orders", ID: id,
			Require: bson.D{{Key: "status", Value: nil}, {Key: "lines", Value: bson.A{int64(1), 2.0}}},
			Set:     bson.D{{Key: "status", Value: bson.D{{Key: "$set", Value: "no operator"}}}},
		})
	}
	setsNothing := transfer.Effect{Documents: "orders", ID: "o-1", Require: bson.D{{Key: "status", Value: "unpaid"}}}
	effects = append(effects, setsNothing)
	_, err := b.Transfer(t.Context(), transfer.Request{ID: "t", Effects: effects})
	require.NoError(t, err)
	for _, id := range ids {
		document, err := b.DB.Collection("orders").FindOne(t.Context(), bson.D{{Key: "_id", Value: id}}).Raw()
		require.NoError(t, err)
		require.Equal(t, "no operator", document.Lookup("status", "$set").StringValue())
	}
	b.CheckBooks(bank.Balances())
}

// Beside effects, legs may cancel out: the accounts take no part.
// Without effects nothing is left to be done, and that is refused.
func TestLegsCancelOutBesideEffects(t *testing.T) {
	t.Parallel()
	b := bank.NewShop(t, 100, 0)
	legs := []transfer.Leg{{Account: "a", Amount: transfer.Units(-5)}, {Account: "a", Amount: transfer.Units(5)}}
	paid := []transfer.Effect{{Documents: "orders", ID: "o-1", Set: bson.D{{Key: "status", Value: "paid"}}}}
	_, err := b.Transfer(t.Context(), transfer.Request{ID: "none", Legs: legs})
	require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	rec, err := b.Transfer(t.Context(), transfer.Request{ID: "t", Legs: legs, Effects: paid})
	require.NoError(t, err)
	require.Empty(t, rec.Legs)
	b.RequireOrder("o-1", "paid", false)
	again, err := b.Transfer(t.Context(), transfer.Request{ID: "t", Effects: paid})
	require.NoError(t, err, "it is the same request")
	require.Equal(t, rec.Legs, again.Legs)
	_, err = b.Transfer(t.Context(), transfer.Request{ID: "to oneself", From: "a", To: "a", Amount: transfer.Units(5), Effects: paid})
	require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	b.CheckBooks(bank.Balances(100, 0))
}

// An invalid effect is refused before anything is stored.
func TestEffectsAreChecked(t *testing.T) {
	t.Parallel()
	b := bank.NewShop(t, 100, 0)
	set := func(key string) []transfer.Effect {
		return []transfer.Effect{{Documents: "orders", ID: "o-1", Set: bson.D{{Key: key, Value: 1}}}}
	}
	require1 := func(key string) []transfer.Effect {
		return []transfer.Effect{{Documents: "orders", ID: "o-1", Require: bson.D{{Key: key, Value: 1}}}}
	}
	sets := func(value any) []transfer.Effect {
		return []transfer.Effect{{Documents: "orders", ID: "o-1", Set: bson.D{{Key: "x", Value: value}}}}
	}
	endless := bson.M{}
	endless["again"] = bson.D{{Key: "and again", Value: endless}}
	twice := func(one, other any) []transfer.Effect {
		return []transfer.Effect{{Documents: "orders", ID: one}, {Documents: "orders", ID: other}}
	}
	for name, effects := range map[string][]transfer.Effect{
		"unknown documents":     {{Documents: "carts", ID: "o-1"}},
		"a ledger":              {{Documents: "", ID: "a"}},
		"no ID":                 {{Documents: "orders"}},
		"a list for an ID":      {{Documents: "orders", ID: bson.A{1}}},
		"a fraction for an ID":  {{Documents: "orders", ID: 0.5}},
		"a pattern for an ID":   {{Documents: "orders", ID: bson.Regex{Pattern: "o"}}},
		"sets the ID":           set("_id"),
		"sets a reservation":    set("pending"),
		"sets the fence":        set("fence"),
		"sets a path":           set("a.b"),
		"sets an operator":      set("$inc"),
		"sets an empty name":    set(""),
		"requires the ID":       require1("_id"),
		"requires reservations": require1("pending"),
		"requires a path":       require1("a.b"),
		"sets a field twice":    {{Documents: "orders", ID: "o-1", Set: bson.D{{Key: "x", Value: 1}, {Key: "x", Value: 2}}}},
		"a document twice":      twice("o-1", "o-1"),
		"a number twice":        twice(int32(7), int64(7)),
		"an operator for an ID": {{Documents: "orders", ID: bson.D{{Key: "$gt", Value: ""}}}},
		"undefined":             sets(bson.Undefined{}),
		"undefined in a list":   sets(bson.A{bson.Undefined{}}),
		"text without an end":   sets(bson.RawValue{Type: bson.TypeString, Value: []byte{1, 0, 0, 0, 7}}),
		"half a number":         sets(bson.RawValue{Type: bson.TypeInt64, Value: []byte{1}}),
		"what contains itself":  sets(endless),
		"endless, as an ID":     {{Documents: "orders", ID: endless}},
		"what can't be stored":  {{Documents: "orders", ID: "o-1", Set: bson.D{{Key: "x", Value: make(chan int)}}}},
	} {
		t.Run(name, func(t *testing.T) {
			req := bank.Move("t", "a", "b", 1)
			req.Effects = effects
			_, err := b.Transfer(t.Context(), req)
			require.ErrorIs(t, err, transfer.ErrInvalidRequest)
		})
	}
	_, err := b.Transfer(t.Context(), transfer.Request{ID: "t"})
	require.ErrorIs(t, err, transfer.ErrInvalidRequest, "neither money nor effects")
	_, err = b.Get(t.Context(), "t")
	require.ErrorIs(t, err, transfer.ErrTransferNotFound)
	b.CheckBooks(bank.Balances(100, 0))
}

// Effects are part of the payload, in any order.
func TestEffectsArePayload(t *testing.T) {
	t.Parallel()
	b := bank.NewShop(t, 100, 0)
	req := bank.Payment("p", "o-1", 10)
	req.Effects = append(req.Effects, transfer.Effect{Documents: "orders", ID: "o-2", Set: bson.D{{Key: "seen", Value: true}}})
	_, err := b.Transfer(t.Context(), req)
	require.NoError(t, err)
	same := bank.Payment("p", "o-1", 10)
	same.Effects = []transfer.Effect{req.Effects[1], {
		Documents: "orders", ID: "o-1", Require: same.Effects[0].Require,
		Set: bson.D{{Key: "paidBy", Value: "p"}, {Key: "status", Value: "paid"}},
	}}
	_, err = b.Transfer(t.Context(), same)
	require.NoError(t, err)
	for _, other := range []transfer.Request{bank.Move("p", "a", "b", 10), bank.Payment("p", "o-1", 10), bank.Payment("p", "o-2", 10)} {
		_, err = b.Transfer(t.Context(), other)
		require.ErrorIs(t, err, transfer.ErrIDConflict)
	}
	b.CheckBooks(bank.Balances(100, 0))
}

// Each part of an effect is payload: its document, its requirements and the values it
// sets.
func TestEveryPartOfAnEffectIsPayload(t *testing.T) {
	t.Parallel()
	b := bank.NewShop(t, 100, 0)
	_, err := b.Transfer(t.Context(), bank.Payment("p", "o-1", 10))
	require.NoError(t, err)
	for name, change := range map[string]func(*transfer.Effect){
		"the document":     func(e *transfer.Effect) { e.ID = "o-2" },
		"no requirement":   func(e *transfer.Effect) { e.Require = nil },
		"another value":    func(e *transfer.Effect) { e.Require[0].Value = "open" },
		"another field":    func(e *transfer.Effect) { e.Set[0].Key = "state" },
		"one field less":   func(e *transfer.Effect) { e.Set = e.Set[1:] },
		"what it requires": func(e *transfer.Effect) { e.Require, e.Set = e.Set, e.Require },
	} {
		req := bank.Payment("p", "o-1", 10)
		change(&req.Effects[0])
		_, err := b.Transfer(t.Context(), req)
		require.ErrorIs(t, err, transfer.ErrIDConflict, name)
	}
	b.CheckBooks(bank.Balances(100, 0))
}

// The document of an effect may be on any cluster.
// An order on another server is paid with money of this one, refused there, held there,
// and finished by recovery.
func TestEffectsOnAnotherCluster(t *testing.T) {
	t.Setenv("MONGODB_URI", "")
	server, err := mongotest.Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	b := bank.New(t, 100, 0)
	far := mongotest.Client(t, options.Client().ApplyURI(server.URI())).Database(b.DB.Name()).Collection("orders")
	for _, id := range []string{"o-1", "o-2", "o-3"} {
		_, err := far.InsertOne(t.Context(), bank.Order(id))
		require.NoError(t, err)
	}
	abroad := func(*mongo.Database) []transfer.Option {
		return []transfer.Option{transfer.WithDocuments("orders", far)}
	}
	b.Coordinator = b.NewCoordinator(b.DB, abroad(b.DB)...)
	require.NoError(t, b.Setup(t.Context()))
	_, err = b.Transfer(t.Context(), bank.Payment("p-1", "o-1", 10))
	require.NoError(t, err)
	_, err = b.Transfer(t.Context(), bank.Payment("p-2", "o-1", 10))
	require.ErrorIs(t, err, transfer.ErrRequirementFailed)
	_, err = b.Hold(t.Context(), bank.Payment("h", "o-2", 10), time.Hour)
	require.NoError(t, err)
	_, err = b.Void(t.Context(), "h")
	require.NoError(t, err)
	b.Dying(bank.Decision, bank.Lost, func(ctx context.Context, c *transfer.Coordinator) error {
		_, err := c.Transfer(ctx, bank.Payment("p-3", "o-3", 10))
		return err
	}, abroad)
	b.RecoverAll(abroad(b.DB)...)
	for id, want := range map[string]string{"o-1": "paid", "o-2": "unpaid", "o-3": "paid"} {
		document, err := far.FindOne(t.Context(), bson.D{{Key: "_id", Value: id}}).Raw()
		require.NoError(t, err)
		require.Equal(t, want, document.Lookup("status").StringValue(), id)
		require.Equal(t, bson.D{}, asFields(t, document.Lookup("pending")), id)
	}
	b.CheckBooks(bank.Balances(100, 0))
}

func asFields(t *testing.T, value bson.RawValue) bson.D {
	t.Helper()
	fields := bson.D{}
	require.NoError(t, value.Unmarshal(&fields))
	return fields
}

// Maps are equal whatever the order of their iteration, at any depth.
func TestEffectsWithMaps(t *testing.T) {
	t.Parallel()
	b := bank.NewShop(t, 100, 0)
	id := bson.M{"shop": 1, "year": 2026, "no": "x"}
	inner := func() bson.D {
		m := bson.M{"a": 1, "b": 2, "c": 3, "d": bson.A{bson.M{"e": 5, "f": 6}}}
		return bson.D{{Key: "of", Value: m}, {Key: "to", Value: &m}, {Key: "all", Value: []bson.M{m}}, {Key: "in", Value: struct{ M bson.M }{m}}}
	}
	b.Insert("orders", bson.D{
		{Key: "_id", Value: bson.D{{Key: "no", Value: "x"}, {Key: "shop", Value: 1}, {Key: "year", Value: 2026}}},
		{Key: "status", Value: "unpaid"},
	})
	for range 10 {
		req := bank.Move("p", "a", "b", 1)
		req.Effects = []transfer.Effect{{
			Documents: "orders", ID: id, Require: bson.D{{Key: "status", Value: "unpaid"}},
			Set: bson.D{{Key: "status", Value: "paid"}, {Key: "x", Value: inner()}},
		}}
		_, err := b.Transfer(t.Context(), req)
		require.NoError(t, err)
	}
	b.CheckBooks(bank.Balances(100, 0))
}

// A reservation that is null counts as no reservation.
func TestEffectOnNullReservation(t *testing.T) {
	t.Parallel()
	b := bank.NewShop(t, 100, 0)
	b.Insert("orders", append(bank.Order("o-3"), bson.E{Key: "pending", Value: nil}))
	_, err := b.Transfer(t.Context(), bank.Payment("p", "o-3", 10))
	require.NoError(t, err)
	b.RequireOrder("o-3", "paid", false)
	b.CheckBooks(bank.Balances(100, 0))
}

// Documents are not a ledger, however their name is spelled.
func TestDocumentsAreNoAccounts(t *testing.T) {
	t.Parallel()
	b := bank.NewShop(t, 100, 0)
	for _, name := range []string{"orders", "\x00documents/orders"} {
		_, err := b.Ledger(name)
		require.ErrorIs(t, err, transfer.ErrInvalidRequest)
		_, err = b.Transfer(t.Context(), transfer.Request{ID: "t", Legs: []transfer.Leg{
			{Ledger: name, Account: "o-1", Amount: transfer.Units(-10)}, {Account: "a", Amount: transfer.Units(10)},
		}})
		require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	}
	b.CheckBooks(bank.Balances(100, 0))
}

// One collection can't hold both accounts and documents, or transfers and documents.
func TestDocumentsAreNoLedger(t *testing.T) {
	t.Parallel()
	b := bank.New(t)
	for _, name := range []string{"accounts", "transfers"} {
		_, err := transfer.NewCoordinator(b.DB, transfer.WithDocuments("orders", b.DB.Collection(name)))
		require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	}
	_, err := transfer.NewCoordinator(b.DB, transfer.WithDocuments("", b.DB.Collection("orders")))
	require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	_, err = transfer.NewCoordinator(b.DB, transfer.WithDocuments("orders", nil))
	require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	b.CheckBooks(bank.Balances())
}
