package checkout_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/examples/checkout"
	"github.com/mongotransfer/transfer/transfertest"
)

// accounts are the verbs by which the tests prepare and look at accounts.
type accounts interface {
	OpenAccount(ctx context.Context, a transfer.Account) (transfer.Account, error)
	GetAccount(ctx context.Context, id string) (transfer.Account, error)
}

// openAccounts opens the shop's account, and that of a customer who has 100.
func openAccounts(t *testing.T, payments accounts) {
	t.Helper()
	for _, account := range []transfer.Account{{ID: "alice", Balance: transfer.Units(100)}, {ID: "shop"}} {
		if _, err := payments.OpenAccount(t.Context(), account); err != nil {
			t.Fatal(err)
		}
	}
}

// requireBalances fails the test unless the customer and the shop have so much.
func requireBalances(t *testing.T, payments accounts, alice, shop int64) {
	t.Helper()
	for id, want := range map[string]int64{"alice": alice, "shop": shop} {
		account, err := payments.GetAccount(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if account.Balance != transfer.Units(want) {
			t.Fatalf("%s has %s, and not %d", id, account.Balance, want)
		}
	}
}

// newShop returns a checkout that needs no server.
func newShop(t *testing.T) (*checkout.Checkout, *transfertest.Fake) {
	t.Helper()
	fake := transfertest.NewFake(t)
	openAccounts(t, fake)
	return checkout.New(fake), fake
}

func requireNoError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestSentOrderIsPaid(t *testing.T) {
	shop, fake := newShop(t)
	requireNoError(t, shop.Order(t.Context(), "17", "alice", transfer.Units(60)))
	requireBalances(t, fake, 40, 0)
	requireNoError(t, shop.Send(t.Context(), "17"))
	requireBalances(t, fake, 40, 60)
}

func TestCancelledOrderIsPaidBack(t *testing.T) {
	shop, fake := newShop(t)
	requireNoError(t, shop.Order(t.Context(), "17", "alice", transfer.Units(60)))
	requireNoError(t, shop.Cancel(t.Context(), "17"))
	requireBalances(t, fake, 100, 0)
	if err := shop.Send(t.Context(), "17"); !errors.Is(err, checkout.ErrTooLate) {
		t.Fatal(err)
	}
	requireBalances(t, fake, 100, 0)
}

func TestCustomerWithoutMoney(t *testing.T) {
	shop, fake := newShop(t)
	err := shop.Order(t.Context(), "17", "alice", transfer.Units(101))
	if !errors.Is(err, checkout.ErrNoMoney) {
		t.Fatal(err)
	}
	requireBalances(t, fake, 100, 0)
}

// The answer is lost, and the customer pays once.
func TestLostAnswers(t *testing.T) {
	shop, fake := newShop(t)
	fake.InDoubt("order-17")
	requireNoError(t, shop.Order(t.Context(), "17", "alice", transfer.Units(60)))
	fake.InDoubt("order-17")
	requireNoError(t, shop.Send(t.Context(), "17"))
	requireBalances(t, fake, 40, 60)
}

// interrupted are payments to which something happens once the first hold was answered.
type interrupted struct {
	*transfertest.Fake
	happens func()
	away    error // what the holds answer that come while the server is away
	holds   int
}

func (p *interrupted) Hold(ctx context.Context, req transfer.Request, expiresIn time.Duration) (transfer.Record, error) {
	p.holds++
	if p.away != nil {
		return transfer.Record{}, p.away
	}
	rec, err := p.Fake.Hold(ctx, req, expiresIn)
	p.happens()
	return rec, err
}

// The customer has left when the answer is lost. Nobody asks again, and nobody says that
// nothing is held.
func TestCustomerHasLeft(t *testing.T) {
	_, fake := newShop(t)
	ctx, leave := context.WithCancel(t.Context())
	payments := &interrupted{Fake: fake, happens: leave}
	fake.InDoubt("order-17")
	err := checkout.New(payments).Order(ctx, "17", "alice", transfer.Units(60))
	if !errors.Is(err, transfer.ErrInDoubt) || payments.holds != 1 {
		t.Fatal(payments.holds, err)
	}
	requireBalances(t, fake, 40, 0)
}

// The answer is lost, and then the server is away. That the later calls have stored
// nothing doesn't say that nothing is held.
func TestServerIsAway(t *testing.T) {
	_, fake := newShop(t)
	payments := &interrupted{Fake: fake}
	payments.happens = func() { payments.away = transfer.ErrClosed }
	fake.InDoubt("order-17")
	err := checkout.New(payments).Order(t.Context(), "17", "alice", transfer.Units(60))
	if !errors.Is(err, transfer.ErrInDoubt) || payments.holds != 3 {
		t.Fatal(payments.holds, err)
	}
	requireBalances(t, fake, 40, 0)
}

// A refusal that the checkout doesn't know reaches its caller.
func TestFrozenAccount(t *testing.T) {
	shop, fake := newShop(t)
	fake.Fail("order-17", transfer.ErrAccountFrozen)
	err := shop.Order(t.Context(), "17", "alice", transfer.Units(60))
	if !errors.Is(err, transfer.ErrAccountFrozen) {
		t.Fatal(err)
	}
}

// The goods are packed for eight days, and the customer has the money back.
func TestForgottenOrder(t *testing.T) {
	shop, fake := newShop(t)
	requireNoError(t, shop.Order(t.Context(), "17", "alice", transfer.Units(60)))
	fake.Advance(8 * 24 * time.Hour)
	requireBalances(t, fake, 100, 0)
	if err := shop.Send(t.Context(), "17"); !errors.Is(err, checkout.ErrTooLate) {
		t.Fatal(err)
	}
}

// One test of the checkout uses a server, and the audit finds nothing at its end.
func TestOnAServer(t *testing.T) {
	coord := transfertest.NewCoordinator(t)
	openAccounts(t, coord)
	shop := checkout.New(coord)
	requireNoError(t, shop.Order(t.Context(), "17", "alice", transfer.Units(60)))
	requireNoError(t, shop.Send(t.Context(), "17"))
	requireBalances(t, coord, 40, 60)
}
