package transfer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// isText reports whether an amount is a text in JSON, as decimals are.
func isText(t *testing.T, amount transfer.Amount) bool {
	t.Helper()
	encoded, err := json.Marshal(amount)
	require.NoError(t, err)
	return encoded[0] == '"'
}

// An account reads back as it was opened, and it can be opened only once.
func TestOpenAndGetAccount(t *testing.T) {
	t.Parallel()
	b := bank.New(t)
	for _, a := range []transfer.Account{
		{ID: "units", Balance: transfer.Units(7), Floor: transfer.Units(-5), Currency: "EUR", Metadata: map[string]any{"owner": "Ann"}},
		{ID: "decimal", Balance: bank.Decimal(t, "12.50"), Floor: bank.Decimal(t, "0.50")},
		{ID: "decimal, no floor given", Balance: bank.Decimal(t, "12.50")},
		{ID: "world", NoFloor: true},
		{ID: "odd.$ name%" + strings.Repeat("ü", 100)},
	} {
		opened, err := b.OpenAccount(t.Context(), a)
		require.NoError(t, err)
		got, err := b.GetAccount(t.Context(), a.ID)
		require.NoError(t, err)
		require.Equal(t, opened, got)
		require.Equal(t, a.Balance, got.Balance)
		require.Zero(t, got.Floor.Cmp(a.Floor))
		require.Equal(t, isText(t, got.Balance), isText(t, got.Floor), "both are units, or both decimals")
		require.Equal(t, a.NoFloor, got.NoFloor)
		require.Equal(t, a.Currency, got.Currency)
		require.Equal(t, a.Metadata, got.Metadata)
		require.Zero(t, got.Available.Cmp(a.Balance))
		require.Zero(t, got.Posted.Cmp(a.Balance))
		require.True(t, got.Incoming.IsZero())
		_, err = b.OpenAccount(t.Context(), a)
		require.ErrorIs(t, err, transfer.ErrAccountExists)
	}
	_, err := b.GetAccount(t.Context(), "nobody")
	require.ErrorIs(t, err, transfer.ErrAccountNotFound)
}

// An account that can't exist is refused with a text that says why.
// Nothing is stored.
func TestInvalidAccounts(t *testing.T) {
	t.Parallel()
	b := bank.New(t)
	for text, a := range map[string]transfer.Account{
		"the ID is empty":     {},
		"more than 255":       {ID: strings.Repeat("x", 256)},
		"meant for ledger":    {ID: "a", Ledger: "euro"},
		"within":              {ID: "a", Balance: transfer.Units(1<<62 + 1)},
		"a Floor and NoFloor": {ID: "a", NoFloor: true, Floor: transfer.Units(-1)},
		"not of its balance":  {ID: "a", Balance: bank.Decimal(t, "1"), Floor: transfer.Units(-1)},
		"below its floor":     {ID: "a", Balance: transfer.Units(-1)},
		"metadata key":        {ID: "a", Metadata: map[string]any{"$set": 1}},
	} {
		_, err := b.OpenAccount(t.Context(), a)
		require.ErrorIs(t, err, transfer.ErrInvalidRequest, text)
		require.ErrorContains(t, err, text)
	}
	require.Empty(t, b.Raw("accounts"))
}

// While a transfer is in progress, an account shows the money that can be spent, the
// money that is there and the money to come.
func TestMoneyInTransitIsShown(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 5)
	b.StallAt("t", bank.Decision, bank.Lost, 60)
	a, err := b.GetAccount(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, []transfer.Amount{transfer.Units(40), transfer.Units(100), transfer.Units(0)},
		[]transfer.Amount{a.Available, a.Posted, a.Incoming})
	other, err := b.GetAccount(t.Context(), "b")
	require.NoError(t, err)
	require.Equal(t, []transfer.Amount{transfer.Units(5), transfer.Units(5), transfer.Units(60)},
		[]transfer.Amount{other.Available, other.Posted, other.Incoming})
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 5))
}

// An account can be closed when it has no money and no transfers in flight, any number of
// times.
// A closed account takes part in no transfer. A reopened one does again.
func TestCloseAndReopenAccount(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	require.ErrorIs(t, b.CloseAccount(t.Context(), "nobody"), transfer.ErrAccountNotFound)
	require.ErrorIs(t, b.ReopenAccount(t.Context(), "nobody"), transfer.ErrAccountNotFound)
	require.ErrorIs(t, b.CloseAccount(t.Context(), "a"), transfer.ErrAccountNotEmpty)
	b.MustHold("t", 60, time.Hour)
	require.ErrorIs(t, b.CloseAccount(t.Context(), "b"), transfer.ErrAccountBusy)
	for _, odd := range []bson.M{{"balance": 0, "pending": bson.A{}}, {"balance": 0.0}, {"balance": bson.A{0}}, {"balance": "0"}, {}} {
		odd["_id"] = "odd"
		b.Insert("accounts", odd)
		require.ErrorIs(t, b.CloseAccount(t.Context(), "odd"), transfer.ErrAmountKind, "%v", odd)
		b.Remove("accounts", "odd")
	}
	_, err := b.Void(t.Context(), "t")
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, b.CloseAccount(t.Context(), "b"))
	}
	got, err := b.GetAccount(t.Context(), "b")
	require.NoError(t, err)
	require.True(t, got.Closed)
	_, err = b.Transfer(t.Context(), bank.Move("u", "a", "b", 1))
	require.ErrorIs(t, err, transfer.ErrAccountClosed)
	for range 2 {
		require.NoError(t, b.ReopenAccount(t.Context(), "b"))
	}
	b.MustMove("v", 1)
	b.CheckBooks(bank.Balances(100, 0))
}

// OpenAccount returns the true outcome even if the first answer was lost.
func TestOpenAccountOverABadWire(t *testing.T) {
	t.Parallel()
	b := bank.New(t)
	for i, what := range []bank.Fault{bank.Lost, bank.AnswerLost} {
		c := b.NewCoordinator(b.Through((&bank.Wire{At: 0, What: what}).Client()))
		_, err := c.OpenAccount(t.Context(), transfer.Account{ID: bank.AccountName(i), Balance: transfer.Units(7)})
		require.NoError(t, err)
		c = b.NewCoordinator(b.Through((&bank.Wire{At: 0, What: what}).Client()))
		_, err = c.OpenAccount(t.Context(), transfer.Account{ID: bank.AccountName(i)})
		require.ErrorIs(t, err, transfer.ErrAccountExists)
	}
	b.CheckBooks(bank.Balances(7, 7))
}

// An account can be debited down to its floor, and without a floor by any amount.
func TestFloors(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 0)
	for _, a := range []transfer.Account{
		{ID: "credit", Floor: transfer.Units(-50)},
		{ID: "locked", Balance: transfer.Units(50), Floor: transfer.Units(20)},
		{ID: "decimal, no floor given", Balance: bank.Decimal(t, "12.50")},
		{ID: "world", NoFloor: true},
	} {
		_, err := b.OpenAccount(t.Context(), a)
		require.NoError(t, err)
	}
	for _, c := range []struct {
		from string
		just int64
	}{{"credit", 50}, {"locked", 30}} {
		_, err := b.Transfer(t.Context(), bank.Move("too much "+c.from, c.from, "a", c.just+1))
		require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
		_, err = b.Transfer(t.Context(), bank.Move("just "+c.from, c.from, "a", c.just))
		require.NoError(t, err)
	}
	_, err := b.Transfer(t.Context(), bank.Move("from outside", "world", "a", 1_000_000))
	require.NoError(t, err)
	for id, want := range map[string]int64{"a": 1_000_080, "credit": -50, "locked": 20, "world": -1_000_000} {
		got, err := b.GetAccount(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, transfer.Units(want), got.Balance, id)
		require.Equal(t, got.Balance, got.Posted, "nothing is in flight")
	}
	// A floor that is raised behind the library's back counts at once.
	_, err = b.DB.Collection("accounts").UpdateByID(t.Context(), "a", bson.D{{Key: "$set", Value: bson.D{{Key: "floor", Value: 1_000_000}}}})
	require.NoError(t, err)
	_, err = b.Transfer(t.Context(), bank.Move("raised", "a", "world", 81))
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
}

// Decimals move exactly. A transfer never mixes kinds of amounts or currencies.
func TestDecimalsAndCurrencies(t *testing.T) {
	t.Parallel()
	b := bank.New(t)
	for _, a := range []transfer.Account{
		{ID: "a", Balance: bank.Decimal(t, "0.300000000001"), Currency: "EUR"},
		{ID: "b", Balance: bank.Decimal(t, "0"), Currency: "EUR"},
		{ID: "units", Balance: transfer.Units(10), Currency: "EUR"},
		{ID: "dollars", Balance: bank.Decimal(t, "1"), Currency: "USD"},
		{ID: "none", Balance: bank.Decimal(t, "1")},
	} {
		_, err := b.OpenAccount(t.Context(), a)
		require.NoError(t, err)
	}
	pay := func(id, to, currency, amount string) error {
		_, err := b.Transfer(t.Context(), transfer.Request{ID: id, From: "a", To: to, Amount: bank.Decimal(t, amount), Currency: currency})
		return err
	}
	require.NoError(t, pay("1", "b", "EUR", "0.10"))
	require.NoError(t, pay("2", "b", "EUR", "0.200000000001"))
	require.NoError(t, pay("1", "b", "EUR", "0.1"), "amounts count by value")
	require.ErrorIs(t, pay("3", "b", "EUR", "0.000000000001"), transfer.ErrInsufficientFunds)
	require.ErrorIs(t, pay("4", "units", "EUR", "0.1"), transfer.ErrAmountKind)
	require.ErrorIs(t, pay("5", "dollars", "EUR", "0.1"), transfer.ErrCurrencyMismatch)
	require.ErrorIs(t, pay("6", "none", "EUR", "0.1"), transfer.ErrCurrencyMismatch)
	require.ErrorIs(t, pay("7", "b", "", "0.1"), transfer.ErrCurrencyMismatch)
	for id, want := range map[string]string{"a": "0", "b": "0.300000000001", "dollars": "1", "none": "1"} {
		got, err := b.GetAccount(t.Context(), id)
		require.NoError(t, err)
		require.Zero(t, got.Balance.Cmp(bank.Decimal(t, want)), "%s has %s", id, got.Balance)
		require.Zero(t, got.Posted.Cmp(got.Balance))
	}
	require.Zero(t, b.Unfinished())
}

// A transfer beyond an account's limit of transfers in flight waits for room.
// It is refused when its time is nearly over.
func TestBusyAccount(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.StallAt("in flight", bank.Decision, bank.Lost, 10)
	c := b.NewCoordinator(b.DB, transfer.WithMarkerLimit(1))
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second) // it waits for half of that
	defer cancel()
	rec, err := c.Transfer(ctx, bank.Move("refused", "a", "b", 10))
	require.ErrorIs(t, err, transfer.ErrAccountBusy)
	require.Equal(t, transfer.StateFail, rec.State)
	require.NoError(t, ctx.Err(), "it is told within the caller's time")

	done := make(chan error, 1)
	go func() {
		_, err := c.Transfer(t.Context(), bank.Move("patient", "a", "b", 10))
		done <- err
	}()
	b.RecoverAll()
	require.NoError(t, bank.Within(t, done))
	b.CheckBooks(bank.Balances(100, 0))
}

// One transfer can span collections, databases and clients, and recovery works there too.
func TestLedgers(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100)
	monitor := &event.CommandMonitor{}
	elsewhere := mongotest.Database(t, options.Client().SetMonitor(monitor)) // another client, as of another cluster
	opts := []transfer.Option{
		transfer.WithLedger("savings", b.DB.Collection("savings")),
		transfer.WithLedger("euro", elsewhere.Collection("accounts")),
	}
	c := b.NewCoordinator(b.DB, opts...)
	require.NoError(t, c.Setup(t.Context()))
	for _, ledger := range []string{"savings", "euro"} {
		l, err := c.Ledger(ledger)
		require.NoError(t, err)
		_, err = l.Open(t.Context(), transfer.Account{ID: "a", Balance: transfer.Units(10)})
		require.NoError(t, err)
	}
	_, err := c.Ledger("yen")
	require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	units := transfer.Units
	split := func(id string, euro int64) transfer.Request {
		return transfer.Request{ID: id, Legs: []transfer.Leg{
			{Account: "a", Amount: units(-30 - euro)},
			{Ledger: "savings", Account: "a", Amount: units(30)},
			{Ledger: "euro", Account: "a", Amount: units(euro)},
		}}
	}
	_, err = c.Transfer(t.Context(), split("1", 20))
	require.NoError(t, err)
	_, err = c.Transfer(t.Context(), split("2", -31))
	var refused *transfer.RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "euro", refused.Ledger, "the euro account has 30")
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)

	w := &bank.Wire{Is: bank.Settles.Selector(), What: bank.Lost, Die: true}
	ctx, cancel := context.WithCancel(t.Context())
	w.OnDeath = cancel
	dying := b.NewCoordinator(b.Through(w.Client()), transfer.WithLedger("savings", b.DB.Collection("savings")),
		transfer.WithLedger("euro", elsewhere.Collection("accounts")))
	_, err = dying.Transfer(ctx, split("3", 1))
	bank.RequireUnended(t, err)
	bank.Kill(dying)
	require.Equal(t, 1, b.RecoverAll(opts...).Succeeded)
	bank.RequireLedgers(t, c, map[string]int64{"": 19, "savings": 70, "euro": 31})
}

// With ObjectIDs, account IDs are ObjectIds in the database and hex digits in the API.
// The digits may be of either case.
func TestObjectIDs(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	c := b.NewCoordinator(b.DB, transfer.WithAccountIDs(transfer.ObjectIDs), transfer.WithFields(transfer.Fields{Balance: "credits"}))
	from, to := bson.NewObjectID(), bson.NewObjectID()
	_, err := b.DB.Collection("accounts").InsertOne(t.Context(), bson.D{{Key: "_id", Value: from}, {Key: "credits", Value: 10}})
	require.NoError(t, err)
	_, err = c.OpenAccount(t.Context(), transfer.Account{ID: to.Hex()})
	require.NoError(t, err)
	rec, err := c.Transfer(t.Context(), bank.Move("t", strings.ToUpper(from.Hex()), to.Hex(), 10))
	require.NoError(t, err)
	require.Equal(t, from.Hex(), rec.Legs[0].Account)
	got, err := c.GetAccount(t.Context(), strings.ToUpper(to.Hex()))
	require.NoError(t, err)
	require.Equal(t, transfer.Units(10), got.Balance)
	_, err = c.Transfer(t.Context(), bank.Move("u", from.Hex(), strings.ToUpper(from.Hex()), 10))
	require.ErrorIs(t, err, transfer.ErrInvalidRequest, "one account in two spellings")
	_, err = c.Transfer(t.Context(), bank.Move("v", from.Hex(), "bob", 10))
	require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	require.ErrorContains(t, err, "24 hex digits")
}

// requireAccount requires what an account shows.
func requireAccount(b *bank.Bank, id string, available, posted, incoming int64) {
	b.T.Helper()
	account, err := b.GetAccount(b.T.Context(), id)
	require.NoError(b.T, err)
	want := []transfer.Amount{transfer.Units(available), transfer.Units(posted), transfer.Units(incoming)}
	require.Equal(b.T, want, []transfer.Amount{account.Available, account.Posted, account.Incoming}, "account %s", id)
}

// In each state of a transfer, the payer has posted the money until the transfer is
// recorded, and the payee has it from when it is paid in. A mark that it was paid in is
// neither a debit nor a credit in flight.
func TestAccountBesideTraces(t *testing.T) {
	t.Parallel()
	b := bank.New(t)
	for _, row := range []struct {
		state         string
		payer, payee  bank.Trace
		payersPosted  int64
		payees, comes int64
	}{
		{"Preparing", bank.Reserved, bank.Reserved, 100, 5, 60},
		{"Preparing", bank.Reserved, bank.Done, 100, 65, 0},
		{"Committed", bank.Reserved, bank.Reserved, 40, 5, 60},
		{"Committed", bank.Reserved, bank.Done, 40, 65, 0},
		{"Committed", bank.Reserved, bank.Cleared, 40, 65, 0},
		{"Committed", bank.Cleared, bank.Reserved, 40, 5, 60},
		{"Committed", bank.Cleared, bank.Done, 40, 65, 0},
	} {
		t.Run(fmt.Sprint(row), func(t *testing.T) {
			b.Renew(t, 100, 5)
			b.LeaveTraces("t.1", 60, row.state, row.payer, row.payee)
			requireAccount(b, "a", 40, row.payersPosted, 0)
			requireAccount(b, "b", row.payees, row.payees, row.comes)
			require.Empty(t, b.MustAudit().Findings)
			b.RecoverAll()
			b.CheckBooks(bank.Balances(100, 5))
			requireAccount(b, "a", 40, 40, 0)
			requireAccount(b, "b", 65, 65, 0)
		})
	}
}

// Of a hold of which a part was posted, the rest is in flight until it is paid back. What
// was rolled back is in flight until it is given back.
func TestAccountBesideAPartOfAHold(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 5)
	b.MustHold("t", 60, time.Hour)
	requireAccount(b, "a", 40, 100, 0)
	b.Dying(1, bank.AnswerLost, func(ctx context.Context, c *transfer.Coordinator) error {
		_, err := c.Post(ctx, "t", transfer.PostAmount(transfer.Units(20)))
		return err
	})
	require.Equal(t, "Committed", b.RawTransfer("t").State)
	requireAccount(b, "a", 40, 80, 0)
	b.RecoverAll()
	requireAccount(b, "a", 80, 80, 0)
	b.MustHold("u", 30, time.Hour)
	b.SetField("transfers", "u", "state", "Rollback")
	requireAccount(b, "a", 50, 80, 0)
}

// An account that has no debits in flight is read by one command. One that has some is
// read with their transfers, as both were stored at one time.
func TestTransfersAreReadOnlyWhereDebitsAreInFlight(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 5)
	b.LeaveTraces("t", 60, "Committed", bank.Reserved, bank.Reserved)
	var finds []bson.M
	watched := options.Client().SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName == "find" {
			var command bson.M
			_ = bson.Unmarshal(e.Command, &command)
			finds = append(finds, command)
		}
	}})
	c := b.NewCoordinator(b.Through(watched))
	_, err := c.GetAccount(t.Context(), "b") // and checks the deployment
	require.NoError(t, err)
	for id, want := range map[string]int{"a": 2, "b": 1} {
		finds = nil
		_, err := c.GetAccount(t.Context(), id)
		require.NoError(t, err)
		require.Len(t, finds, want, "account %s", id)
		require.Equal(t, "accounts", finds[0]["find"])
		concern, _ := finds[want-1]["readConcern"].(bson.D)
		require.Equal(t, "snapshot", concern[0].Value)
		if want == 2 {
			require.Equal(t, "transfers", finds[1]["find"])
			require.Equal(t, "atClusterTime", concern[1].Key)
		}
	}
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 5))
}

// An account whose transfers are all committed is closed when their markers are gone,
// which CloseAccount waits for. Done marks are no hindrance.
func TestCloseAccountWaitsForClears(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.LeaveTraces("t", 100, "Committed", bank.Reserved, bank.Done)
	begun, ended := 0, 0
	var clears sync.WaitGroup
	b.HurryUpBy(func(id string) (done func()) {
		require.Equal(t, "t", id)
		begun++
		clears.Go(func() {
			_ = collections.Pause(t.Context(), 100*time.Millisecond)
			b.RecoverAll()
		})
		return func() { ended++ }
	})
	require.NoError(t, b.CloseAccount(t.Context(), "a"))
	clears.Wait()
	require.Equal(t, []int{1, 1}, []int{begun, ended}, "it is hurried up once, and the end is told")
	b.CheckBooks(bank.Balances(100, 0))
}

// Not all that is in flight is waited for: what is undecided may take for ever, and
// waiting takes no money away. What is committed, and is not cleared for long, is in the
// way like anything else.
func TestCloseAccountDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		plant func(b *bank.Bank)
		want  error
		waits bool
	}{
		"undecided": {func(b *bank.Bank) { b.LeaveTraces("t", 100, "Preparing", bank.Reserved, bank.Done) }, transfer.ErrAccountBusy, false},
		"undecided, and not only": {func(b *bank.Bank) {
			b.LeaveTraces("t", 50, "Committed", bank.Reserved, bank.Done)
			b.LeaveTraces("u", 50, "Preparing", bank.Reserved, bank.Reserved)
		}, transfer.ErrAccountBusy, false},
		"of no transfer": {func(b *bank.Bank) {
			b.MustMove("t", 100)
			b.SetField("accounts", "a", "pending.%zz", int64(-1))
		}, transfer.ErrAccountBusy, false},
		"with money left": {func(b *bank.Bank) {
			b.LeaveTraces("t", 60, "Committed", bank.Reserved, bank.Done)
		}, transfer.ErrAccountNotEmpty, false},
		"never cleared": {func(b *bank.Bank) { b.LeaveTraces("t", 100, "Committed", bank.Reserved, bank.Done) }, transfer.ErrAccountBusy, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0)
			row.plant(b)
			ahead, waits := b.ClockAhead(), false
			b.HurryUpBy(func(string) func() {
				waits = true
				ahead(transfer.ClearPatience)
				return func() {}
			})
			require.ErrorIs(t, b.CloseAccount(t.Context(), "a"), row.want)
			require.Equal(t, row.waits, waits)
		})
	}
}

// Whoever is paid, and has spent it, can close the account, done mark or not.
func TestCloseAccountBesideADoneMark(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.LeaveTraces("t", 100, "Committed", bank.Cleared, bank.Done)
	_, err := b.Transfer(t.Context(), bank.Move("back", "b", "a", 100))
	require.NoError(t, err)
	require.NoError(t, b.CloseAccount(t.Context(), "b"))
	require.Empty(t, b.MustAudit().Findings)
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 0))
}
