package rights

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// With a wrong password every verb says so at once, and nothing is stored.
func (v *guarded) wrongPassword() {
	user, _ := v.user(readRole(v.t, "service"))
	wrong := v.server.Client(v.t, "bank", user, "wrong").Database("bank")
	verbs := slices.Concat(serviceVerbs(), v.workerVerbs(), v.migrationVerbs()[:1], auditorVerbs())
	for i, what := range verbs {
		err := v.timed(what, v.over(wrong), fmt.Sprintf("wrong-%d", i))
		require.ErrorIs(v.t, err, transfer.ErrUnauthorized, what.name)
		var missing *transfer.UnauthorizedError
		require.ErrorAs(v.t, err, &missing)
		require.Empty(v.t, missing.Action, what.name)
		require.ErrorContains(v.t, err, "password")
		require.NotContains(v.t, err.Error(), "reached", "it was")
		require.NotContains(v.t, err.Error(), "wrong\"")
		if what.name != "wait" { // its transfer may be on any cluster
			require.NotErrorIs(v.t, err, transfer.ErrInDoubt, what.name)
		}
	}
	v.wrongElsewhere(user)
	v.finish()
	n, err := v.root.Collection("transfers").CountDocuments(v.t.Context(), bson.D{})
	require.NoError(v.t, err)
	require.EqualValues(v.t, 3, n, "the first one, and the two that the worker should have run")
}

// wrongElsewhere requires that a wrong password on one of two clusters is reported at
// once, and that the other cluster can be used meanwhile.
func (v *guarded) wrongElsewhere(user string) {
	t := v.t
	right := v.server.Client(t, "bank", user, "secret").Database("bank")
	wrong := v.server.Client(t, "bank", user, "wrong").Database("bank")
	c := v.over(right, transfer.WithLedger("savings", wrong.Collection("savings")), transfer.WithStallThreshold(0))
	across := verb{"across", func(ctx context.Context, c *transfer.Coordinator, id string) error {
		_, err := c.Transfer(ctx, transfer.Request{ID: id, Legs: []transfer.Leg{
			{Account: "rich", Amount: transfer.Units(-1)}, {Ledger: "savings", Account: "piggy", Amount: transfer.Units(1)},
		}})
		return err
	}}
	err := v.timed(across, c, "across")
	require.ErrorIs(t, err, transfer.ErrUnauthorized)
	require.NotErrorIs(t, err, transfer.ErrInDoubt)

	granted := v.over(v.root, transfer.WithLedger("savings", v.server.Root(t).Database("bank").Collection("savings")))
	_, err = granted.Submit(t.Context(), transfer.Request{ID: "stalled", Legs: []transfer.Leg{
		{Account: "rich", Amount: transfer.Units(-1)}, {Ledger: "savings", Account: "piggy", Amount: transfer.Units(1)},
	}})
	require.NoError(t, err)
	set := bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: "Preparing"}, {Key: "epoch", Value: int64(1)}}}}
	_, err = v.root.Collection("transfers").UpdateByID(t.Context(), "stalled", set)
	require.NoError(t, err)
	err = v.timed(verbNamed("recover"), c, "")
	require.ErrorIs(t, err, transfer.ErrUnauthorized)
	require.NotContains(t, err.Error(), "reached")
	_, err = granted.Cancel(t.Context(), "stalled", "by the test")
	require.NoError(t, err)
	_, err = v.root.Collection("transfers").DeleteOne(t.Context(), bson.D{{Key: "_id", Value: "stalled"}})
	require.NoError(t, err)
}

// revoker revokes rights just before one of a client's commands is sent.
type revoker struct {
	mu      sync.Mutex
	armed   bool
	at      int // which command, counted from 0
	seen    int
	struck  *right
	strikes func(right)
}

// right is one that a command needs.
type right struct{ action, collection string }

// neededBy returns the right that a command needs, "" if it needs none.
// If it needs two, it is the one to write.
func neededBy(e *event.CommandStartedEvent) right {
	collection, _ := e.Command.Lookup(e.CommandName).StringValueOK()
	if collection == processNotes { // whoever may not write there works all the same
		return right{}
	}
	switch e.CommandName {
	case "find", "insert", "update":
		return right{e.CommandName, collection}
	case "findAndModify":
		return right{"update", collection}
	}
	return right{}
}

func (r *revoker) client() *options.ClientOptions {
	return options.Client().SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		needed := neededBy(e)
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.armed || needed.action == "" {
			return
		}
		if r.seen++; r.seen-1 == r.at {
			r.struck = &needed
			r.strikes(needed)
		}
	}})
}

func (r *revoker) arm(at int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.armed, r.at = true, at
}

func (r *revoker) what() *right {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.struck
}

// withOrders returns a role that may also change orders, and the accounts of a second
// ledger, as docs/roles says.
func withOrders(r role) role {
	for _, collection := range []string{"orders", "savings"} {
		r = r.also(collection, "find", "update", "listIndexes").also(collection+".transfer", "find")
	}
	return r
}

// withSavings adds the second ledger, with an account in it, and the orders.
func (v *guarded) withSavings() {
	v.t.Helper()
	piggy := bson.D{{Key: "_id", Value: "piggy"}, {Key: "balance", Value: int64(0)}}
	_, err := v.root.Collection("savings").InsertOne(v.t.Context(), piggy)
	require.NoError(v.t, err)
	require.NoError(v.t, v.over(v.root, bothLedgers(v.root, v.root)...).Setup(v.t.Context()))
}

// lose returns the role without one right.
func (r role) lose(what right) role {
	for _, p := range r.Privileges {
		if p.Resource.Collection == what.collection {
			return r.without(p, what.action)
		}
	}
	return r
}

// A right that is revoked just before any command of a verb is reported at once, if the
// caller still waits.
// A transfer stored by then is in doubt for the caller, or known to be committed, and is
// listed, with the reason if that can be written.
// Recovery finishes it once the right is back.
func (v *guarded) revokedAnywhere() {
	v.withSavings()
	for _, what := range []verb{
		{"transfer", verbNamed("transfer").do},
		{"hold, post", verbNamed("hold, post").do},
		{"hold, void", verbNamed("hold, void").do},
		{"reverse", verbNamed("reverse").do},
		{"effect", func(ctx context.Context, c *transfer.Coordinator, id string) error {
			r := oneUnit(id)
			r.Effects = []transfer.Effect{{
				Documents: "orders", ID: id, Require: bson.D{{Key: "paid", Value: nil}}, Set: bson.D{{Key: "paid", Value: true}},
			}}
			_, err := c.Transfer(ctx, r)
			return err
		}},
		{"two clusters", func(ctx context.Context, c *transfer.Coordinator, id string) error {
			_, err := c.Transfer(ctx, transfer.Request{ID: id, Legs: []transfer.Leg{
				{Account: "rich", Amount: transfer.Units(-1)}, {Ledger: "savings", Account: "piggy", Amount: transfer.Units(1)},
			}})
			return err
		}},
	} {
		for _, at := range []transfer.ReturnAt{transfer.AtSuccess, transfer.AtSettled, transfer.AtCommit} {
			name := fmt.Sprintf("%s, answer %d", what.name, at)
			v.sub(name, func(v *guarded) {
				n := 0
				for v.revokedAt(verb{name, what.do}, n, at) {
					n++
				}
				require.GreaterOrEqual(v.t, n, 6, "too few commands were struck")
				v.t.Logf("%d commands", n)
			})
		}
	}
}

func verbNamed(name string) verb {
	all := serviceVerbs()
	return all[slices.IndexFunc(all, func(one verb) bool { return one.name == name })]
}

// revokedAt revokes the right for the n-th command of a verb, or of what is left to be
// done after its answer.
// It reports false if there is no n-th command.
func (v *guarded) revokedAt(what verb, n int, at transfer.ReturnAt) bool {
	t := v.t
	id := fmt.Sprintf("%s-%d", what.name, n)
	_, err := v.root.Collection("orders").InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}})
	require.NoError(t, err)
	full := withOrders(readRole(t, "service"))
	var user string
	r := &revoker{strikes: func(needed right) { v.grant(user, full.lose(needed)) }}
	user, db := v.user(full, r.client())
	apart := v.server.Client(t, "bank", user, "secret", r.client()).Database("bank")
	c := v.over(db, append(bothLedgers(db, apart), transfer.WithReturnAt(at))...)
	_, err = c.Get(t.Context(), "first") // opens the connection
	require.NoError(t, err)
	r.arm(n)
	err = v.timed(what, c, id)
	require.NoError(t, c.Close(t.Context())) // what is left to be done goes out at once
	struck := r.what()
	if struck == nil {
		require.NoError(t, err)
		return false
	}
	v.t.Logf("%d: %s on %s: %v", n, struck.action, struck.collection, err)
	if err != nil && !v.isOfOriginal(id, err) {
		require.ErrorIs(t, err, transfer.ErrUnauthorized)
	}
	v.leftBy(id, err, *struck)
	v.grant(user, full)
	recovering := v.over(db, append(bothLedgers(db, apart), transfer.WithStallThreshold(0))...)
	_, failed := recovering.Recover(t.Context())
	require.NoError(t, failed)
	v.finishBy(recovering)
	if transfer.OutcomeOf(err) == transfer.Moved && !strings.Contains(what.name, "void") {
		rec, err := v.all.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, transfer.StateSuccess, rec.State)
	}
	return true
}

// isOfOriginal reports whether an error says that a transfer can't be reversed, as it is
// committed and stuck, or must succeed first: its caller was answered before that.
func (v *guarded) isOfOriginal(id string, err error) bool {
	if !errors.Is(err, transfer.ErrNotReversible) && !strings.Contains(fmt.Sprint(err), "it must succeed before it is reversed") {
		return false
	}
	rec, missing := v.all.Get(v.t.Context(), id)
	require.NoError(v.t, missing)
	return !rec.State.Final()
}

func bothLedgers(db, apart *mongo.Database) []transfer.Option {
	return []transfer.Option{
		transfer.WithDocuments("orders", db.Collection("orders")), transfer.WithLedger("savings", apart.Collection("savings")),
	}
}

// leftBy requires that a stored, unfinished transfer is in doubt, or known to be
// committed, and listed with the reason if that could be written.
func (v *guarded) leftBy(id string, failed error, struck right) {
	t := v.t
	for rec, err := range v.all.List(t.Context(), transfer.Query{}) {
		require.NoError(t, err)
		if rec.State.Final() || v.isHeld(rec.ID) || rec.ID != id && rec.Reverses != id {
			continue
		}
		rolledBack := rec.State == transfer.StateRollback && transfer.OutcomeOf(failed) == transfer.Failed
		answered := failed == nil || v.isOfOriginal(rec.ID, failed)
		require.True(t, isUndecided(failed) || rolledBack || answered, "%s is %s: %v", rec.ID, rec.State, failed)
		if struck != (right{"update", "transfers"}) {
			require.NotNil(t, rec.Stuck, "%s is %s", rec.ID, rec.State)
			require.Equal(t, "unauthorized", rec.Stuck.Code)
			require.Contains(t, rec.Stuck.Message, struck.action+" on bank."+struck.collection)
		}
	}
}

// isHeld reports whether a hold is held, so that no process works on it.
func (v *guarded) isHeld(id string) bool {
	filter := bson.D{{Key: "_id", Value: id}, {Key: "held", Value: true}, {Key: "state", Value: "Preparing"}}
	n, err := v.root.Collection("transfers").CountDocuments(v.t.Context(), filter)
	require.NoError(v.t, err)
	return n > 0
}

// isUndecided reports whether an error leaves open where the money is, or says that it is
// on its way.
func isUndecided(err error) bool {
	return errors.Is(err, transfer.ErrInDoubt) || errors.Is(err, transfer.ErrUnsettled)
}

// A repeated call with the same ID reports at once that the right is still missing.
// Once it is granted, such a call completes the transfer without a wait for recovery.
func (v *guarded) askedAgain() {
	t := v.t
	full := readRole(t, "service")
	less := full.lose(right{"update", "accounts"})
	user, db := v.user(less)
	c := v.over(db)
	_, err := c.Transfer(t.Context(), oneUnit("again"))
	require.ErrorIs(t, err, transfer.ErrUnauthorized)
	require.ErrorIs(t, err, transfer.ErrInDoubt)
	require.NoError(t, v.stuckFor("again"))
	for range 2 {
		begun := time.Now()
		_, err = c.Transfer(t.Context(), oneUnit("again"))
		require.ErrorIs(t, err, transfer.ErrUnauthorized)
		require.ErrorIs(t, err, transfer.ErrInDoubt)
		require.Less(t, time.Since(begun), promptly)
	}
	_, err = c.Hold(t.Context(), oneUnit("hold again"), time.Hour)
	require.ErrorIs(t, err, transfer.ErrUnauthorized)
	require.NoError(t, v.stuckFor("hold again"))
	begun := time.Now()
	report, err := v.over(db, transfer.WithStallThreshold(0)).Recover(t.Context())
	require.ErrorIs(t, err, transfer.ErrUnauthorized, "not all was done")
	require.Less(t, time.Since(begun), promptly)
	require.Equal(t, 1, report.Stuck)
	v.audit()
	v.grant(user, full)
	begun = time.Now()
	rec, err := c.Transfer(t.Context(), oneUnit("again"))
	require.NoError(t, err)
	require.Less(t, time.Since(begun), promptly)
	require.Nil(t, rec.Stuck)
	rec, err = c.Hold(t.Context(), oneUnit("hold again"), time.Hour)
	require.NoError(t, err)
	require.Nil(t, rec.Stuck)
	rec, err = c.Get(t.Context(), "hold again")
	require.NoError(t, err)
	require.Nil(t, rec.Stuck, "what is held is not stuck")
	v.finish()
}

// The same is true where the missing right is the one to update the transfers, by which
// the reason would be stored: this process knows that it has given the transfer up.
// The first call is answered as committed, since that was certain before.
func (v *guarded) askedAgainWithoutRecord() {
	t := v.t
	full := readRole(t, "service")
	user, db := v.user(full.lose(right{"update", "transfers"}))
	c := v.over(db)
	rec, err := c.Transfer(t.Context(), oneUnit("unrecorded"))
	require.ErrorIs(t, err, transfer.ErrUnauthorized)
	require.ErrorIs(t, err, transfer.ErrUnsettled)
	require.Equal(t, transfer.StateCommitted, rec.State)
	for range 2 {
		begun := time.Now()
		_, err = c.Transfer(t.Context(), oneUnit("unrecorded"))
		require.ErrorIs(t, err, transfer.ErrUnauthorized)
		require.ErrorIs(t, err, transfer.ErrInDoubt)
		require.Less(t, time.Since(begun), promptly)
	}
	v.audit()
	v.grant(user, full)
	begun := time.Now()
	_, err = c.Transfer(t.Context(), oneUnit("unrecorded"))
	require.NoError(t, err)
	require.Less(t, time.Since(begun), promptly)
	v.finish()
}

// stuckFor requires that a list of stuck transfers has one, for lack of a right.
func (v *guarded) stuckFor(id string) error {
	for rec, err := range v.all.List(v.t.Context(), transfer.Query{Stuck: true}) {
		if err != nil {
			return err
		}
		if rec.ID == id && rec.Stuck.Code == "unauthorized" {
			return nil
		}
	}
	return fmt.Errorf("%s is not listed as stuck", id)
}

// A worker whose right is revoked goes on running, and finishes the rest once the right
// is back.
func (v *guarded) workerGoesOn() {
	t := v.t
	full := readRole(t, "worker")
	user, db := v.user(full)
	c := v.over(db, transfer.WithStallThreshold(100*time.Millisecond))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	_, err := v.all.Submit(t.Context(), oneUnit("with the right"))
	require.NoError(t, err)
	_, err = v.all.Wait(t.Context(), "with the right")
	require.NoError(t, err)

	v.grant(user, full.lose(right{"update", "accounts"}))
	_, err = v.all.Submit(t.Context(), oneUnit("without"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return v.stuckFor("without") == nil }, 5*time.Minute, 20*time.Millisecond)
	v.grant(user, full.lose(right{"find", "transfers"})) // and now it finds nothing at all
	v.grant(user, full)
	rec, err := v.all.Wait(t.Context(), "without")
	require.NoError(t, err)
	require.Equal(t, transfer.StateSuccess, rec.State)
	select {
	case err := <-ended:
		require.Fail(t, "the worker has ended", "%v", err)
	default:
	}
	stop()
	require.NoError(t, bank.Within(t, ended))
	v.finish()
}

// A worker warns when it may no longer run what was submitted, whichever right is
// missing, and runs it once the right is back.
func (v *guarded) workerWarns() {
	t := v.t
	full := readRole(t, "worker")
	_, err := v.all.OpenAccount(t.Context(), transfer.Account{ID: "spare"})
	require.NoError(t, err)
	for _, missing := range []right{{"find", "accounts"}, {"update", "accounts"}, {"update", "transfers"}} {
		user, db := v.user(full)
		log := new(bank.Logged)
		c := v.over(db, transfer.WithStallThreshold(100*time.Millisecond), transfer.WithLogger(slog.New(log)))
		end := bank.InBackground(t, c)
		id := fmt.Sprint("with ", missing)
		_, err = v.all.Submit(t.Context(), oneUnit(id))
		require.NoError(t, err)
		_, err = v.all.Wait(t.Context(), id)
		require.NoError(t, err)
		const warning = "a submitted transfer could not be run, as a right is missing"
		require.Zero(t, log.Count(warning))

		v.grant(user, full.lose(missing))
		id = fmt.Sprint("without ", missing)
		_, err = v.all.Submit(t.Context(), bank.Move(id, "rich", "spare", 1)) // which the worker has to read
		require.NoError(t, err)
		require.Eventually(t, func() bool { return log.Count(warning) > 0 }, time.Minute, 20*time.Millisecond, missing)
		v.grant(user, full)
		rec, err := v.all.Wait(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, transfer.StateSuccess, rec.State)
		end()
	}
	v.finish()
}

// shown requires that a transfer which a missing right has stopped is stored and
// unfinished if it is in doubt, and otherwise not stored.
func (v *guarded) shown(id string, failed error) {
	v.t.Helper()
	rec, err := v.all.Get(v.t.Context(), id)
	if errors.Is(err, transfer.ErrTransferNotFound) {
		return
	}
	require.NoError(v.t, err)
	if !errors.Is(failed, transfer.ErrInDoubt) && !errors.Is(failed, transfer.ErrUnsettled) {
		return // a later verb was refused, and has changed nothing
	}
	listed := false
	for other, err := range v.all.List(v.t.Context(), transfer.Query{}) {
		require.NoError(v.t, err)
		listed = listed || other.ID == id
	}
	require.True(v.t, listed, "%s is %s", id, rec.State)
}
