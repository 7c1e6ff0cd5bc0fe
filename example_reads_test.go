package transfer_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
)

// The accounts are walked through in pages of two.
// Another process could go on with the next page.
func ExampleCoordinator_Accounts() {
	ctx := context.Background()
	coord, end := exampleBank(ctx) // alice has 100, bob has nothing
	defer end()
	for _, id := range []string{"carol", "dave", "erin"} {
		if _, err := coord.OpenAccount(ctx, transfer.Account{ID: id, Balance: transfer.Units(5)}); err != nil {
			fmt.Println(err)
			return
		}
	}

	query := transfer.AccountQuery{Limit: 2}
	for page := 1; ; page++ {
		count := 0
		for account, err := range coord.Accounts(ctx, query) {
			if err != nil {
				fmt.Println(err)
				return
			}
			fmt.Printf("page %d: %-5s %3s\n", page, account.ID, account.Balance)
			query.Beyond = account.ID
			count++
		}
		if count < query.Limit {
			return
		}
	}
	// Output:
	// page 1: alice 100
	// page 1: bob     0
	// page 2: carol   5
	// page 2: dave    5
	// page 3: erin    5
}

// An account is frozen, and unfrozen with a higher floor.
func ExampleCoordinator_UpdateAccount() {
	ctx := context.Background()
	coord, end := exampleBank(ctx) // alice has 100, bob has nothing
	defer end()

	yes, no, floor := true, false, transfer.Units(50)
	account, err := coord.UpdateAccount(ctx, "alice", transfer.AccountChange{
		Frozen: &yes, Metadata: map[string]any{"case": "2026-114"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(account.ID, "is frozen:", account.Frozen, account.Metadata["case"])

	pay := func(id string) {
		_, err := coord.Transfer(ctx, transfer.Request{ID: id, From: "alice", To: "bob", Amount: transfer.Units(60)})
		switch {
		case errors.Is(err, transfer.ErrAccountFrozen):
			fmt.Println(id, "is refused: the account is frozen")
		case errors.Is(err, transfer.ErrInsufficientFunds):
			fmt.Println(id, "is refused: 50 have to stay")
		default:
			fmt.Println(id, err)
		}
	}
	pay("rent-1")
	if _, err = coord.UpdateAccount(ctx, "alice", transfer.AccountChange{Frozen: &no, Floor: &floor}); err != nil {
		fmt.Println(err)
		return
	}
	pay("rent-2")
	// Output:
	// alice is frozen: true 2026-114
	// rent-1 is refused: the account is frozen
	// rent-2 is refused: 50 have to stay
}

// A list is shown page by page, newest first.
// Each page goes on behind the last record of the page before.
func ExampleQuery_pages() {
	err := inBank(func(ctx context.Context, _ *mongo.Database, coord *transfer.Coordinator) error {
		for _, id := range []string{"order-1", "order-2", "order-3", "order-4", "order-5"} {
			_, err := coord.Transfer(ctx, transfer.Request{ID: id, From: "alice", To: "bob", Amount: transfer.Units(100)})
			if err != nil {
				return err
			}
		}
		query := transfer.Query{Account: "alice", Limit: 2}
		n, err := coord.Count(ctx, query)
		if err != nil {
			return err
		}
		fmt.Println(n, "transfers")
		for page := 1; ; page++ {
			var last string
			for rec, err := range coord.List(ctx, query) {
				if err != nil {
					return err
				}
				fmt.Println("page", page, rec.ID)
				last = rec.ID
			}
			if last == "" {
				return nil
			}
			query.Beyond = last
		}
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// 5 transfers
	// page 1 order-5
	// page 1 order-4
	// page 2 order-3
	// page 2 order-2
	// page 3 order-1
}

// Holds that soon give their money back are found by the time when they expire.
func ExampleCoordinator_Count() {
	err := inBank(func(ctx context.Context, _ *mongo.Database, coord *transfer.Coordinator) error {
		for id, expiresIn := range map[string]time.Duration{"taxi": time.Hour, "hotel": 7 * 24 * time.Hour} {
			_, err := coord.Hold(ctx, transfer.Request{ID: id, From: "alice", To: "bob", Amount: transfer.Units(100)}, expiresIn)
			if err != nil {
				return err
			}
		}
		tomorrow := time.Now().Add(24 * time.Hour)
		for name, query := range map[string]transfer.Query{
			"held": {Holds: true}, "expiring": {ExpiresBefore: tomorrow}, "overdue": {ExpiresBefore: time.Now()},
		} {
			n, err := coord.Count(ctx, query)
			if err != nil {
				return err
			}
			fmt.Println(name, n)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Unordered output:
	// held 2
	// expiring 1
	// overdue 0
}

// A sum begins with the zero value, whichever kind is added.
// Of what can't be added there is an error, never a wrong number.
func ExampleAmount_Add() {
	var total transfer.Amount
	for _, text := range []string{"12.50", "0.75", "-3.25"} {
		price, err := transfer.ParseDecimal(text)
		if err != nil {
			fmt.Println(err)
			return
		}
		if total, err = total.Add(price); err != nil {
			fmt.Println(err)
			return
		}
	}
	n, whole := total.Int64()
	fmt.Println(total, n, whole)
	_, err := total.Add(transfer.Units(1))
	fmt.Println(err)
	// Output:
	// 10.00 10 true
	// whole units and decimals can't be added
}

// Alice sells euros for dollars.
// Each currency sums to zero by itself: the euros go to the house, and the dollars come
// from it, by one transfer. The quote that the amounts were computed from is stored with
// it.
func ExampleCoordinator_Transfer_exchange() {
	ctx := context.Background()
	db, drop := exampleDatabase(ctx)
	defer drop()
	coord, err := transfer.NewCoordinator(db)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = coord.Close(ctx) }()
	if err := coord.Setup(ctx); err != nil {
		fmt.Println(err)
		return
	}
	for _, account := range []transfer.Account{
		{ID: "alice-eur", Currency: "EUR", Balance: decimal("100.00")},
		{ID: "alice-usd", Currency: "USD", Balance: decimal("0.00")},
		{ID: "house-eur", Currency: "EUR", Balance: decimal("0.00")},
		{ID: "house-usd", Currency: "USD", Balance: decimal("5000.00")},
	} {
		if _, err := coord.OpenAccount(ctx, account); err != nil {
			fmt.Println(err)
			return
		}
	}

	rec, err := coord.Transfer(ctx, transfer.Request{
		ID: "sale-7",
		Legs: []transfer.Leg{
			{Account: "alice-eur", Amount: decimal("-60.00"), Currency: "EUR"},
			{Account: "house-eur", Amount: decimal("60.00"), Currency: "EUR"},
			{Account: "house-usd", Amount: decimal("-65.10"), Currency: "USD"},
			{Account: "alice-usd", Amount: decimal("65.10"), Currency: "USD"},
		},
		Metadata: map[string]any{"quote": "q-1234", "rate": "1.0850"},
	})
	if err != nil {
		fmt.Println(err) // the house may be out of dollars: then no euros moved
		return
	}
	for _, leg := range rec.Legs {
		fmt.Println(leg.Account, leg.Amount, leg.Currency)
	}
	fmt.Println("at", rec.Metadata["rate"])

	dollars, err := coord.GetAccount(ctx, "alice-usd")
	fmt.Println("alice has", dollars.Balance, dollars.Currency, err)
	// Output:
	// alice-eur -60.00 EUR
	// house-eur 60.00 EUR
	// house-usd -65.10 USD
	// alice-usd 65.10 USD
	// at 1.0850
	// alice has 65.10 USD <nil>
}

// decimal returns a decimal amount for an example.
func decimal(text string) transfer.Amount {
	amount, err := transfer.ParseDecimal(text)
	if err != nil {
		panic(err)
	}
	return amount
}

// Transfers are found by their metadata.
func ExampleCoordinator_List() {
	err := inBank(func(ctx context.Context, _ *mongo.Database, coord *transfer.Coordinator) error {
		for i, order := range []string{"A7", "B2", "A7"} {
			_, err := coord.Transfer(ctx, transfer.Request{
				ID: fmt.Sprint("payment-", i+1), From: "alice", To: "bob", Amount: transfer.Units(100),
				Metadata: map[string]any{"order": order},
			})
			if err != nil {
				return err
			}
		}
		query := transfer.Query{Account: "alice", Metadata: map[string]any{"order": "A7"}}
		for rec, err := range coord.List(ctx, query) {
			if err != nil {
				return err
			}
			fmt.Println(rec.ID, rec.Metadata["order"])
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// payment-3 A7
	// payment-1 A7
}

// A payment is stuck because bob's account was deleted in the middle of it. List shows it
// with the reason. Once the document is back, a worker finishes it, or a sweep that
// doesn't wait.
func ExampleQuery_stuck() {
	err := inBank(func(ctx context.Context, db *mongo.Database, coord *transfer.Coordinator) error {
		accounts := db.Collection("accounts")
		_, err := coord.Transfer(ctx, transfer.Request{ID: "order-17", From: "alice", To: "bob", Amount: transfer.Units(6_000)})
		if err != nil {
			return err
		}
		document, err := inTheMiddle(ctx, db, "order-17", "bob")
		if err != nil {
			return err
		}
		atOnce, err := transfer.NewCoordinator(db, transfer.WithStallThreshold(0))
		if err != nil {
			return err
		}
		defer func() { _ = atOnce.Close(ctx) }()
		report, err := atOnce.Recover(ctx)
		if err != nil {
			return err
		}
		fmt.Println("stuck:", report.Stuck)
		for rec, err := range coord.List(ctx, transfer.Query{Stuck: true}) {
			if err != nil {
				return err
			}
			fmt.Println(rec.ID, rec.State, rec.Stuck.Message)
		}
		if _, err := accounts.InsertOne(ctx, document); err != nil {
			return err
		}
		report, err = atOnce.Recover(ctx)
		fmt.Println("succeeded:", report.Succeeded)
		return err
	}, transfer.WithReturnAt(transfer.AtSuccess)) // so that no work is left when the account goes
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// stuck: 1
	// order-17 Committed account "bob" is gone
	// succeeded: 1
}

// The server removes final transfers after ninety days. Their IDs are forgotten then, so
// no caller may repeat a transfer that late.
func ExampleWithRetention() {
	const ninetyDays = 90 * 24 * time.Hour
	err := inBank(func(ctx context.Context, _ *mongo.Database, coord *transfer.Coordinator) error {
		_, err := coord.Transfer(ctx, transfer.Request{ID: "order-17", From: "alice", To: "bob", Amount: transfer.Units(6_000)})
		if err != nil {
			return err
		}
		rec, err := coord.Wait(ctx, "order-17") // the time is known once it is final
		if err != nil {
			return err
		}
		fmt.Println(rec.State, "and kept for", rec.PurgeAt.Sub(rec.LastModified))
		return nil
	}, transfer.WithRetention(ninetyDays))
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// Success and kept for 2160h0m0s
}

// A payout is submitted before the money for it is there. It waits for it until the end
// of the month, say, and its record says so.
func ExampleRequest_awaitFundsUntil() {
	err := inBank(func(ctx context.Context, _ *mongo.Database, coord *transfer.Coordinator) error {
		working, stop := context.WithCancel(ctx)
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- coord.Run(working) }()
		rec, err := coord.Submit(ctx, transfer.Request{
			ID: "payout", From: "bob", To: "alice", Amount: transfer.Units(100),
			AwaitFundsUntil: time.Now().Add(30 * 24 * time.Hour),
		})
		look := time.NewTicker(50 * time.Millisecond)
		defer look.Stop()
		for err == nil && rec.Waiting == nil {
			<-look.C
			rec, err = coord.Get(ctx, "payout")
		}
		if err != nil {
			return err
		}
		fmt.Println(rec.State, rec.Waiting.Code, rec.Waiting.Account, rec.Failure == nil)
		_, err = coord.Transfer(ctx, transfer.Request{
			ID: "salary", From: "alice", To: "bob", Amount: transfer.Units(100),
		})
		if err != nil {
			return err
		}
		rec, err = coord.Wait(ctx, "payout")
		if err != nil {
			return err
		}
		fmt.Println(rec.State)
		stop()
		return <-ended
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// Initiated insufficientFunds bob true
	// Success
}

// The person on call asks where a transfer stands, and what to do about it.
func ExampleCoordinator_Explain() {
	ctx := context.Background()
	coord, end := exampleBank(ctx) // alice has 100, bob has nothing
	defer end()
	req := transfer.Request{ID: "order-17", From: "alice", To: "bob", Amount: transfer.Units(60)}
	if _, err := coord.Hold(ctx, req, time.Hour); err != nil {
		fmt.Println(err)
		return
	}

	e, err := coord.Explain(ctx, "order-17")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range e.Participants {
		fmt.Println(p.State, p.Account, p.Amount)
	}
	fmt.Println("left:", e.Left)
	fmt.Println("it goes back by itself:", e.NextTry.Equal(e.Record.ExpiresAt))
	// Output:
	// reserved alice -60
	// reserved bob 60
	// left: to be posted or voided
	// it goes back by itself: true
}

// A dashboard shows what is unfinished.
func ExampleCoordinator_Stats() {
	ctx := context.Background()
	coord, end := exampleBank(ctx) // alice has 100, bob has nothing
	defer end()
	req := transfer.Request{ID: "order-17", From: "alice", To: "bob", Amount: transfer.Units(60)}
	if _, err := coord.Hold(ctx, req, time.Hour); err != nil {
		fmt.Println(err)
		return
	}

	stats, err := coord.Stats(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("held:", stats.Held, "stuck:", stats.Stuck, "something is due:", !stats.Oldest.IsZero())
	// Output:
	// held: 1 stuck: 0 something is due: false
}

// An observer is told of each call.
// One for OpenTelemetry is in the package transferotel.
func ExampleWithObserver() {
	ctx := context.Background()
	observer := transfer.Observer{
		TransferDone: func(i transfer.TransferInfo) {
			fmt.Println(i.Verb, i.ID, i.Outcome)
		},
	}
	coord, end := exampleBank(ctx, transfer.WithObserver(observer)) // alice has 100, bob has nothing
	defer end()
	for _, units := range []int64{60, 600} {
		id := fmt.Sprint("order-", units)
		_, err := coord.Transfer(ctx, transfer.Request{ID: id, From: "alice", To: "bob", Amount: transfer.Units(units)})
		if err != nil && !errors.Is(err, transfer.ErrInsufficientFunds) {
			fmt.Println(err)
		}
	}
	// Output:
	// transfer order-60 Moved
	// transfer order-600 Failed
}

// A readiness probe asks whether the process can work: its servers answer, and its Run,
// if it was started, works.
func ExampleCoordinator_Healthy() {
	ctx := context.Background()
	coord, end := exampleBank(ctx)
	defer end()
	ready := func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		if err := coord.Healthy(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}

	probe := func() int {
		answer := httptest.NewRecorder()
		ready(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		return answer.Code
	}
	fmt.Println(probe())
	if err := coord.Close(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Println(probe())
	// Output:
	// 200
	// 503
}
