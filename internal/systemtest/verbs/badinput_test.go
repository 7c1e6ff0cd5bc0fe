package verbs

import (
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// bad is a malformed call, and a part of its error's text.
type bad struct {
	call method
	says string
}

// badIDs are invalid IDs, by a part of the error's text.
func badIDs() map[string]string {
	return map[string]string{
		"the ID is empty": "", "more than 255": strings.Repeat("x", 256), "not valid UTF-8": "\xff",
	}
}

// withBadIDs calls a method with each invalid ID.
func withBadIDs(call func(ctx context.Context, c *transfer.Coordinator, id string) error) map[string]bad {
	rows := map[string]bad{}
	for says, id := range badIDs() {
		rows[says] = bad{func(ctx context.Context, c *transfer.Coordinator) error { return call(ctx, c, id) }, says}
	}
	return rows
}

// withBadRequests calls a method with each invalid request.
func withBadRequests(t *testing.T, call func(context.Context, *transfer.Coordinator, transfer.Request) error) map[string]bad {
	rows := map[string]bad{}
	for says, req := range badRequests(t) {
		rows[says] = bad{func(ctx context.Context, c *transfer.Coordinator) error { return call(ctx, c, req) }, says}
	}
	return rows
}

// and joins tables.
func and(all ...map[string]bad) map[string]bad {
	together := map[string]bad{}
	for _, rows := range all {
		maps.Copy(together, rows)
	}
	return together
}

// invalidCalls are calls that are refused with ErrInvalidRequest, for every public method
// of Coordinator and Ledger, by name.
// Methods that take a context are also called without one.
func invalidCalls(t *testing.T) map[string]map[string]bad {
	all := map[string]map[string]bad{
		"Coordinator.Close": {}, "Coordinator.Setup": {}, "Coordinator.Check": {}, "Coordinator.Adopt": {},
		"Coordinator.Audit": {}, "Coordinator.Recover": {}, "Coordinator.Run": {}, "Coordinator.Healthy": {},
		"Coordinator.Stats": {},
		"Coordinator.Explain": withBadIDs(func(ctx context.Context, c *transfer.Coordinator, id string) error {
			return bank.ErrorOf(c.Explain(ctx, id))
		}),
		"Coordinator.Ledger": {"unknown": {func(_ context.Context, c *transfer.Coordinator) error {
			return bank.ErrorOf(c.Ledger("nowhere"))
		}, `the ledger "nowhere" is not registered: see WithLedger`}},
	}
	for _, calls := range []map[string]map[string]bad{transferCalls(t), decidingCalls(t), lookCalls(), accountCalls(t), repairCalls()} {
		maps.Copy(all, calls)
	}
	var none context.Context
	for name, call := range verbs() {
		require.Contains(t, all, name)
		all[name]["no context"] = bad{
			func(_ context.Context, c *transfer.Coordinator) error { return call(none, c) }, "the context is nil",
		}
	}
	all["Coordinator.Close"]["no context"] = bad{
		func(_ context.Context, c *transfer.Coordinator) error { return c.Close(none) }, "the context is nil",
	}
	return all
}

func transferCalls(t *testing.T) map[string]map[string]bad {
	later := bank.Move("new", "a", "b", 1)
	later.NotBefore = time.Now().Add(time.Hour)
	never := bank.Move("new", "a", "b", 1)
	never.NotBefore = time.Unix(math.MaxInt32<<16, 0)
	patient := bank.Move("new", "a", "b", 1)
	patient.AwaitFundsUntil = time.Now().Add(time.Hour)
	hold := func(req transfer.Request, expiresIn time.Duration) method {
		return func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.ErrorOf(c.Hold(ctx, req, expiresIn))
		}
	}
	return map[string]map[string]bad{
		"Coordinator.Transfer": and(withBadRequests(t, func(ctx context.Context, c *transfer.Coordinator, req transfer.Request) error {
			return bank.ErrorOf(c.Transfer(ctx, req))
		}), map[string]bad{"later": {func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.ErrorOf(c.Transfer(ctx, later))
		}, "NotBefore is for Submit"}, "patient": {func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.ErrorOf(c.Transfer(ctx, patient))
		}, "AwaitFundsUntil is for Submit"}}),
		"Coordinator.TransferMany": withBadRequests(t, func(ctx context.Context, c *transfer.Coordinator, req transfer.Request) error {
			_, errs := c.TransferMany(ctx, []transfer.Request{req})
			return errs[0]
		}),
		"Coordinator.Submit": and(withBadRequests(t, func(ctx context.Context, c *transfer.Coordinator, req transfer.Request) error {
			return bank.ErrorOf(c.Submit(ctx, req))
		}), map[string]bad{"never": {func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.ErrorOf(c.Submit(ctx, never))
		}, "NotBefore lies beyond the years 0 to 9999"}}, impatient()),
		"Coordinator.Hold": and(withBadRequests(t, func(ctx context.Context, c *transfer.Coordinator, req transfer.Request) error {
			return bank.ErrorOf(c.Hold(ctx, req, time.Hour))
		}), map[string]bad{
			"later":   {hold(later, time.Hour), "NotBefore is for Submit"},
			"patient": {hold(patient, time.Hour), "AwaitFundsUntil is for Submit"},
			"no time": {hold(bank.Move("new", "a", "b", 1), 0), "a hold lasts between 1ms and"},
			"past":    {hold(bank.Move("new", "a", "b", 1), -time.Hour), "a hold lasts between 1ms and"},
			"endless": {hold(bank.Move("new", "a", "b", 1), math.MaxInt64), "a hold lasts between 1ms and"},
		}),
	}
}

// impatient are submissions that can't wait for funds as they ask to.
func impatient() map[string]bad {
	submit := func(change func(*transfer.Request)) method {
		return func(ctx context.Context, c *transfer.Coordinator) error {
			req := bank.Move("new", "a", "b", 1)
			req.AwaitFundsUntil = time.Now().Add(time.Hour)
			change(&req)
			return bank.ErrorOf(c.Submit(ctx, req))
		}
	}
	return map[string]bad{
		"patient beyond the calendar": {submit(func(req *transfer.Request) {
			req.AwaitFundsUntil = time.Unix(math.MaxInt32<<16, 0)
		}), "AwaitFundsUntil lies beyond the years 0 to 9999"},
		"patient to the calendar's end": {submit(func(req *transfer.Request) {
			req.AwaitFundsUntil = time.Date(9999, 12, 31, 23, 59, 59, 999_500_000, time.UTC)
		}), "AwaitFundsUntil lies beyond the years 0 to 9999"},
		"late to the calendar's end": {submit(func(req *transfer.Request) {
			req.NotBefore = time.Date(9999, 12, 31, 23, 59, 59, 999_000_001, time.UTC)
		}), "NotBefore lies beyond the years 0 to 9999"},
		"patient before it begins": {submit(func(req *transfer.Request) {
			req.NotBefore = req.AwaitFundsUntil.Add(time.Second)
		}), "AwaitFundsUntil lies before NotBefore"},
		"patient with what is there": {submit(func(req *transfer.Request) {
			req.AtMost = true
		}), "AtMost moves what is there, and does not wait"},
	}
}

// decidingCalls are calls of the methods that decide a stored transfer.
func decidingCalls(t *testing.T) map[string]map[string]bad {
	post := func(id string, opts ...transfer.PostOption) method {
		return func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.ErrorOf(c.Post(ctx, id, opts...))
		}
	}
	extend := func(expiresIn time.Duration) method {
		return func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.ErrorOf(c.Extend(ctx, "held", expiresIn))
		}
	}
	cancel := func(reason string) method {
		return func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.ErrorOf(c.Cancel(ctx, "held", reason))
		}
	}
	return map[string]map[string]bad{
		"Coordinator.Post": and(withBadIDs(func(ctx context.Context, c *transfer.Coordinator, id string) error { return post(id)(ctx, c) }),
			map[string]bad{
				"nil":       {post("held", nil), "a nil PostOption"},
				"nothing":   {post("held", transfer.PostAmount(transfer.Amount{})), "the amount to post must be positive"},
				"negative":  {post("held", transfer.PostAmount(transfer.Units(-1))), "the amount to post must be positive"},
				"too much":  {post("held", transfer.PostAmount(transfer.Units(11))), "no more than is held"},
				"a decimal": {post("held", transfer.PostAmount(bank.Decimal(t, "1.0"))), "not of the kind that is held"},
				"no two":    {post("many", transfer.PostAmount(transfer.Units(1))), `and "many" has 3 legs`},
			}),
		"Coordinator.Void": withBadIDs(func(ctx context.Context, c *transfer.Coordinator, id string) error {
			return bank.ErrorOf(c.Void(ctx, id))
		}),
		"Coordinator.Extend": and(withBadIDs(func(ctx context.Context, c *transfer.Coordinator, id string) error {
			return bank.ErrorOf(c.Extend(ctx, id, time.Hour))
		}), map[string]bad{
			"no time": {extend(0), "a hold lasts between 1ms and"}, "past": {extend(-time.Hour), "a hold lasts between 1ms and"},
			"endless": {extend(math.MaxInt64), "a hold lasts between 1ms and"}, "shorter": {extend(time.Minute), `the hold "held" lasts until`},
		}),
		"Coordinator.Cancel": and(withBadIDs(func(ctx context.Context, c *transfer.Coordinator, id string) error {
			return bank.ErrorOf(c.Cancel(ctx, id, ""))
		}), map[string]bad{
			"long": {cancel(strings.Repeat("x", 1<<20)), "a reason has at most 4096 bytes"}, "bytes": {cancel("\xff"), "bytes of UTF-8"},
		}),
		"Coordinator.Reverse": and(withBadIDs(func(ctx context.Context, c *transfer.Coordinator, id string) error {
			return bank.ErrorOf(c.Reverse(ctx, transfer.Reversal{ID: "new", Of: id, All: true}))
		}), withBadIDs(func(ctx context.Context, c *transfer.Coordinator, id string) error {
			return bank.ErrorOf(c.Reverse(ctx, transfer.Reversal{ID: id, Of: "done", All: true}))
		}), map[string]bad{"itself": {func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.ErrorOf(c.Reverse(ctx, transfer.Reversal{ID: "done", Of: "done", All: true}))
		}, `the reversal of "done" wants an ID of its own`}, "of nothing": {func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.ErrorOf(c.Reverse(ctx, transfer.Reversal{ID: "new", All: true}))
		}, "the transfer to be reversed (Of): the ID is empty"}}),
	}
}

// Every public method refuses malformed input with ErrInvalidRequest, and the text says
// what is wrong.
// Nothing is stored, and the IDs stay free.
func TestBadInputIsRefused(t *testing.T) {
	t.Parallel()
	b := bank.NewShop(t, 100, 0, 0).WithIndexes()
	b.MustMove("done", 10)
	b.MustHold("held", 10, time.Hour)
	_, err := b.Hold(t.Context(), transfer.Request{ID: "many", Legs: []transfer.Leg{
		{Account: "a", Amount: transfer.Units(-2)}, {Account: "b", Amount: transfer.Units(1)}, {Account: "c", Amount: transfer.Units(1)},
	}}, time.Hour)
	require.NoError(t, err)
	all := invalidCalls(t)
	before := b.Contents()
	for _, method := range methods() {
		require.NotEmpty(t, all[method], "%s: a new public method: say here what it refuses", method)
		for _, name := range slices.Sorted(maps.Keys(all[method])) {
			row := all[method][name]
			err := row.call(t.Context(), b.Coordinator)
			require.ErrorIs(t, err, transfer.ErrInvalidRequest, "%s: %s", method, name)
			require.ErrorContains(t, err, row.says, "%s: %s", method, name)
			require.Less(t, len(err.Error()), 400, "%s: %s", method, name)
			require.NotContains(t, err.Error(), "sesame", "a value: %s: %s", method, name)
			require.Equal(t, before, b.Contents(), "%s: %s has stored something", method, name)
		}
	}
	_, err = b.Transfer(t.Context(), bank.Move("new", "a", "b", 1))
	require.NoError(t, err, "the ID is free")
	for _, id := range []string{"held", "many"} {
		_, err = b.Void(t.Context(), id)
		require.NoError(t, err)
	}
	b.Remove("accounts", "new")
	b.CheckBooks(bank.Balances(100, 0, 0))
}

// With ObjectIDs, every method that names an account refuses an ID of another form.
func TestBadObjectIDs(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t, transfer.WithAccountIDs(transfer.ObjectIDs))
	require.NoError(t, b.Setup(t.Context()))
	before := b.Contents()
	for name, call := range verbs() {
		if strings.Contains(name, "Account") && name != "Coordinator.Accounts" || strings.HasPrefix(name, "Ledger.") || slices.Contains([]string{
			"Coordinator.Transfer", "Coordinator.TransferMany", "Coordinator.Submit", "Coordinator.Hold", "Coordinator.Statement",
			"Coordinator.BalanceAt", "Coordinator.RepairMarker", "Coordinator.RepairPending",
		}, name) {
			err := call(t.Context(), b.Coordinator)
			require.ErrorIs(t, err, transfer.ErrInvalidRequest, name)
			require.ErrorContains(t, err, "is no ObjectId: 24 hex digits are expected", name)
		}
	}
	for _, err := range []error{
		bank.FirstError(b.List(t.Context(), transfer.Query{Account: "alice"})),
		bank.FirstError(b.Accounts(t.Context(), transfer.AccountQuery{Beyond: "alice"})),
	} {
		require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	}
	require.Equal(t, before, b.Contents())
}

// A document without operators is a value like any other, even one with the server's own
// form of a reference.
// It is required, and found, as it is. Any value that can be stored can be set.
func TestDocumentsAreValues(t *testing.T) {
	t.Parallel()
	b := bank.NewShop(t, 100, 0)
	reference := bson.D{{Key: "$ref", Value: "shops"}, {Key: "$id", Value: "s-1"}, {Key: "$db", Value: "world"}}
	for i, value := range []any{
		bson.D{{Key: "a", Value: 1}}, bson.D{{Key: "price", Value: bson.D{{Key: "US$", Value: 5}}}}, bson.A{bson.D{{Key: "b", Value: nil}}},
		bson.D{}, reference, bson.A{reference}, bson.D{{Key: "in", Value: reference}}, "$gt", bson.A{"$or"},
	} {
		id := bank.AccountName(i)
		b.Insert("orders", bson.D{{Key: "_id", Value: id}, {Key: "x", Value: value}})
		req := bank.Move("t-"+id, "a", "b", 1)
		req.Metadata = map[string]any{"is": value, "no": i}
		req.Effects = []transfer.Effect{{
			Documents: "orders", ID: id, Require: bson.D{{Key: "x", Value: value}}, Set: bson.D{{Key: "x", Value: bson.D{{Key: "$set", Value: i}}}},
		}}
		_, err := b.Transfer(t.Context(), req)
		require.NoError(t, err, "%v", value)
		require.Equal(t, []string{req.ID}, b.IDs(transfer.Query{Metadata: map[string]any{"is": value, "no": i}}), "%v", value)
	}
	b.CheckBooks(bank.Balances(100, 0))
}

// A hold that is repeated with another expiry is the first one, and its record says so.
// This holds for each caller, in this process and another, while it is held and after it
// is posted.
func TestHoldWithAnotherExpiry(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	held := b.MustHold("h", 60, time.Hour)
	other := b.NewCoordinator(b.DB)
	for _, expiresIn := range []time.Duration{time.Minute, 3 * time.Hour} {
		for _, c := range []*transfer.Coordinator{b.Coordinator, other} {
			rec, err := c.Hold(t.Context(), bank.Move("h", "a", "b", 60), expiresIn)
			require.NoError(t, err)
			require.Equal(t, held.ExpiresAt.UTC(), rec.ExpiresAt.UTC())
		}
	}
	_, err := b.Post(t.Context(), "h")
	require.NoError(t, err)
	rec, err := other.Hold(t.Context(), bank.Move("h", "a", "b", 60), time.Minute)
	require.NoError(t, err)
	require.Equal(t, held.ExpiresAt.UTC(), rec.ExpiresAt.UTC())
	b.CheckBooks(bank.Balances(100, 0))
}
