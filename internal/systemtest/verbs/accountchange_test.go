package verbs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

func pointer[T any](value T) *T { return &value }

func frozen(is bool) transfer.AccountChange { return transfer.AccountChange{Frozen: &is} }

func floorOf(units int64) transfer.AccountChange {
	return transfer.AccountChange{Floor: pointer(transfer.Units(units))}
}

func mustUpdate(t *testing.T, c *transfer.Coordinator, id string, change transfer.AccountChange) transfer.Account {
	t.Helper()
	account, err := c.UpdateAccount(t.Context(), id, change)
	require.NoError(t, err)
	return account
}

// stored returns an account's document without its fence.
func storedAccount(b *bank.Bank, id string) bson.M {
	b.T.Helper()
	for _, document := range b.Raw("accounts") {
		if document["_id"] == id {
			delete(document, "fence")
			return document
		}
	}
	return nil
}

// A change changes what it names and nothing else, and returns the account as it is then.
// Made again, it changes nothing more.
func TestUpdateAccount(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	_, err := b.OpenAccount(t.Context(), transfer.Account{
		ID: "a", Balance: transfer.Units(100), Floor: transfer.Units(10), Currency: "EUR", Metadata: map[string]any{"name": "Ann"},
	})
	require.NoError(t, err)
	b.SetField("accounts", "a", "the user's own", "kept")
	with := func(changes bson.M, without ...string) bson.M {
		document := storedAccount(b, "a")
		for name, value := range changes {
			document[name] = value
		}
		for _, name := range without {
			delete(document, name)
		}
		return document
	}
	for _, row := range []struct {
		name   string
		change transfer.AccountChange
		want   func() bson.M
	}{
		{"nothing", transfer.AccountChange{}, func() bson.M { return with(nil) }},
		{"a floor above the balance", floorOf(101), func() bson.M { return with(bson.M{"floor": int64(101)}) }},
		{"no floor", transfer.AccountChange{NoFloor: pointer(true)}, func() bson.M { return with(bson.M{"floor": bson.MinKey{}}) }},
		{"a floor again", transfer.AccountChange{NoFloor: pointer(false)}, func() bson.M { return with(bson.M{"floor": int64(0)}) }},
		{"a debt", transfer.AccountChange{NoFloor: pointer(false), Floor: pointer(transfer.Units(-5))},
			func() bson.M { return with(bson.M{"floor": int64(-5)}) }},
		{"a zero of the other kind", transfer.AccountChange{Floor: pointer(bank.Decimal(t, "0.00"))},
			func() bson.M { return with(bson.M{"floor": int64(0)}) }},
		{"frozen", frozen(true), func() bson.M { return with(bson.M{"frozen": true}) }},
		{"metadata", transfer.AccountChange{Metadata: map[string]any{"age": int64(7)}},
			func() bson.M { return with(bson.M{"metadata": bson.D{{Key: "age", Value: int64(7)}}}) }},
		{"all at once", transfer.AccountChange{
			Floor: pointer(transfer.Units(1)), Frozen: pointer(false), Metadata: map[string]any{},
		}, func() bson.M { return with(bson.M{"floor": int64(1)}, "frozen", "metadata") }},
	} {
		want := row.want()
		for range 2 {
			got := mustUpdate(t, b.Coordinator, "a", row.change)
			require.Equal(t, want, storedAccount(b, "a"), row.name)
			read, err := b.GetAccount(t.Context(), "a")
			require.NoError(t, err)
			require.Equal(t, read, got, row.name)
		}
	}
	b.CheckBooks(map[string]int64{"a": 100})
}

// What can't be meant, or doesn't fit the account, is refused, and changes nothing.
func TestUpdateAccountIsRefused(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100)
	_, err := b.OpenAccount(t.Context(), transfer.Account{ID: "decimals", Balance: bank.Decimal(t, "5.50")})
	require.NoError(t, err)
	odd := map[string]bson.M{
		"double": {"balance": 100.0}, "text": {"balance": "100"}, "none": {}, "array": {"balance": bson.A{int64(1)}},
		"list of markers": {"balance": int64(1), "pending": bson.A{}}, "odd floor": {"balance": int64(1), "floor": "none"},
	}
	for id, document := range odd {
		document["_id"] = id
		b.Insert("accounts", document)
	}
	before := b.Contents()
	type row struct {
		id     string
		change transfer.AccountChange
		want   error
	}
	rows := map[string]row{
		"both a floor and none": {
			"a", transfer.AccountChange{NoFloor: pointer(true), Floor: &transfer.Amount{}}, transfer.ErrInvalidRequest,
		},
		"no ID":                         {"", frozen(true), transfer.ErrInvalidRequest},
		"a floor too high":              {"a", floorOf(1<<62 + 1), transfer.ErrInvalidRequest},
		"metadata that can't be stored": {"a", transfer.AccountChange{Metadata: map[string]any{"$set": 1}}, transfer.ErrInvalidRequest},
		"nobody":                        {"nobody", frozen(true), transfer.ErrAccountNotFound},
		"nobody, and nothing":           {"nobody", transfer.AccountChange{}, transfer.ErrAccountNotFound},
		"a whole floor":                 {"decimals", floorOf(1), transfer.ErrAmountKind},
		"a decimal floor":               {"a", transfer.AccountChange{Floor: pointer(bank.Decimal(t, "1.5"))}, transfer.ErrAmountKind},
	}
	for id := range odd {
		rows["no account: "+id] = row{id, frozen(true), transfer.ErrAmountKind}
	}
	for name, row := range rows {
		account, err := b.UpdateAccount(t.Context(), row.id, row.change)
		require.ErrorIs(t, err, row.want, name)
		require.Zero(t, account, name)
		want := transfer.Unchanged
		if errors.Is(err, transfer.ErrInvalidRequest) {
			want = transfer.NothingStored
		}
		require.Equal(t, want, transfer.OutcomeOf(err), "%s: %v", name, err)
	}
	require.Equal(t, before, b.Contents())
}

// No new transfer touches a frozen account, in either direction, and what is due on it is
// paid: a hold is posted or voided, and what a crash has left is finished.
func TestFrozenAccount(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0, 0)
	for _, id := range []string{"posted", "voided"} {
		b.MustHold(id, 10, time.Hour)
	}
	b.LeavePrepared("by fact", 10)
	b.LeaveRecorded("recorded", 10)
	b.StallHalf("half", 10)
	for _, id := range []string{"a", "b"} {
		require.True(t, mustUpdate(t, b.Coordinator, id, frozen(true)).Frozen)
	}
	for _, req := range []transfer.Request{bank.Move("out", "a", "c", 1), bank.Move("in", "c", "a", 1)} {
		for range 2 {
			rec, err := b.Transfer(t.Context(), req)
			b.RequireRefused(rec, err, transfer.ErrAccountFrozen, "accountFrozen")
		}
	}
	_, err := b.Hold(t.Context(), bank.Move("hold", "a", "c", 1), time.Hour)
	require.ErrorIs(t, err, transfer.ErrAccountFrozen)
	require.ErrorContains(t, err, `account "a": account is frozen`)

	_, err = b.Post(t.Context(), "posted")
	require.NoError(t, err)
	_, err = b.Void(t.Context(), "voided")
	require.NoError(t, err)
	b.RecoverAll()
	for id, want := range map[string]transfer.State{
		"posted": transfer.StateSuccess, "voided": transfer.StateFail,
		"by fact": transfer.StateSuccess, "recorded": transfer.StateSuccess, "half": transfer.StateFail,
	} {
		rec, err := b.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, want, rec.State, id)
	}
	_, err = b.Reverse(t.Context(), transfer.Reversal{ID: "back", Of: "posted", All: true})
	require.ErrorIs(t, err, transfer.ErrAccountFrozen, "a reversal is a new transfer")
	require.Equal(t, map[string]int64{"a": 70, "b": 30, "c": 0}, b.Balances())

	for _, id := range []string{"a", "b"} {
		require.False(t, mustUpdate(t, b.Coordinator, id, frozen(false)).Frozen)
	}
	b.MustMove("thawed", 1)
	b.CheckBooks(bank.Balances(100, 0, 0))
}

// A frozen account can be closed when it is empty, and is still frozen when it is opened
// again.
// A transfer is refused since an account is closed, before it is refused since one is
// frozen.
func TestCloseFrozenAccount(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	for _, id := range []string{"a", "b"} {
		mustUpdate(t, b.Coordinator, id, frozen(true))
	}
	require.ErrorIs(t, b.CloseAccount(t.Context(), "a"), transfer.ErrAccountNotEmpty)
	require.NoError(t, b.CloseAccount(t.Context(), "b"))
	_, err := b.Transfer(t.Context(), bank.Move("closed", "a", "b", 1))
	require.ErrorIs(t, err, transfer.ErrAccountClosed)
	require.Equal(t, transfer.Units(-1), mustUpdate(t, b.Coordinator, "b", floorOf(-1)).Floor, "a closed one can be changed")
	require.NoError(t, b.ReopenAccount(t.Context(), "b"))
	reopened, err := b.GetAccount(t.Context(), "b")
	require.NoError(t, err)
	require.True(t, reopened.Frozen)
	b.CheckBooks(bank.Balances(100, 0))
}

// An account may be opened as a frozen one: nothing moves until it is unfrozen.
func TestOpenFrozenAccount(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100)
	opened, err := b.OpenAccount(t.Context(), transfer.Account{ID: "b", Frozen: true})
	require.NoError(t, err)
	require.True(t, opened.Frozen)
	_, err = b.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	require.ErrorIs(t, err, transfer.ErrAccountFrozen)
	mustUpdate(t, b.Coordinator, "b", frozen(false))
	b.MustMove("u", 60)
	b.CheckBooks(bank.Balances(100, 0))
}

// A change counts for all that is prepared after it, by whatever process, also by one
// that has read the account before, has claimed the transfer, and has its prepare on the
// way.
// A change that somebody makes by hand, and that leaves the fence as it is, counts as
// well.
func TestAccountChangesCountForLaterPrepares(t *testing.T) {
	t.Parallel()
	update := func(id string, change transfer.AccountChange) func(b *bank.Bank) {
		return func(b *bank.Bank) { mustUpdate(b.T, b.Coordinator, id, change) }
	}
	byHand := func(id, field string, value any) func(b *bank.Bank) {
		return func(b *bank.Bank) { b.SetField("accounts", id, field, value) }
	}
	for name, row := range map[string]struct {
		change func(b *bank.Bank)
		want   error
	}{
		"a raised floor":       {update("a", floorOf(41)), transfer.ErrInsufficientFunds},
		"a floor that is left": {update("a", floorOf(40)), nil},
		"no floor":             {update("a", transfer.AccountChange{NoFloor: pointer(true)}), nil},
		"a frozen payer":       {update("a", frozen(true)), transfer.ErrAccountFrozen},
		"a frozen payee":       {update("b", frozen(true)), transfer.ErrAccountFrozen},
		"metadata":             {update("a", transfer.AccountChange{Metadata: map[string]any{"a": "b"}}), nil},

		"a floor raised by hand": {byHand("a", "floor", int64(41)), transfer.ErrInsufficientFunds},
		"a payer frozen by hand": {byHand("a", "frozen", true), transfer.ErrAccountFrozen},
		"a payee frozen by hand": {byHand("b", "frozen", true), transfer.ErrAccountFrozen},
		"another currency":       {byHand("a", "currency", "EUR"), transfer.ErrCurrencyMismatch},
		"a payee's currency":     {byHand("b", "currency", "EUR"), transfer.ErrCurrencyMismatch},
		"a closed payee": {
			func(b *bank.Bank) { require.NoError(b.T, b.CloseAccount(b.T.Context(), "b")) }, transfer.ErrAccountClosed,
		},
	} {
		for _, knows := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, accounts remembered: %t", name, knows), func(t *testing.T) {
				t.Parallel()
				b := bank.New(t, 100, 0)
				held := beginHeldBack(b, knows)
				row.change(b)
				require.ErrorIs(t, held(), row.want)
				want := map[string]int64{"a": 100, "b": 0}
				if row.want == nil {
					want = map[string]int64{"a": 40, "b": 60}
				}
				require.Equal(t, want, b.Balances())
				b.CheckBooks(bank.Balances(100, 0))
			})
		}
	}
}

// A floor that is lowered counts, too: a debit that was held back, and could not be made
// before, can be made.
func TestLoweredFloorCountsForLaterPrepares(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	mustUpdate(t, b.Coordinator, "a", floorOf(50))
	held := beginHeldBack(b, true)
	mustUpdate(t, b.Coordinator, "a", floorOf(0))
	require.NoError(t, held())
	b.CheckBooks(bank.Balances(100, 0))
}

// beginHeldBack lets another process begin a transfer of 60 from a to b, which is claimed
// when it returns, and whose prepares are held back, before they are sent, until the
// returned function is called.
// That returns the outcome once the transfer is over.
// The process may know the accounts from other transfers.
func beginHeldBack(b *bank.Bank, knows bool) func() error {
	b.T.Helper()
	s := bank.NewSluice()
	c := b.NewCoordinator(b.Through(s.Options()))
	move := func(req transfer.Request) error {
		_, err := c.Transfer(b.T.Context(), req)
		_, end := c.Wait(b.T.Context(), req.ID)
		return errors.Join(err, end)
	}
	if knows {
		require.NoError(b.T, move(bank.Move("there", "a", "b", 1)))
		require.NoError(b.T, move(bank.Move("back", "b", "a", 1)))
	}
	s.HoldBack(bank.Prepares)
	answer := make(chan error, 1)
	go func() { answer <- move(bank.Move("t", "a", "b", 60)) }()
	require.Eventually(b.T, func() bool { return b.RawTransfer("t").State == "Preparing" }, time.Minute, time.Millisecond)
	return func() error {
		s.Open()
		return bank.Within(b.T, answer)
	}
}

// While many debits race, the last raise of the floor stands, to the unit: what was there
// when the floor was raised goes down to it, and no further.
// An account that is frozen and unfrozen meanwhile loses nothing.
func TestFloorIsRaisedAmongRacingDebits(t *testing.T) {
	t.Parallel()
	const money, racers, highest = 400, 8, 200
	b := bank.New(t, money, 0)
	var racing sync.WaitGroup
	for racer := range racers {
		c := b.NewCoordinator(b.DB)
		racing.Go(func() {
			for n := 0; ; n++ {
				_, err := c.Transfer(t.Context(), bank.Move(fmt.Sprint("t", racer, "-", n), "a", "b", 1))
				switch {
				case errors.Is(err, transfer.ErrInsufficientFunds):
					return
				case err != nil && !errors.Is(err, transfer.ErrAccountFrozen):
					assert.NoError(t, err)
					return
				}
			}
		})
	}
	var last transfer.Account
	for floor := int64(20); floor <= highest; floor += 20 {
		mustUpdate(t, b.Coordinator, "b", frozen(true))
		last = mustUpdate(t, b.Coordinator, "a", floorOf(floor))
		require.Equal(t, transfer.Units(floor), last.Floor)
		mustUpdate(t, b.Coordinator, "b", frozen(false))
	}
	racing.Wait()
	left := min(bank.Units(t, last.Balance), highest)
	require.Equal(t, map[string]int64{"a": left, "b": money - left}, b.Balances())
	b.RecoverAll()
	b.CheckBooks(bank.Balances(money, 0))
}

// Whatever becomes of one message, a change is made, and reported truly.
func TestUpdateAccountOverABadWire(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.MustHold("held", 60, time.Hour)
	change := transfer.AccountChange{Floor: pointer(transfer.Units(7)), Frozen: pointer(true), Metadata: map[string]any{"a": "b"}}
	mustUpdate(t, b.Coordinator, "a", change)
	want := storedAccount(b, "a")
	for at := range 3 {
		for _, what := range []bank.Fault{bank.Lost, bank.AnswerLost, bank.Resent} {
			_, err := b.UpdateAccount(t.Context(), "a", transfer.AccountChange{
				NoFloor: pointer(true), Frozen: pointer(false), Metadata: map[string]any{},
			})
			require.NoError(t, err)
			w := &bank.Wire{At: at, What: what, Idle: true}
			c := b.NewCoordinator(b.Through(w.Client()))
			_, err = c.GetAccount(t.Context(), "a") // what it asks a server first is asked
			require.NoError(t, err)
			require.NoError(t, c.ReopenAccount(t.Context(), "b"))
			w.SetIdle(false)
			got, err := c.UpdateAccount(t.Context(), "a", change)
			require.NoError(t, err, "%s, at %d", what, at)
			require.True(t, w.HasStruck(), "%d: %v", at, w.SentSoFar())
			require.Equal(t, want, storedAccount(b, "a"), "%s, at %d", what, at)
			require.Equal(t, []transfer.Amount{transfer.Units(40), transfer.Units(100)}, []transfer.Amount{got.Available, got.Posted})
			require.True(t, got.Frozen)
		}
	}
	_, err := b.Void(t.Context(), "held")
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(100, 0))
}

// A message of a call that was given up changes nothing once a later call has returned,
// even one that found the account as it should be.
func TestLateAccountChange(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"the account was frozen": true, "it was not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0)
			mustUpdate(t, b.Coordinator, "a", frozen(before))
			ctx, cancel := context.WithCancel(t.Context())
			w := &bank.Wire{
				Of: func(command string) bool { return command == "findAndModify" }, What: bank.Held, Die: true, OnStrike: cancel,
			}
			c := b.NewCoordinator(b.Through(w.Client()))
			_, err := c.UpdateAccount(ctx, "a", transfer.AccountChange{Frozen: pointer(false), NoFloor: pointer(true)})
			require.ErrorIs(t, err, transfer.ErrInDoubt)
			require.Equal(t, transfer.InDoubt, transfer.OutcomeOf(err))
			require.True(t, w.HasStruck())
			mustUpdate(t, b.Coordinator, "a", frozen(true))
			want := b.Contents()
			w.Deliver(t)
			require.Equal(t, want, b.Contents())
			_, err = b.Transfer(t.Context(), bank.Move("t", "a", "b", 1))
			require.ErrorIs(t, err, transfer.ErrAccountFrozen)
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}

// So it is with an account that is closed, or reopened: what a later call has answered
// stays, also where that has found the account as it wanted it.
func TestLateClose(t *testing.T) {
	t.Parallel()
	closing := func(c *transfer.Coordinator, ctx context.Context, id string) error { return c.CloseAccount(ctx, id) }
	reopening := func(c *transfer.Coordinator, ctx context.Context, id string) error { return c.ReopenAccount(ctx, id) }
	type call func(c *transfer.Coordinator, ctx context.Context, id string) error
	for name, row := range map[string]struct{ before, late, later call }{
		"a late close of what is open":       {reopening, closing, reopening},
		"a late reopening of what is closed": {closing, reopening, closing},
		"a late close of what was closed":    {closing, closing, reopening},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0)
			require.NoError(t, row.before(b.Coordinator, t.Context(), "b"))
			ctx, cancel := context.WithCancel(t.Context())
			w := &bank.Wire{
				Of: func(command string) bool { return command == "findAndModify" }, What: bank.Held, Die: true, OnStrike: cancel,
			}
			require.ErrorIs(t, row.late(b.NewCoordinator(b.Through(w.Client())), ctx, "b"), transfer.ErrInDoubt)
			require.True(t, w.HasStruck())
			require.NoError(t, row.later(b.Coordinator, t.Context(), "b"))
			want := b.Contents()
			w.Deliver(t)
			require.Equal(t, want, b.Contents())
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}
