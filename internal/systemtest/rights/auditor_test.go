package rights

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
)

// scribe counts a client's writing commands.
type scribe struct {
	mu                sync.Mutex
	tried, successful []string
}

func writes(command string) bool {
	switch command {
	case "find", "getMore", "hello", "aggregate", "listCollections", "listIndexes", "endSessions", "killCursors":
		return false
	}
	return true
}

func (s *scribe) client() *options.ClientOptions {
	return options.Client().SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if writes(e.CommandName) {
				s.tried = append(s.tried, e.CommandName)
			}
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if writes(e.CommandName) {
				s.successful = append(s.successful, e.CommandName)
			}
		},
	})
}

// seen returns the writes that were tried, and those that have succeeded, since its last
// call.
func (s *scribe) seen() (tried, successful []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tried, successful = s.tried, s.successful
	s.tried, s.successful = nil, nil
	return tried, successful
}

// stored returns everything in the database.
func (v *guarded) stored() map[string][]bson.Raw {
	v.t.Helper()
	names, err := v.root.ListCollectionNames(v.t.Context(), bson.D{})
	require.NoError(v.t, err)
	all := map[string][]bson.Raw{}
	for _, name := range names {
		cursor, err := v.root.Collection(name).Find(v.t.Context(), bson.D{})
		require.NoError(v.t, err)
		var documents []bson.Raw
		require.NoError(v.t, cursor.All(v.t.Context(), &documents))
		all[name] = documents
	}
	return all
}

// statement returns the entries of a statement, and the error after them.
func statement(ctx context.Context, c *transfer.Coordinator, ledger string, q transfer.StatementQuery) ([]transfer.Entry, error) {
	l, err := c.Ledger(ledger)
	if err != nil {
		return nil, err
	}
	account := "rich"
	if ledger != "" {
		account = "piggy"
	}
	var entries []transfer.Entry
	for e, err := range l.Statement(ctx, account, q) {
		if err != nil {
			return entries, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// An auditor reads everything and writes nothing. An audit by a user who could write
// writes nothing either.
// Before an undecided hold the auditor reads what is certain, and then an error that says
// that the rest is not.
func (v *guarded) auditorOnlyReads() {
	t := v.t
	v.withSavings()
	books := &scribe{}
	full := withOrders(readRole(t, "service"))
	_, served := v.user(full, books.client())
	_, far := v.user(full, books.client())
	service := v.over(served, transfer.WithLedger("savings", far.Collection("savings")))
	both := func(id string) transfer.Request {
		return transfer.Request{ID: id, Legs: []transfer.Leg{
			{Account: "rich", Amount: transfer.Units(-1)}, {Ledger: "savings", Account: "piggy", Amount: transfer.Units(1)},
		}}
	}
	v.writesNothing(service, books, both)

	_, err := service.Hold(t.Context(), both("hold"), time.Hour)
	require.NoError(t, err)
	v.toTheEnd(service, both("after"))
	before := v.stored()

	own := &scribe{}
	less := readRole(t, "auditor").also("savings", "find", "listIndexes").also("savings.transfer", "find")
	_, audited := v.user(less, own.client())
	_, farther := v.user(less, own.client())
	auditor := v.over(audited, transfer.WithLedger("savings", farther.Collection("savings")))
	for _, what := range auditorVerbs() {
		if what.name != "statement" && what.name != "balance" {
			require.NoError(t, v.timed(what, auditor, ""), what.name)
		}
	}
	for _, ledger := range []string{"", "savings"} {
		v.certain(auditor, service, ledger)
	}
	tried, successful := own.seen()
	require.Empty(t, successful)
	require.LessOrEqual(t, len(tried), 1, "what was refused once is not tried for a while")
	require.Equal(t, before["accounts"], v.stored()["accounts"])
	require.Equal(t, before["transfers.retention"], v.stored()["transfers.retention"])

	_, err = service.Post(t.Context(), "hold")
	require.NoError(t, err)
	v.alike(auditor, service)
	_, err = service.Wait(t.Context(), "hold")
	require.NoError(t, err)
	away := v.server.Root(t).Database("bank")
	v.finishBy(v.over(v.root, transfer.WithStallThreshold(0), transfer.WithLedger("savings", away.Collection("savings"))))
}

// What was answered is certain, although not all of it is done yet: an auditor reads it
// at once, and bars nothing.
func (v *guarded) auditorReadsAtOnce() {
	t := v.t
	own := &scribe{}
	_, db := v.user(readRole(t, "auditor"), own.client())
	auditor := v.over(db)
	for n := range 20 {
		id := fmt.Sprint("answered ", n)
		rec, err := v.all.Transfer(t.Context(), oneUnit(id))
		require.NoError(t, err)
		require.Equal(t, transfer.StateCommitted, rec.State)
		entries, err := statement(t.Context(), auditor, "", transfer.StatementQuery{NewestFirst: true, Limit: 1})
		require.NoError(t, err)
		require.Equal(t, id, entries[0].TransferID)
		account, err := auditor.GetAccount(t.Context(), "poor")
		require.NoError(t, err)
		require.Equal(t, transfer.Units(int64(n+2)), account.Posted)
		account, err = auditor.GetAccount(t.Context(), "rich")
		require.NoError(t, err)
		require.Equal(t, transfer.Units(1_000_000-int64(n+2)), account.Posted)
	}
	tried, _ := own.seen()
	require.Empty(t, tried)
	v.finish()
}

// An audit whose user may not read the records any more goes on without them.
func (v *guarded) auditWithoutRecords() {
	t := v.t
	v.withSavings()
	r := readRole(t, "auditor")
	user, db := v.user(r)
	auditor := v.over(db)
	report, err := auditor.Audit(t.Context())
	require.NoError(t, err)
	require.Contains(t, report.LeftOut, transfer.LeftOut{Name: "savings", Namespace: "bank.savings"})

	var records privilege
	records.Resource.DB, records.Resource.Collection = "bank", "transfers.transfer"
	v.grant(user, r.without(records, "find"))
	report, err = auditor.Audit(t.Context())
	require.NoError(t, err)
	require.Empty(t, report.LeftOut)
	require.Empty(t, report.Findings)
	v.audit()
}

// toTheEnd makes a transfer, and waits until nothing is left to be done for it.
func (v *guarded) toTheEnd(c *transfer.Coordinator, req transfer.Request) {
	v.t.Helper()
	_, err := c.Transfer(v.t.Context(), req)
	require.NoError(v.t, err)
	_, err = c.Wait(v.t.Context(), req.ID)
	require.NoError(v.t, err)
}

// writesNothing requires that an audit, and a statement with nothing outstanding, write
// nothing even for a user who could.
func (v *guarded) writesNothing(
	service *transfer.Coordinator, books *scribe, both func(string) transfer.Request,
) {
	t := v.t
	for _, id := range []string{"before 1", "before 2"} {
		v.toTheEnd(service, both(id))
	}
	books.seen()
	_, err := service.Audit(t.Context())
	require.NoError(t, err)
	_, err = statement(t.Context(), service, "", transfer.StatementQuery{})
	require.NoError(t, err)
	tried, _ := books.seen()
	require.Empty(t, tried, "nothing is outstanding")
}

// alike requires that an auditor reads the statements that the service reads.
func (v *guarded) alike(auditor, service *transfer.Coordinator) {
	t := v.t
	for _, ledger := range []string{"", "savings"} {
		want, err := statement(t.Context(), service, ledger, transfer.StatementQuery{})
		require.NoError(t, err)
		got, err := statement(t.Context(), auditor, ledger, transfer.StatementQuery{})
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// also returns the role with one more privilege.
func (r role) also(collection string, actions ...string) role {
	p := privilege{Actions: actions}
	p.Resource.DB, p.Resource.Collection = "bank", collection
	r.Privileges = append(append([]privilege{}, r.Privileges...), p)
	return r
}

// certain requires that before a hold an auditor reads exactly what the service reads,
// and no more.
func (v *guarded) certain(auditor, service *transfer.Coordinator, ledger string) {
	t := v.t
	held, err := service.Get(t.Context(), "hold")
	require.NoError(t, err)
	all, err := statement(t.Context(), service, ledger, transfer.StatementQuery{})
	require.NoError(t, err)
	require.Equal(t, "after", all[len(all)-1].TransferID)
	past := all[:len(all)-1]

	got, err := statement(t.Context(), auditor, ledger, transfer.StatementQuery{})
	require.Equal(t, past, got, "what came before the hold is certain")
	var missing *transfer.UnauthorizedError
	require.ErrorAs(t, err, &missing)
	require.Equal(t, transfer.UnauthorizedError{Action: "update", Namespace: "bank.transfers"},
		transfer.UnauthorizedError{Action: missing.Action, Namespace: missing.Namespace})
	got, err = statement(t.Context(), auditor, ledger, transfer.StatementQuery{Before: held.CreatedAt})
	require.NoError(t, err, "nothing else was asked for")
	require.Equal(t, past, got)
	newest, err := statement(t.Context(), auditor, ledger, transfer.StatementQuery{NewestFirst: true, Limit: 1})
	require.ErrorIs(t, err, transfer.ErrUnauthorized, "there may be newer ones")
	require.Equal(t, past[len(past)-1:], newest)
	oldest, err := statement(t.Context(), auditor, ledger, transfer.StatementQuery{Limit: 1})
	require.NoError(t, err)
	require.Equal(t, past[:1], oldest)

	l, err := auditor.Ledger(ledger)
	require.NoError(t, err)
	account := map[string]string{"": "rich", "savings": "piggy"}[ledger]
	balance, err := l.BalanceAt(t.Context(), account, past[len(past)-1].At)
	require.NoError(t, err)
	require.Equal(t, past[len(past)-1].Balance, balance)
	_, err = l.BalanceAt(t.Context(), account, time.Now())
	require.ErrorIs(t, err, transfer.ErrUnauthorized)
}
