package transfer_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
)

// beginCommit commits a transfer as its executor would, up to where the server has
// stamped the commit and not stored it: as if the machine had been busy with something
// else since. It returns what stores it.
func (b *bank) beginCommit(id string) (store func()) {
	b.t.Helper()
	session, err := b.db.Client().StartSession()
	require.NoError(b.t, err)
	b.t.Cleanup(func() { session.EndSession(context.WithoutCancel(b.t.Context())) })
	require.NoError(b.t, session.StartTransaction())
	ctx := mongo.NewSessionContext(b.t.Context(), session)
	result, err := b.db.Collection("transfers").UpdateOne(ctx, bson.M{"_id": id, "state": "Preparing"}, bson.M{
		"$set": bson.M{"state": "Committed"}, "$currentDate": bson.M{"committedAt": true, "lastModified": true},
	})
	require.NoError(b.t, err)
	require.EqualValues(b.t, 1, result.ModifiedCount)
	return func() { require.NoError(b.t, session.CommitTransaction(b.t.Context())) }
}

// leavePrepared leaves a transfer of 60 from a to b that is prepared and not decided: a
// hold, or one whose executor has died.
func (b *bank) leavePrepared(id string, hold bool) {
	b.t.Helper()
	if hold {
		b.hold(id, 60, time.Hour)
		return
	}
	ctx, cancel := context.WithTimeout(b.t.Context(), 30*time.Second)
	defer cancel()
	w := &wire{at: 3, what: lost, die: true, onDeath: cancel}
	_, err := b.coordinator(b.through(w.client())).Transfer(ctx, move(id, "a", "b", 60))
	require.ErrorIs(b.t, err, transfer.ErrInDoubt)
	rec, err := b.Get(b.t.Context(), id)
	require.NoError(b.t, err)
	require.Equal(b.t, transfer.StatePreparing, rec.State)
}

// reader is who reads one account.
type reader struct {
	*bank
	of *transfer.Ledger
	id string
}

// tell asks for an account's past in every way, at once, and returns what is told when
// all of it is. At is an instant that is over.
func (r reader) tell(at time.Time) <-chan [4]string {
	const ms = time.Millisecond
	told := make(chan [4]string, 1)
	ways := [4]func() any{
		func() any { return r.lines(r.statement(r.of, r.id, transfer.StatementQuery{})) },
		func() any { return r.lines(r.statement(r.of, r.id, transfer.StatementQuery{NewestFirst: true})) },
		func() any { return r.lines(r.statement(r.of, r.id, transfer.StatementQuery{Before: at.Add(ms)})) },
		func() any { balance, err := r.of.BalanceAt(r.t.Context(), r.id, at); return fmt.Sprint(balance, err) },
	}
	go func() {
		var all [4]string
		parts := make(chan struct{}, len(ways))
		for i, way := range ways {
			go func() {
				defer func() { parts <- struct{}{} }()
				all[i] = fmt.Sprint(way())
			}()
		}
		for range ways {
			<-parts
		}
		told <- all
	}()
	return told
}

// requireLasting lets an account's past be told while something keeps the server from
// showing a commit, and then lets go of that. It requires that what was told is what is
// told ever after.
func (r reader) requireLasting(at time.Time, letGo func()) {
	r.t.Helper()
	telling := r.tell(at)
	var told [4]string
	early := false
	soon, cancel := context.WithTimeout(r.t.Context(), 300*time.Millisecond)
	defer cancel()
	select {
	case told = <-telling:
		early = true
	case <-soon.Done(): // whoever doesn't wait has had the time to tell what is wrong
	}
	letGo()
	if !early {
		told = <-telling
	}
	require.Equal(r.t, <-r.tell(at), told, "told before it was over: %v", early)
}

// A commit that has its time, and doesn't show yet, comes before another one that was
// answered. A statement that tells the second waits for the first, however long the
// server needs: it would show up between what was told.
func TestStatementAwaitsWhatDoesNotShow(t *testing.T) {
	t.Parallel()
	for _, hold := range []bool{false, true} {
		for _, apart := range []bool{false, true} {
			t.Run(fmt.Sprintf("hold=%v/apart=%v", hold, apart), func(t *testing.T) {
				t.Parallel()
				b := newBank(t, 100, 0)
				b.leavePrepared("late", hold)
				r := reader{b, b.ledger(""), "a"}
				if apart {
					var err error
					c := b.coordinator(b.db, transfer.WithAccounts(b.through(nil).Collection("accounts")))
					r.of, err = c.Ledger("")
					require.NoError(t, err)
				}
				store := b.beginCommit("late")
				_, err := b.Transfer(t.Context(), move("quick", "a", "b", 10))
				require.NoError(t, err)
				r.requireLasting(b.committed("quick"), store)
				require.Equal(t, []string{"late -60 40", "quick -10 30"}, b.lines(b.statement(r.of, "a", transfer.StatementQuery{})))
				b.recoverAll()
				b.audit(initial(100, 0))
			})
		}
	}
}

// What is prepared and merely not decided keeps no statement waiting, and comes behind
// what was told when it is.
func TestStatementDoesNotAwaitDecisions(t *testing.T) {
	t.Parallel()
	for _, hold := range []bool{false, true} {
		t.Run(fmt.Sprintf("hold=%v", hold), func(t *testing.T) {
			t.Parallel()
			b := newBank(t, 100, 0)
			b.leavePrepared("late", hold)
			_, err := b.Transfer(t.Context(), move("quick", "a", "b", 10))
			require.NoError(t, err)
			require.Equal(t, []string{"quick -10 90"}, b.lines(b.statement(b.ledger(""), "a", transfer.StatementQuery{})))
			b.requireBalanceAt("a", b.committed("quick"), 90)
			if hold {
				_, err := b.Post(t.Context(), "late")
				require.NoError(t, err)
			}
			b.recoverAll()
			require.Equal(t, []string{"quick -10 90", "late -60 30"}, b.lines(b.statement(b.ledger(""), "a", transfer.StatementQuery{})))
			b.audit(initial(100, 0))
		})
	}
}

// hangShowing keeps a server from showing what it stores, until the returned function is
// called.
func hangShowing(t *testing.T, client *mongo.Client) (letGo func()) {
	t.Helper()
	set := func(ctx context.Context, mode string) {
		require.NoError(t, client.Database("admin").RunCommand(ctx, bson.D{
			{Key: "configureFailPoint", Value: "hangBeforeLogOpAdvancesLastApplied"}, {Key: "mode", Value: mode},
		}).Err())
	}
	set(t.Context(), "alwaysOn")
	off := func() { set(context.WithoutCancel(t.Context()), "off") }
	t.Cleanup(off)
	return off
}

// A server that has stored a commit and doesn't show it keeps a statement waiting,
// wherever the account is: what is told before would not be what is told afterwards.
func TestStatementOnAServerThatHangs(t *testing.T) {
	t.Parallel()
	for _, away := range []bool{false, true} {
		t.Run(fmt.Sprintf("away=%v", away), func(t *testing.T) {
			t.Parallel()
			server := startServer(t)
			client, err := mongo.Connect(options.Client().ApplyURI(server.URI()))
			require.NoError(t, err)
			t.Cleanup(func() { _ = client.Disconnect(context.WithoutCancel(t.Context())) })
			b := newBareBank(t) // on the server that all tests share
			accounts := b.db.Collection("accounts")
			b.db = client.Database(b.db.Name())
			if !away {
				accounts = b.db.Collection("accounts")
			}
			b.Coordinator = b.coordinator(b.db, transfer.WithAccounts(accounts))
			require.NoError(t, b.Setup(t.Context()))
			b.open([]int64{100, 0})
			b.hold("late", 60, time.Hour)
			r := reader{b, b.ledger(""), "a"}
			<-r.tell(time.Now()) // so that nothing has to be stored for it any more

			letGo := hangShowing(t, client)
			posted := make(chan error, 1)
			go func() {
				_, err := b.Post(t.Context(), "late")
				posted <- err
			}()
			var at time.Time
			require.Eventually(t, func() bool {
				// A local read shows what no other one does.
				var stored struct {
					At time.Time `bson:"committedAt"`
				}
				err := b.db.Collection("transfers").FindOne(t.Context(), bson.M{"_id": "late"}).Decode(&stored)
				at = stored.At
				return err == nil && !at.IsZero()
			}, time.Minute, time.Millisecond)
			r.requireLasting(at, func() {
				letGo()
				require.NoError(t, <-posted)
			})
			require.Equal(t, []string{"late -60 40"}, b.lines(b.statement(r.of, "a", transfer.StatementQuery{})))
			b.recoverAll()
			b.db = accounts.Database()
			b.audit(initial(100, 0))
		})
	}
}
