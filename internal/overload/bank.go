package overload

import (
	"context"
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	transfer "github.com/mongotransfer/transfer"
)

const (
	// accounts is the number of accounts in each ledger.
	// Each has so much money that no transfer is ever refused.
	accounts = 1000
	wealth   = 1_000_000_000
	// defaultPending is how many transfers the library claims at most before it finishes
	// some, by default.
	defaultPending = 2048
	// mostInFlight is how many commands the library sends to one cluster at once at most,
	// by default.
	// It counts those that are overdue as well.
	mostInFlight = 8
	// drainLimit is how long the transfers in progress may take to end after the last
	// answer.
	// After giveUp, waiting is no use.
	drainLimit = 5 * time.Second
	giveUp     = 2 * time.Minute
)

// bank is a number of ledgers of accounts, on one server or several.
type bank struct {
	scene    *scene
	database string
	// servers holds the connection string of each ledger.
	servers map[string]string
	// observer reaches the servers directly, and moves no money.
	observer *member
	issued   atomic.Int64
}

// open returns a bank.
// Its default ledger is on the home server, and the others are where servers says.
func (s *scene) open(ctx context.Context, servers map[string]string) (*bank, error) {
	b := &bank{scene: s, database: "overload_" + strings.ToLower(crand.Text()[:12]), servers: map[string]string{"": s.Home}}
	for ledger, uri := range servers {
		b.servers[ledger] = uri
	}
	var err error
	if b.observer, err = b.join(ctx, nil); err != nil {
		return nil, err
	}
	for ledger, c := range b.observer.clusters {
		documents := make([]any, accounts)
		for i := range documents {
			documents[i] = bson.D{{Key: "_id", Value: account(i)}, {Key: "balance", Value: int64(wealth)}}
		}
		if _, err := b.accounts(c, ledger).InsertMany(ctx, documents); err != nil {
			return nil, err
		}
	}
	s.later(func() error {
		return b.observer.home().client.Database(b.database).Drop(context.Background())
	})
	return b, nil
}

func account(i int) string { return fmt.Sprintf("account-%04d", i) }

// move returns a new transfer of one unit between two accounts that are drawn at random.
// It leaves out the accounts below first, which other callers use.
func (b *bank) move(first int) transfer.Request {
	from := first + rand.IntN(accounts-first)
	to := first + (from-first+1+rand.IntN(accounts-first-1))%(accounts-first)
	return transfer.Request{ID: b.id(), From: account(from), To: account(to), Amount: transfer.Units(1)}
}

// across returns a new transfer from an account of one ledger to one of another.
func (b *bank) across(from, to string) transfer.Request {
	return transfer.Request{ID: b.id(), Legs: []transfer.Leg{
		{Ledger: from, Account: account(rand.IntN(accounts)), Amount: transfer.Units(-1)},
		{Ledger: to, Account: account(rand.IntN(accounts)), Amount: transfer.Units(1)},
	}}
}

func (b *bank) id() string { return fmt.Sprintf("t-%08d", b.issued.Add(1)) }

// unfinished returns how many transfers are claimed and not final.
func (b *bank) unfinished(ctx context.Context) (int64, error) {
	return b.transfers(b.observer).CountDocuments(ctx, bson.D{
		{Key: "open", Value: true},
		{Key: "state", Value: bson.D{{Key: "$in", Value: bson.A{"Preparing", "Committed", "Rollback"}}}},
	})
}

// stored returns how many transfers are stored.
func (b *bank) stored(ctx context.Context) (int64, error) {
	return b.transfers(b.observer).EstimatedDocumentCount(ctx)
}

// watchClaimed counts the transfers that are claimed and not final, again and again.
// The returned function ends that, and returns the largest count.
func (b *bank) watchClaimed(ctx context.Context) (most func() (int64, error)) {
	const period = 200 * time.Millisecond
	ctx, cancel := context.WithCancel(ctx)
	type answer struct {
		most int64
		err  error
	}
	told := make(chan answer, 1)
	go func() {
		var a answer
		for pause(ctx, period) && a.err == nil {
			var n int64
			if n, a.err = b.unfinished(context.WithoutCancel(ctx)); n > a.most {
				a.most = n
			}
		}
		told <- a
	}()
	return func() (int64, error) {
		cancel()
		a := <-told
		return a.most, a.err
	}
}

// drained waits until no transfer is submitted or in progress, and returns how long that
// took.
// It reads what a majority has, as the audit does that follows.
func (b *bank) drained(ctx context.Context) (time.Duration, error) {
	durable := b.transfers(b.observer).Clone(options.Collection().SetReadConcern(readconcern.Majority()))
	took, done, err := eventually(ctx, giveUp, func() (bool, error) {
		n, err := durable.CountDocuments(ctx, bson.D{{Key: "open", Value: true}})
		return n == 0, err
	})
	if err == nil && !done {
		b.scene.note("still under way", "after "+giveUp.String())
	}
	return took, err
}

// audit checks that no transfer is in progress, and that no unit is lost or minted.
func (b *bank) audit(ctx context.Context) error {
	sum := transfer.Units(int64(len(b.servers)) * accounts * wealth)
	report, err := b.observer.AuditWith(ctx, transfer.AuditOptions{Expected: []transfer.ExpectedTotal{{Sum: sum}}})
	if err != nil {
		return err
	}
	b.scene.atMost("unfinished transfers in the end", int64(report.Unfinished), 0)
	b.scene.atMost("findings of the audit", int64(len(report.Findings)+report.Omitted), 0)
	for i, f := range report.Findings {
		if i < 3 {
			b.scene.note("finding", f)
		}
	}
	return nil
}
