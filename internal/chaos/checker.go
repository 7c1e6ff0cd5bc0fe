package chaos

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
)

const (
	// snapshotPause is the time between two snapshots.
	snapshotPause = 100 * time.Millisecond
	// snapshotLimit is how long a snapshot may take, since the primary may be dead.
	snapshotLimit = 5 * time.Second
)

// checker reads snapshots while the load runs, and checks each of them.
type checker struct {
	// db is reached directly, and not over the wires.
	db *mongo.Database
	// put is how much money was put in, by currency.
	put      map[string]int64
	findings *findings

	mu     sync.Mutex
	good   int
	failed int // attempts that failed: the set may have no primary
	moving int // snapshots with money in transit
	// the decisions that snapshots have shown, by transfer
	seen map[string]transfer.State
}

// work checks until the context ends.
func (c *checker) work(ctx context.Context) {
	for pause(ctx, snapshotPause) {
		limited, cancel := context.WithTimeout(ctx, snapshotLimit)
		accounts, reserved, transfers, err := c.snapshot(limited)
		cancel()
		c.mu.Lock()
		if err != nil {
			c.failed++
		} else {
			c.good++
			c.check(accounts, transfers)
			c.checkOrders(reserved, transfers)
		}
		c.mu.Unlock()
	}
}

// snapshot reads all accounts, the orders that are reserved, and the transfers that have
// markers there, as they were at one moment.
func (c *checker) snapshot(ctx context.Context) (map[string]accountDocument, []orderDocument, map[string]transferDocument, error) {
	session, err := c.db.Client().StartSession(options.Session().SetSnapshot(true))
	if err != nil {
		return nil, nil, nil, err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	ctx = mongo.NewSessionContext(ctx, session)
	var found []accountDocument
	if err := readAll(ctx, c.db.Collection("accounts"), bson.D{}, &found); err != nil {
		return nil, nil, nil, err
	}
	var ordered []orderDocument
	if err := readAll(ctx, c.db.Collection(orders), reserved(), &ordered); err != nil {
		return nil, nil, nil, err
	}
	accounts, marked := map[string]accountDocument{}, map[string]bool{}
	for _, a := range found {
		accounts[a.ID] = a
		for key := range a.Pending {
			id, _ := traceOf(key)
			marked[id] = true
		}
	}
	for _, o := range ordered {
		for key := range o.Pending {
			id, _ := traceOf(key)
			marked[id] = true
		}
	}
	var stored []transferDocument
	ids := slices.AppendSeq([]string{}, maps.Keys(marked))
	if err := readAll(ctx, c.db.Collection("transfers"), bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}, &stored); err != nil {
		return nil, nil, nil, err
	}
	transfers := map[string]transferDocument{}
	for _, t := range stored {
		transfers[t.ID] = t
	}
	return accounts, ordered, transfers, nil
}

func readAll(ctx context.Context, from *mongo.Collection, filter bson.D, into any) error {
	cursor, err := from.Find(ctx, filter)
	if err != nil {
		return err
	}
	return cursor.All(ctx, into)
}

// check checks one snapshot.
func (c *checker) check(accounts map[string]accountDocument, transfers map[string]transferDocument) {
	sums, transit := map[string]int64{}, map[string]int64{} // by currency
	for _, a := range accounts {
		currency := currencyOf(a.ID)
		sums[currency] += a.Balance
		for key, amount := range a.Pending {
			id, done := traceOf(key)
			t, stored := transfers[id]
			wrong := misplaced(a, id, amount, t, stored)
			if wrong == "" && done {
				wrong = misdone(a, id, amount, t)
			}
			if wrong != "" {
				c.findings.add("marker "+a.ID+" "+id, "%s\n%s", wrong, story(map[string]accountDocument{a.ID: a}, map[string]transferDocument{id: t}))
			}
			if done {
				transit[currency] -= t.paidIn(amount)
			} else {
				transit[currency] += t.waiting(amount)
			}
		}
		if a.Balance < a.Floor {
			c.findings.add("floor "+a.ID, "account %s has less than its floor\n    %s", a.ID, a)
		}
		if a.Closed && reservations(a.Pending) > 0 {
			c.findings.add("closed "+a.ID, "account %s is closed and has markers\n    %s", a.ID, a)
		}
	}
	moving := false
	for currency, put := range c.put {
		if more := sums[currency] + transit[currency] - put; more != 0 {
			c.findings.add(fmt.Sprintf("sum %d %s", more, currency), "currency %q: %d were put in; the balances are %d, in transit are %d\n%s",
				currency, put, sums[currency], transit[currency], story(accounts, transfers))
		}
		moving = moving || transit[currency] > 0
	}
	if moving {
		c.moving++
	}
	for id, t := range transfers {
		c.follow(id, t)
	}
}

// checkOrders checks the orders that are reserved in a snapshot.
func (c *checker) checkOrders(reserved []orderDocument, transfers map[string]transferDocument) {
	for _, o := range reserved {
		if wrong := misreserved(o, transfers); wrong != "" {
			c.findings.add("order "+o.ID, "order %s %s\n    %s", o.ID, wrong, o)
		}
	}
}

// misplaced returns what is wrong with a marker, or "".
func misplaced(a accountDocument, id string, amount int64, t transferDocument, stored bool) string {
	if !stored || !t.live() {
		return fmt.Sprintf("account %s has a marker of transfer %s, which is %q", a.ID, id, t.State)
	}
	for _, leg := range t.Legs {
		if leg.Account == a.ID && leg.Amount == amount {
			return ""
		}
	}
	return fmt.Sprintf("account %s has a marker of transfer %s with an amount that is none of its legs", a.ID, id)
}

// misdone returns what is wrong with a done mark, or "". A transfer that is rolled back
// pays nobody, and a hold or a reversal leaves no such mark.
func misdone(a accountDocument, id string, amount int64, t transferDocument) string {
	_, reserved := a.Pending[id]
	if t.State == transfer.StateRollback || t.Hold || t.Reverses != "" || amount < 0 || reserved {
		return fmt.Sprintf("account %s has a done mark of %d of transfer %s, which leaves none there", a.ID, amount, id)
	}
	return ""
}

// follow checks that the first decision that a snapshot showed is the only one.
// A snapshot may be older than the one before it, if another primary took it.
func (c *checker) follow(id string, t transferDocument) {
	if t.State != transfer.StateCommitted && t.State != transfer.StateRollback {
		return
	}
	if before, decided := c.seen[id]; decided && before != t.State {
		c.findings.add("decision "+id, "transfer %s was %s, and then %s\n    %s", id, before, t.State, t)
	}
	c.seen[id] = t.State
}

// decided returns the decisions that snapshots have shown, by transfer.
func (c *checker) decided() map[string]transfer.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.seen)
}
