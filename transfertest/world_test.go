package transfertest_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	mongooptions "go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/transfertest"
)

// world is a coordinator or a fake, with what a table of calls needs. It writes down what
// each call has answered.
type world struct {
	t         *testing.T
	verbs     verbs
	fake      *transfertest.Fake // nil on a server
	documents *mongo.Collection
	// pass lets time pass, and lets the worker do what is due then.
	pass func(d time.Duration)
	log  []entry
	// unordered says that transfers were begun at the same time, so that a list has no
	// order of its own.
	unordered bool
}

// verbs are those of a coordinator that the calls use. TestFakeAgreesWithAServer requires
// that these are all that a fake has.
type verbs interface {
	Transfer(ctx context.Context, req transfer.Request) (transfer.Record, error)
	TransferMany(ctx context.Context, requests []transfer.Request) ([]transfer.Record, []error)
	Submit(ctx context.Context, req transfer.Request) (transfer.Record, error)
	Wait(ctx context.Context, id string) (transfer.Record, error)
	Cancel(ctx context.Context, id, reason string) (transfer.Record, error)
	Reverse(ctx context.Context, r transfer.Reversal) (transfer.Record, error)
	Hold(ctx context.Context, req transfer.Request, expiresIn time.Duration) (transfer.Record, error)
	Post(ctx context.Context, id string, opts ...transfer.PostOption) (transfer.Record, error)
	Void(ctx context.Context, id string) (transfer.Record, error)
	Extend(ctx context.Context, id string, expiresIn time.Duration) (transfer.Record, error)
	Recover(ctx context.Context, opts ...transfer.RecoverOption) (transfer.RecoveryReport, error)
	Redeliver(ctx context.Context, transferID string) error
	Healthy(ctx context.Context) error
	Close(ctx context.Context) error
	Get(ctx context.Context, id string) (transfer.Record, error)
	List(ctx context.Context, q transfer.Query) iter.Seq2[transfer.Record, error]
	Count(ctx context.Context, q transfer.Query) (int64, error)
	Explain(ctx context.Context, id string) (transfer.Explanation, error)
	Stats(ctx context.Context) (transfer.Stats, error)
	Statement(ctx context.Context, id string, q transfer.StatementQuery) iter.Seq2[transfer.Entry, error]
	BalanceAt(ctx context.Context, id string, at time.Time) (transfer.Amount, error)
	OpenAccount(ctx context.Context, a transfer.Account) (transfer.Account, error)
	GetAccount(ctx context.Context, id string) (transfer.Account, error)
	UpdateAccount(ctx context.Context, id string, change transfer.AccountChange) (transfer.Account, error)
	CloseAccount(ctx context.Context, id string) error
	ReopenAccount(ctx context.Context, id string) error
	Accounts(ctx context.Context, q transfer.AccountQuery) iter.Seq2[transfer.Account, error]
	Ledger(name string) (*transfer.Ledger, error)
}

// entry is what one call has answered.
type entry struct {
	call   string
	answer any
	err    errorView
}

// errorView is what a caller can learn from an error.
type errorView struct {
	Text    string
	Is      []string
	Outcome string
	Refused *transfer.RefusedError
	Unmet   *transfer.RequirementError
	Differs []string
	Money   *transfer.CurrencyError
}

// options are those of both worlds: an answer comes when nothing is left to be done, so
// that both show the same state.
func options(more []transfer.Option) []transfer.Option {
	return append([]transfer.Option{transfer.WithReturnAt(transfer.AtSuccess)}, more...)
}

// onServer returns a world on a real server.
func onServer(t *testing.T, more ...transfer.Option) *world {
	t.Helper()
	db := transfertest.NewDatabase(t)
	eu, orders := db.Collection("ledger.eu"), db.Collection("documents.orders")
	opts := append(options(more), transfer.WithAccounts(db.Collection("accounts")), transfer.WithTransfers(db.Collection("transfers")),
		transfer.WithLedger("eu", eu), transfer.WithDocuments("orders", orders))
	c := transfertest.NewCoordinator(t, opts...)
	w := &world{t: t, verbs: c, documents: orders}
	w.pass = func(d time.Duration) {
		until := w.serverTime().Add(d)
		timer := time.NewTimer(d)
		defer timer.Stop()
		<-timer.C
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		require.Eventually(t, func() bool { return !w.anyDue(until) }, time.Minute, 5*time.Millisecond)
		stop()
		require.NoError(t, <-ended)
	}
	return w
}

// serverTime returns what the server's clock shows, by which it dates what is due.
func (w *world) serverTime() time.Time {
	var hello struct {
		LocalTime time.Time `bson:"localTime"`
	}
	err := w.documents.Database().RunCommand(w.t.Context(), bson.D{{Key: "hello", Value: 1}}).Decode(&hello)
	require.NoError(w.t, err)
	return hello.LocalTime
}

// anyDue reports whether something is left for a worker that is stored as due by a time.
func (w *world) anyDue(by time.Time) bool {
	later := bson.D{{Key: "$gt", Value: by}}
	unfinished := bson.D{{Key: "open", Value: true}, {Key: "$nor", Value: bson.A{
		bson.D{{Key: "state", Value: string(transfer.StateInitiated)}, {Key: "notBefore", Value: later}},
		bson.D{{Key: "state", Value: string(transfer.StatePreparing)}, {Key: "hold", Value: true}, {Key: "expiresAt", Value: later}},
	}}}
	inHand := bson.D{{Key: "due", Value: bson.D{{Key: "$type", Value: "date"}}}, {Key: "by", Value: bson.D{{Key: "$exists", Value: true}}}}
	undelivered := bson.D{{Key: "outbox", Value: bson.D{{Key: "$elemMatch", Value: bson.D{
		{Key: "$or", Value: bson.A{bson.D{{Key: "due", Value: bson.D{{Key: "$lte", Value: by}}}}, inHand}},
	}}}}}
	n, err := w.transfers().CountDocuments(w.t.Context(), bson.D{{Key: "$or", Value: bson.A{unfinished, undelivered}}})
	require.NoError(w.t, err)
	return n > 0
}

// transfers returns the collection of the transfers, read as the library reads it: what a
// majority has stored.
func (w *world) transfers() *mongo.Collection {
	majority := mongooptions.Collection().SetReadConcern(readconcern.Majority())
	return w.documents.Database().Collection("transfers", majority)
}

// stall stores a transfer as it is where its process has died in a state, and nobody has
// seen it since.
func (w *world) stall(id string, state transfer.State, more ...bson.E) {
	fields := append(bson.D{
		{Key: "state", Value: string(state)}, {Key: "open", Value: true}, {Key: "lastModified", Value: time.Now().Add(-time.Hour)},
	}, more...)
	result, err := w.transfers().UpdateByID(w.t.Context(), id, bson.D{{Key: "$set", Value: fields}})
	require.NoError(w.t, err)
	require.Equal(w.t, int64(1), result.ModifiedCount)
}

// inMemory returns a world in a fake.
func inMemory(t *testing.T, more ...transfer.Option) *world {
	t.Helper()
	return inMemoryWith(t, transfertest.WithOptions(options(more)...))
}

func inMemoryWith(t *testing.T, more ...transfertest.FakeOption) *world {
	t.Helper()
	f := transfertest.NewFake(t, append(more, transfertest.WithLedger("eu"), transfertest.WithDocuments("orders"))...)
	return &world{t: t, verbs: f, fake: f, documents: f.Documents("orders"), pass: f.Advance}
}

// note writes an answer down.
func (w *world) note(call string, answer any, err error) {
	w.log = append(w.log, entry{call, answer, w.view(err)})
}

func (w *world) view(err error) errorView {
	if err == nil {
		return errorView{Outcome: transfer.OutcomeOf(nil).String()}
	}
	v := errorView{Text: timeless(err.Error()), Outcome: transfer.OutcomeOf(err).String()}
	for _, target := range sentinels() {
		if errors.Is(err, target) {
			v.Is = append(v.Is, target.Error())
		}
	}
	var refused *transfer.RefusedError
	if errors.As(err, &refused) {
		v.Refused = &transfer.RefusedError{
			TransferID: refused.TransferID, Ledger: refused.Ledger, Account: refused.Account, Err: refused.Err,
			Detail: refused.Detail, Others: refused.Others, Balance: refused.Balance,
		}
	}
	var conflict *transfer.ConflictError
	if errors.As(err, &conflict) {
		v.Differs = conflict.Differs
	}
	_, _ = errors.As(err, &v.Unmet), errors.As(err, &v.Money)
	return v
}

// timeless returns a text without its times, and without owners.
func timeless(text string) string {
	times := regexp.MustCompile(`\d{4}-\d\d-\d\d[T ][\d:.]+(Z| UTC)`)
	owners := regexp.MustCompile(`[\w.-]+-\d+-[A-Z0-9]{10,}(-[A-Z0-9]{10,})?`)
	return owners.ReplaceAllString(times.ReplaceAllString(text, "then"), "somebody")
}

// sentinels are the errors by which callers distinguish answers.
func sentinels() []error {
	return []error{
		transfer.ErrInvalidRequest, transfer.ErrIDConflict, transfer.ErrAccountNotFound, transfer.ErrAccountClosed,
		transfer.ErrAccountFrozen, transfer.ErrCurrencyMismatch, transfer.ErrAmountKind, transfer.ErrAccountBusy,
		transfer.ErrInsufficientFunds, transfer.ErrOverflow, transfer.ErrRequirementFailed, transfer.ErrUnwritable,
		transfer.ErrCancelled, transfer.ErrExpired, transfer.ErrInDoubt, transfer.ErrUnsettled, transfer.ErrAlreadyCommitted,
		transfer.ErrAlreadyReversed, transfer.ErrReversalExceeds, transfer.ErrNotReversible, transfer.ErrNotHeld,
		transfer.ErrTransferNotFound, transfer.ErrAccountExists, transfer.ErrAccountNotEmpty, transfer.ErrHistoryGone,
		transfer.ErrUnsupportedDeployment, transfer.ErrUnauthorized, transfer.ErrClosed, transfer.ErrNotRepairable,
		transfer.ErrAuditTooLong, context.Canceled, context.DeadlineExceeded,
	}
}

// plain returns a record without what differs from one coordinator to the next: times,
// and owners.
func plain(rec transfer.Record) transfer.Record {
	times := []*time.Time{
		&rec.CreatedAt, &rec.LastModified, &rec.CommittedAt, &rec.ExpiresAt, &rec.NotBefore, &rec.NextTry, &rec.PurgeAt,
		&rec.AwaitFundsUntil,
	}
	for _, at := range times {
		if !at.IsZero() {
			*at = time.Unix(0, 0).UTC()
		}
	}
	rec.Undelivered = slices.Clone(rec.Undelivered)
	for i := range rec.Undelivered {
		rec.Undelivered[i].At = time.Time{}
	}
	rec.Postponed = min(rec.Postponed, 1) // a worker looks more often where all takes longer
	if rec.Owner != "" {
		rec.Owner = "somebody"
	}
	if rec.State == transfer.StatePreparing || rec.State == transfer.StateInitiated {
		rec.Epoch = 0
	}
	return rec
}

// requireAgreement requires that two worlds have answered each call in the same way.
func requireAgreement(t *testing.T, server, memory *world) {
	t.Helper()
	require.Len(t, memory.log, len(server.log))
	for i, want := range server.log {
		require.Equal(t, want, memory.log[i], "call %d: %s", i+1, want.call)
	}
}

func (w *world) transfer(req transfer.Request) {
	rec, err := w.verbs.Transfer(w.t.Context(), req)
	req.NotBefore = time.Time{}
	w.note(fmt.Sprintf("Transfer %+v", req), plain(rec), err)
}

func (w *world) transferMany(requests ...transfer.Request) {
	records, failures := w.verbs.TransferMany(w.t.Context(), requests)
	for i := range requests {
		w.note(fmt.Sprintf("TransferMany %+v", requests[i]), plain(records[i]), failures[i])
	}
}

func (w *world) submit(req transfer.Request) {
	apart := time.NewTimer(2 * time.Millisecond) // a server may take less than one
	defer apart.Stop()
	<-apart.C
	rec, err := w.verbs.Submit(w.t.Context(), req)
	req.NotBefore, req.AwaitFundsUntil = time.Time{}, time.Time{}
	w.note(fmt.Sprintf("Submit %+v", req), plain(rec), err)
}

func (w *world) wait(id string) {
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	rec, err := w.verbs.Wait(ctx, id)
	w.note("Wait "+id, plain(rec), err)
}

func (w *world) cancel(id, reason string) {
	rec, err := w.verbs.Cancel(w.t.Context(), id, reason)
	w.note("Cancel "+id, plain(rec), err)
}

func (w *world) reverse(r transfer.Reversal) {
	rec, err := w.verbs.Reverse(w.t.Context(), r)
	w.note(fmt.Sprintf("Reverse %+v", r), plain(rec), err)
}

func (w *world) hold(req transfer.Request, expiresIn time.Duration) {
	rec, err := w.verbs.Hold(w.t.Context(), req, expiresIn)
	req.NotBefore = time.Time{}
	w.note(fmt.Sprintf("Hold %+v", req), plain(rec), err)
}

func (w *world) post(id string, opts ...transfer.PostOption) {
	rec, err := w.verbs.Post(w.t.Context(), id, opts...)
	w.note("Post "+id, plain(rec), err)
}

func (w *world) void(id string) {
	rec, err := w.verbs.Void(w.t.Context(), id)
	w.note("Void "+id, plain(rec), err)
}

func (w *world) extend(id string, expiresIn time.Duration) {
	rec, err := w.verbs.Extend(w.t.Context(), id, expiresIn)
	w.note("Extend "+id, plain(rec), err)
}

func (w *world) get(id string) {
	rec, err := w.verbs.Get(w.t.Context(), id)
	w.note("Get "+id, plain(rec), err)
}

func (w *world) list(q transfer.Query) []transfer.Record {
	var all, found []transfer.Record
	var failed error
	for rec, err := range w.verbs.List(w.t.Context(), q) {
		failed = err
		all, found = append(all, plain(rec)), append(found, rec)
	}
	if w.unordered {
		slices.SortFunc(all, func(a, b transfer.Record) int { return strings.Compare(a.ID, b.ID) })
	}
	w.note(fmt.Sprintf("List %+v", untimed(q)), all, failed)
	n, err := w.verbs.Count(w.t.Context(), q)
	w.note(fmt.Sprintf("Count %+v", untimed(q)), n, err)
	return found
}

func untimed(q transfer.Query) transfer.Query {
	q.After, q.Before, q.ExpiresBefore = time.Time{}, time.Time{}, time.Time{}
	return q
}

func (w *world) explain(id string) {
	e, err := w.verbs.Explain(w.t.Context(), id)
	e.Record, e.Executor, e.Left, e.Advice = plain(e.Record), timeless(e.Executor), timeless(e.Left), timeless(e.Advice)
	for _, at := range []*time.Time{&e.Since, &e.NextTry} {
		if !at.IsZero() {
			*at = time.Unix(0, 0).UTC()
		}
	}
	for i := range e.Participants {
		e.Participants[i].Note = timeless(e.Participants[i].Note)
	}
	w.note("Explain "+id, e, err)
}

func (w *world) recover(opts ...transfer.RecoverOption) {
	report, err := w.verbs.Recover(w.t.Context(), opts...)
	w.note("Recover", report, err)
}

func (w *world) stats() {
	s, err := w.verbs.Stats(w.t.Context())
	if !s.Oldest.IsZero() {
		s.Oldest = time.Unix(0, 0).UTC()
	}
	w.note("Stats", s, err)
}

// ledger is the default ledger, or another one.
type ledger interface {
	Open(ctx context.Context, a transfer.Account) (transfer.Account, error)
	Get(ctx context.Context, id string) (transfer.Account, error)
	Update(ctx context.Context, id string, change transfer.AccountChange) (transfer.Account, error)
	Close(ctx context.Context, id string) error
	Reopen(ctx context.Context, id string) error
	Statement(ctx context.Context, id string, q transfer.StatementQuery) iter.Seq2[transfer.Entry, error]
	BalanceAt(ctx context.Context, id string, at time.Time) (transfer.Amount, error)
}

// defaultLedger has the verbs of a coordinator under the names of a ledger's.
type defaultLedger struct{ verbs }

func (l defaultLedger) Open(ctx context.Context, a transfer.Account) (transfer.Account, error) {
	return l.OpenAccount(ctx, a)
}

func (l defaultLedger) Get(ctx context.Context, id string) (transfer.Account, error) {
	return l.GetAccount(ctx, id)
}

func (l defaultLedger) Update(ctx context.Context, id string, change transfer.AccountChange) (transfer.Account, error) {
	return l.UpdateAccount(ctx, id, change)
}

func (l defaultLedger) Close(ctx context.Context, id string) error { return l.CloseAccount(ctx, id) }

func (l defaultLedger) Reopen(ctx context.Context, id string) error { return l.ReopenAccount(ctx, id) }

func (w *world) ledger(name string) ledger {
	if name == "" {
		return defaultLedger{w.verbs}
	}
	l, err := w.verbs.Ledger(name)
	require.NoError(w.t, err)
	return l
}

func (w *world) open(a transfer.Account) {
	opened, err := w.ledger(a.Ledger).Open(w.t.Context(), a)
	w.note(fmt.Sprintf("OpenAccount %+v", a), opened, err)
}

func (w *world) account(name, id string) {
	found, err := w.ledger(name).Get(w.t.Context(), id)
	w.note("GetAccount "+name+" "+id, found, err)
}

func (w *world) change(name, id string, change transfer.AccountChange) {
	changed, err := w.ledger(name).Update(w.t.Context(), id, change)
	w.note(fmt.Sprintf("UpdateAccount %s %s", name, id), changed, err)
}

func (w *world) closeAccount(name, id string) {
	w.note("CloseAccount "+name+" "+id, nil, w.ledger(name).Close(w.t.Context(), id))
}

func (w *world) reopen(name, id string) {
	w.note("ReopenAccount "+name+" "+id, nil, w.ledger(name).Reopen(w.t.Context(), id))
}

func (w *world) accounts(q transfer.AccountQuery) {
	var all []transfer.Account
	var failed error
	for a, err := range w.verbs.Accounts(w.t.Context(), q) {
		failed = err
		all = append(all, a)
	}
	w.note(fmt.Sprintf("Accounts %+v", q), all, failed)
}

func (w *world) statement(name, id string, q transfer.StatementQuery) []transfer.Entry {
	var all, found []transfer.Entry
	var failed error
	for e, err := range w.ledger(name).Statement(w.t.Context(), id, q) {
		failed = err
		found = append(found, e)
		if !e.At.IsZero() {
			e.At = time.Unix(0, 0).UTC()
		}
		all = append(all, e)
	}
	q.After, q.Before, q.Beyond.At = time.Time{}, time.Time{}, time.Time{}
	w.note(fmt.Sprintf("Statement %s %s %+v", name, id, q), all, failed)
	return found
}

func (w *world) balanceAt(name, id string, at time.Time) {
	amount, err := w.ledger(name).BalanceAt(w.t.Context(), id, at)
	w.note("BalanceAt "+name+" "+id, amount, err)
}

// document notes a document of an effect, without the fence.
func (w *world) document(id any) {
	var found bson.M
	err := w.documents.FindOne(w.t.Context(), bson.D{{Key: "_id", Value: id}}).Decode(&found)
	delete(found, "fence")
	w.note(fmt.Sprint("document ", id), found, err)
}

func (w *world) putDocument(document bson.D) {
	_, err := w.documents.InsertOne(w.t.Context(), document)
	require.NoError(w.t, err)
}
