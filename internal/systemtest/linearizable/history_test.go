package linearizable

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// history is the calls of one run's clients, with their times and outcomes.
// It is safe for concurrent use.
type history struct {
	start time.Time // its monotonic part is the one clock of all clients

	mu       sync.Mutex
	begun    []ask // in the order of the calls, also those without an outcome yet
	doubtful []ask // in doubt, and not repeated yet
	asks     []ask
	balances []balanceRead
	states   []stateRead
}

// span is the time between a call and its return.
// The call takes effect at one moment of it.
type span struct {
	client         int
	called, backAt int64
}

// ask is one call of Transfer. Several calls may have the same ID.
type ask struct {
	span
	id, from, to string
	units        int64
	returnAt     transfer.ReturnAt
	told         error
	state        transfer.State
}

// settled reports whether an answer says that the money is there for every reader.
func (a ask) settled() bool {
	return a.told == nil && (a.returnAt != transfer.AtCommit || a.state == transfer.StateSuccess)
}

// shows returns the states that an answer which knows of the commit may come with.
func (a ask) shows() []transfer.State {
	switch {
	case a.told != nil:
		return []transfer.State{transfer.StateCommitted}
	case a.returnAt == transfer.AtSuccess:
		return []transfer.State{transfer.StateSuccess}
	}
	return []transfer.State{transfer.StateCommitted, transfer.StateSuccess}
}

// balanceRead is one answered GetAccount.
type balanceRead struct {
	span
	account           string
	available, posted int64
	linear            bool // not by the library: see readLinearly and findLinearly
	half              bool // without what is posted
}

// stateRead is one answered Get or Wait, or the state that a Cancel has returned.
// The state is "" if there was no transfer.
type stateRead struct {
	span
	id    string
	state transfer.State
	// fact says that the transfer is committed, while its state may not be stored yet.
	fact bool
}

func newHistory() *history { return &history{start: time.Now()} }

func (h *history) now() int64 { return time.Since(h.start).Nanoseconds() }

// witness is a client that records its calls and their outcomes.
type witness struct {
	*history
	number   int
	c        *transfer.Coordinator
	db       *mongo.Database // of the same client
	returnAt transfer.ReturnAt
}

// transfer calls Transfer.
func (w witness) transfer(ctx context.Context, id, from, to string, units int64) ask {
	a := ask{span: span{w.number, w.now(), 0}, id: id, from: from, to: to, units: units, returnAt: w.returnAt}
	w.begins(a)
	var rec transfer.Record
	rec, a.told = w.c.Transfer(ctx, bank.Move(id, from, to, units))
	a.backAt, a.state = w.now(), rec.State
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asks = append(w.asks, a)
	if errors.Is(a.told, transfer.ErrInDoubt) || errors.Is(a.told, transfer.ErrUnsettled) {
		w.doubtful = append(w.doubtful, a)
	}
	return a
}

// takeDoubtful returns the oldest request that is in doubt, or not settled yet, for the
// caller to repeat.
func (h *history) takeDoubtful() (ask, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.doubtful) == 0 {
		return ask{}, false
	}
	oldest := h.doubtful[0]
	h.doubtful = h.doubtful[1:]
	return oldest, true
}

// read reads an account. An unanswered read records nothing.
func (w witness) read(ctx context.Context, t *testing.T, account string) error {
	t.Helper()
	r := balanceRead{span: span{w.number, w.now(), 0}, account: account}
	got, err := w.c.GetAccount(ctx, account)
	if err != nil {
		return err
	}
	r.backAt = w.now()
	r.available, r.posted = bank.Units(t, got.Available), bank.Units(t, got.Posted)
	w.saw(r)
	return nil
}

// readLinearly reads an account, and which of its debits are committed, in a way that the
// library doesn't offer.
// Both are as they were at one moment of the call, since a transaction reads them.
// It also writes, so that only a primary which is one to the end gets a majority for it.
func (w witness) readLinearly(ctx context.Context, account string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // it hangs where there is no majority
	defer cancel()
	session, err := w.db.Client().StartSession()
	if err != nil {
		return err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	how := options.Transaction().SetReadConcern(readconcern.Snapshot()).SetWriteConcern(writeconcern.Majority())
	r := balanceRead{span: span{w.number, w.now(), 0}, account: account, linear: true}
	if err := session.StartTransaction(how); err != nil {
		return err
	}
	inside := mongo.NewSessionContext(ctx, session)
	if err := w.readWithin(inside, &r); err != nil {
		_ = session.AbortTransaction(ctx)
		return err
	}
	if err := session.CommitTransaction(inside); err != nil {
		return err
	}
	r.backAt = w.now()
	w.saw(r)
	return nil
}

// findLinearly reads what is available on an account with read concern linearizable.
// The document alone doesn't show which of its debits are committed.
func (w witness) findLinearly(ctx context.Context, account string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // it hangs where there is no majority
	defer cancel()
	r := balanceRead{span: span{w.number, w.now(), 0}, account: account, linear: true, half: true}
	accounts := w.db.Collection("accounts", options.Collection().SetReadConcern(readconcern.Linearizable()))
	var document struct {
		Balance int64 `bson:"balance"`
	}
	if err := accounts.FindOne(ctx, bson.D{{Key: "_id", Value: account}}).Decode(&document); err != nil {
		return err
	}
	r.available, r.backAt = document.Balance, w.now()
	w.saw(r)
	return nil
}

// readWithin reads an account in a transaction, and counts in it that it was read.
func (w witness) readWithin(ctx context.Context, r *balanceRead) error {
	var document struct {
		Balance int64            `bson:"balance"`
		Pending map[string]int64 `bson:"pending"`
	}
	if err := w.db.Collection("accounts").FindOne(ctx, bson.D{{Key: "_id", Value: r.account}}).Decode(&document); err != nil {
		return err
	}
	r.available, r.posted = document.Balance, document.Balance
	debits := bson.A{}
	for id, amount := range document.Pending {
		if amount < 0 {
			debits = append(debits, id)
			r.posted -= amount
		}
	}
	cursor, err := w.db.Collection("transfers").Find(ctx, bson.D{
		{Key: "_id", Value: bson.D{{Key: "$in", Value: debits}}},
		{Key: "state", Value: bson.D{{Key: "$in", Value: bson.A{"Committed", "Success"}}}},
	})
	if err != nil {
		return err
	}
	var committed []struct {
		ID string `bson:"_id"`
	}
	if err := cursor.All(ctx, &committed); err != nil {
		return err
	}
	for _, c := range committed {
		r.posted += document.Pending[c.ID]
	}
	_, err = w.db.Collection("witnesses").UpdateByID(ctx, w.number, bson.D{{Key: "$inc", Value: bson.D{{Key: "reads", Value: 1}}}},
		options.UpdateOne().SetUpsert(true))
	return err
}

func (w witness) saw(r balanceRead) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.balances = append(w.balances, r)
}

// look reads a transfer.
func (w witness) look(ctx context.Context, id string) {
	r := stateRead{span: span{w.number, w.now(), 0}, id: id}
	rec, err := w.c.Get(ctx, id)
	if err != nil && !errors.Is(err, transfer.ErrTransferNotFound) {
		return
	}
	r.state = rec.State
	w.sawState(r)
}

// await waits for a transfer's end for a moment.
func (w witness) await(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	r := stateRead{span: span{w.number, w.now(), 0}, id: id}
	if rec, _ := w.c.Wait(ctx, id); rec.State.Final() {
		r.state = rec.State
		w.sawState(r)
	}
}

// cancel cancels a transfer. If it comes too late, the record shows how far the transfer
// is: that of one that is committed may not be stored yet.
func (w witness) cancel(ctx context.Context, id string) {
	r := stateRead{span: span{w.number, w.now(), 0}, id: id}
	rec, err := w.c.Cancel(ctx, id, "a witness wants it")
	if err == nil || errors.Is(err, transfer.ErrAlreadyCommitted) {
		r.state, r.fact = rec.State, rec.State == transfer.StateCommitted
		w.sawState(r)
	}
}

func (w witness) sawState(r stateRead) {
	r.backAt = w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.states = append(w.states, r)
}

func (h *history) begins(a ask) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begun = append(h.begun, a)
}

// lastBegun returns the n-th latest request, if there were that many.
func (h *history) lastBegun(n int) (ask, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n >= len(h.begun) {
		return ask{}, false
	}
	return h.begun[len(h.begun)-1-n], true
}

// awaitSuccesses waits until n calls have succeeded, and reports whether they did before
// ctx ended.
func (h *history) awaitSuccesses(ctx context.Context, n int) bool {
	return until(ctx, func() bool { return h.counts().Succeeded >= n })
}

// until waits for a condition, and reports whether it was met before ctx ended.
func until(ctx context.Context, so func() bool) bool {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !so() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
