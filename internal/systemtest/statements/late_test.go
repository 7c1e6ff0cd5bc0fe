package statements

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// beginCommit commits a transfer as its executor would, up to the point where the server
// has stamped the commit but not stored it.
// This is as if the machine had been busy since. It returns a function that stores it.
func beginCommit(b *bank.Bank, id string) (store func()) {
	b.T.Helper()
	session, err := b.DB.Client().StartSession()
	require.NoError(b.T, err)
	b.T.Cleanup(func() { session.EndSession(context.WithoutCancel(b.T.Context())) })
	require.NoError(b.T, session.StartTransaction())
	ctx := mongo.NewSessionContext(b.T.Context(), session)
	result, err := b.DB.Collection("transfers").UpdateOne(ctx, bson.M{"_id": id, "state": "Preparing"}, bson.M{
		"$set": bson.M{"state": "Committed"}, "$currentDate": bson.M{"committedAt": true, "lastModified": true},
	})
	require.NoError(b.T, err)
	require.EqualValues(b.T, 1, result.ModifiedCount)
	return func() { require.NoError(b.T, session.CommitTransaction(b.T.Context())) }
}

// The ways in which a transfer is left without a stored commit.
const (
	held     = "held"
	prepared = "prepared" // and its executor has died
	paid     = "paid"     // the same, and the money is there
)

// leavePrepared leaves a transfer of 60 from a to b whose commit is not stored.
func leavePrepared(b *bank.Bank, id, how string) {
	b.T.Helper()
	switch how {
	case held:
		b.MustHold(id, 60, time.Hour)
		return
	case paid:
		b.LeaveTraces(id, 60, "Preparing", bank.Reserved, bank.Done)
		return
	}
	ctx, cancel := context.WithTimeout(b.T.Context(), 5*time.Minute)
	defer cancel()
	w := &bank.Wire{Is: bank.Decision.Selector(), What: bank.Lost, Die: true, OnDeath: cancel}
	_, err := b.NewCoordinator(b.Through(w.Client())).Transfer(ctx, bank.Move(id, "a", "b", 60))
	bank.RequireUnended(b.T, err)
	rec, err := b.Get(b.T.Context(), id)
	require.NoError(b.T, err)
	require.Equal(b.T, transfer.StatePreparing, rec.State)
}

// reader reads one account.
type reader struct {
	*bank.Bank
	of *transfer.Ledger
	id string
}

// tell reads an account's past in every way, at once, and returns the results together.
// At is a past instant.
func (r reader) tell(at time.Time) <-chan [4]string {
	const ms = time.Millisecond
	told := make(chan [4]string, 1)
	ways := [4]func() any{
		func() any { return r.Lines(r.MustStatement(r.of, r.id, transfer.StatementQuery{})) },
		func() any { return r.Lines(r.MustStatement(r.of, r.id, transfer.StatementQuery{NewestFirst: true})) },
		func() any { return r.Lines(r.MustStatement(r.of, r.id, transfer.StatementQuery{Before: at.Add(ms)})) },
		func() any { balance, err := r.of.BalanceAt(r.T.Context(), r.id, at); return fmt.Sprint(balance, err) },
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

// requireLasting reads an account's past while something keeps the server from showing a
// commit, and then calls letGo, which ends that.
// It requires that the past reads the same ever after.
func (r reader) requireLasting(at time.Time, letGo func()) {
	r.T.Helper()
	telling := r.tell(at)
	var told [4]string
	early := false
	soon, cancel := context.WithTimeout(r.T.Context(), 300*time.Millisecond)
	defer cancel()
	select {
	case told = <-telling:
		early = true
	case <-soon.Done(): // a read that doesn't wait has had the time to return a wrong result
	}
	letGo()
	if !early {
		told = bank.Within(r.T, telling)
	}
	require.Equal(r.T, bank.Within(r.T, r.tell(at)), told, "told before it was over: %v", early)
}

// A commit that is stamped, and not visible yet, comes before another one that is.
// A statement with the second one waits for the first, however long the server needs.
// Otherwise the first would appear later between the entries that were read.
func TestStatementAwaitsWhatDoesNotShow(t *testing.T) {
	t.Parallel()
	for _, how := range []string{held, prepared, paid} {
		for _, apart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/apart=%v", how, apart), func(t *testing.T) {
				t.Parallel()
				b := bank.New(t, 100, 0).WithIndexes()
				leavePrepared(b, "late", how)
				r := reader{b, b.MustLedger(""), "a"}
				lines := []string{"late -60 40", "quick -10 30"}
				if how == paid { // the gainer has the money, and the entry is still to come
					r.id, lines = "b", []string{"late 60 60", "quick 10 70"}
				}
				if apart {
					var err error
					c := b.NewCoordinator(b.DB, transfer.WithAccounts(b.Through(nil).Collection("accounts")))
					r.of, err = c.Ledger("")
					require.NoError(t, err)
				}
				store := beginCommit(b, "late")
				_, err := b.Transfer(t.Context(), bank.Move("quick", "a", "b", 10))
				require.NoError(t, err)
				r.requireLasting(b.CommittedAt("quick"), store)
				require.Equal(t, lines, b.Lines(b.MustStatement(r.of, r.id, transfer.StatementQuery{})))
				b.RecoverAll()
				b.CheckBooks(bank.Balances(100, 0))
			})
		}
	}
}

// A prepared and undecided transfer delays no statement.
// Once decided, it comes after all entries that were read before.
func TestStatementDoesNotAwaitDecisions(t *testing.T) {
	t.Parallel()
	for _, how := range []string{held, prepared, paid} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0).WithIndexes()
			leavePrepared(b, "late", how)
			_, err := b.Transfer(t.Context(), bank.Move("quick", "a", "b", 10))
			require.NoError(t, err)
			payer, gainer := []string{"quick -10 90", "late -60 30"}, []string{"quick 10 10", "late 60 70"}
			requireLines(b, payer[:1], gainer[:1])
			b.RequireBalanceAt("a", b.CommittedAt("quick"), 90)
			b.RequireBalanceAt("b", b.CommittedAt("quick"), 10)
			if how == held {
				_, err := b.Post(t.Context(), "late")
				require.NoError(t, err)
			}
			b.RecoverAll()
			requireLines(b, payer, gainer)
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}

// requireLines requires what the statements of both accounts say.
func requireLines(b *bank.Bank, payer, gainer []string) {
	b.T.Helper()
	for account, want := range map[string][]string{"a": payer, "b": gainer} {
		require.Equal(b.T, want, b.Lines(b.MustStatement(b.MustLedger(""), account, transfer.StatementQuery{})))
	}
}

// hangShowing keeps a server from showing the writes that it stores, until the returned
// function is called.
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

// A server that has stored a commit and doesn't show it delays a statement, wherever the
// account is.
// A statement without that commit would not stay true.
func TestStatementOnAServerThatHangs(t *testing.T) {
	t.Parallel()
	for _, away := range []bool{false, true} {
		t.Run(fmt.Sprintf("away=%v", away), func(t *testing.T) {
			t.Parallel()
			server := bank.StartServer(t)
			client := bank.Client(t, server.URI())
			b := bank.NewBare(t) // on the server that all tests share
			accounts := b.DB.Collection("accounts")
			b.DB = client.Database(b.DB.Name())
			if !away {
				accounts = b.DB.Collection("accounts")
			}
			b.Coordinator = b.NewCoordinator(b.DB, transfer.WithAccounts(accounts))
			require.NoError(t, b.Setup(t.Context()))
			b.OpenAccounts([]int64{100, 0})
			b.MustHold("late", 60, time.Hour)
			r := reader{b, b.MustLedger(""), "a"}
			bank.Within(t, r.tell(time.Now())) // so that no read has to store something for it later

			letGo := hangShowing(t, client)
			posted := make(chan error, 1)
			go func() {
				_, err := b.Post(t.Context(), "late")
				posted <- err
			}()
			var at time.Time
			require.Eventually(t, func() bool {
				// A local read shows the commit that no other read shows yet.
				var stored struct {
					At time.Time `bson:"committedAt"`
				}
				err := b.DB.Collection("transfers").FindOne(t.Context(), bson.M{"_id": "late"}).Decode(&stored)
				at = stored.At
				return err == nil && !at.IsZero()
			}, time.Minute, time.Millisecond)
			r.requireLasting(at, func() {
				letGo()
				require.NoError(t, bank.Within(t, posted))
			})
			require.Equal(t, []string{"late -60 40"}, b.Lines(b.MustStatement(r.of, "a", transfer.StatementQuery{})))
			b.RecoverAll(transfer.WithAccounts(accounts))
			b.DB = accounts.Database()
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}
