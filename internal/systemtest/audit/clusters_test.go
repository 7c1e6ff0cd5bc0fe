package audit

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/audit"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// afterFind returns the options of a client that calls do once, as soon as its n-th find
// in a collection is answered. The first find has number 1.
func afterFind(collection string, n int, do func()) *options.ClientOptions {
	count := 0
	return afterFinds(collection, func(bson.Raw) bool { count++; return count == n }, do)
}

// afterScans returns the options of a client that calls do whenever it has begun to read
// a collection from its beginning.
func afterScans(collection string, do func()) *options.ClientOptions {
	return afterFinds(collection, func(command bson.Raw) bool {
		filter, err := command.Lookup("filter").Document().Elements()
		return err == nil && len(filter) == 0
	}, do)
}

func afterFinds(collection string, due func(command bson.Raw) bool, do func()) *options.ClientOptions {
	var (
		mu      sync.Mutex
		awaited = map[int64]bool{}
	)
	return options.Client().SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			mu.Lock()
			defer mu.Unlock()
			if name, _ := e.Command.Lookup("find").StringValueOK(); name == collection && due(e.Command) {
				awaited[e.RequestID] = true
			}
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			mu.Lock()
			now := awaited[e.RequestID]
			delete(awaited, e.RequestID)
			mu.Unlock()
			if now {
				do()
			}
		},
	})
}

// holdAcross holds 60 for an account on the other server.
func holdAcross(b *bank.Branches, id string) {
	b.T.Helper()
	_, err := b.Both.Hold(b.T.Context(), bank.Across(id, 60), time.Hour)
	require.NoError(b.T, err)
}

func removeThere(b *bank.Branches) {
	b.T.Helper()
	_, err := b.There().DeleteOne(b.T.Context(), bson.M{"_id": "a"})
	require.NoError(b.T, err)
}

// finish finishes everything in progress.
func finish(b *bank.Branches) { b.RecoverAll(b.Other()) }

// Damage between two servers is found as it is on one.
func TestAuditOverTwoServers(t *testing.T) {
	t.Parallel()
	server := bank.SecondServer(t)
	marker := func(id string, amount any) bson.M { return bson.M{"$set": bson.M{"pending." + id: amount}} }
	final := func(b *bank.Branches) { b.LeaveAcross("t", "Committed", bank.Reserved, bank.Reserved); finish(b) }
	for name, row := range map[string]struct {
		plant func(b *bank.Branches)
		want  []audit.Code
	}{
		"nothing":                 {func(b *bank.Branches) { b.LeaveAcross("t", "Committed", bank.Reserved, bank.Reserved) }, []audit.Code{}},
		"a marker of no transfer": {func(b *bank.Branches) { b.ChangeThere(marker("ghost", int64(5))) }, []audit.Code{audit.OrphanMarker}},
		"a key of no transfer":    {func(b *bank.Branches) { b.ChangeThere(marker("%zz", int64(5))) }, []audit.Code{audit.OrphanMarker}},
		"a marker of a final transfer": {
			func(b *bank.Branches) { final(b); b.ChangeThere(marker("t", int64(60))) }, []audit.Code{audit.FinalMarker},
		},
		"a marker of another amount": {
			func(b *bank.Branches) {
				b.LeaveAcross("t", "Preparing", bank.Reserved, bank.Reserved)
				b.ChangeThere(marker("t", int64(61)))
			}, []audit.Code{audit.WrongMarker},
		},
		"a committed account is gone": {func(b *bank.Branches) {
			b.LeaveAcross("t", "Committed", bank.Reserved, bank.Reserved)
			removeThere(b)
		}, []audit.Code{audit.MissingDocument}},
		"a committed account without a marker": {
			func(b *bank.Branches) {
				b.LeaveAcross("t", "Committed", bank.Reserved, bank.Reserved)
				b.ChangeThere(bson.M{"$unset": bson.M{"pending.t": ""}})
			}, []audit.Code{},
		},
		"a hold's marker is gone": {func(b *bank.Branches) {
			holdAcross(b, "t")
			b.ChangeThere(bson.M{"$unset": bson.M{"pending.t": ""}})
		}, []audit.Code{audit.MissingMarker}},
		"an overdrawn account": {
			func(b *bank.Branches) { b.ChangeThere(bson.M{"$set": bson.M{"balance": int64(-1)}}) }, []audit.Code{audit.BelowFloor},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.NewBranches(t, server, 1000, 5)
			row.plant(b)
			report, err := b.Both.Audit(t.Context())
			require.NoError(t, err)
			require.Equal(t, row.want, bank.CodesOf(report), "%v", report.Findings)
			require.Len(t, report.Ledgers, 2)
		})
	}
}

// A state seen on one server may be over when the other one is read. That is not a
// finding.
func TestAuditLooksTwice(t *testing.T) {
	t.Parallel()
	server := bank.SecondServer(t)
	held := func(b *bank.Branches) { holdAcross(b, "t") }
	void := func(b *bank.Branches) {
		_, err := b.Both.Void(b.T.Context(), "t")
		require.NoError(b.T, err)
	}
	prepared := func(b *bank.Branches) { b.LeaveAcross("t", "Preparing", bank.Reserved, bank.Reserved) }
	committed := func(b *bank.Branches) { b.LeaveAcross("t", "Committed", bank.Reserved, bank.Reserved) }
	// A wrong marker that stays makes the audit read the account again.
	besides := func(b *bank.Branches) { prepared(b); b.ChangeThere(bson.M{"$set": bson.M{"pending.ghost": int64(5)}}) }
	end := func(b *bank.Branches) { finish(b) }
	remove := func(b *bank.Branches) { finish(b); removeThere(b) }
	purge := func(b *bank.Branches) { finish(b); b.Remove("transfers", "t") }
	// A hold that is not held yet, and has stalled; and how it is held after all.
	unheld := func(b *bank.Branches) {
		holdAcross(b, "t")
		b.ChangeThere(bson.M{"$unset": bson.M{"pending.t": ""}})
		b.Change("transfers", "t", bson.M{
			"$set": bson.M{"lastModified": bank.ThresholdsAgo(11), "expiresAt": bank.ThresholdsAgo(11)}, "$unset": bson.M{"held": "", "clean": ""},
		})
	}
	hold := func(b *bank.Branches) {
		b.ChangeThere(bson.M{"$set": bson.M{"pending.t": int64(60)}})
		b.Change("transfers", "t", bson.M{"$set": bson.M{"held": true, "lastModified": time.Now()}})
	}
	for name, row := range map[string]struct {
		begin     func(b *bank.Branches)
		here      int // after this many finds in the transfers
		there     int // or after this many in the other server's accounts
		meanwhile func(b *bank.Branches)
		want      []audit.Code
	}{
		"a transfer ends after its marker was read":     {prepared, 0, 1, end, []audit.Code{}},
		"it ends after its marker was looked at again":  {besides, 0, 2, end, []audit.Code{audit.OrphanMarker}},
		"a hold ends after it was read":                 {held, 1, 0, void, []audit.Code{}},
		"it ends while it is looked at again":           {held, 3, 0, void, []audit.Code{}},
		"it is purged after its marker was looked at":   {besides, 0, 2, purge, []audit.Code{audit.OrphanMarker}},
		"a hold is held after its account was read":     {unheld, 0, 1, hold, []audit.Code{}},
		"an account is removed after its last transfer": {committed, 1, 0, remove, []audit.Code{}},
		"it is removed while the transfer is looked at": {committed, 3, 0, remove, []audit.Code{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.NewBranches(t, server, 1000, 5)
			row.begin(b)
			done := false
			meanwhile := func() { done = true; row.meanwhile(b) }
			db := b.Through(afterFind("transfers", row.here, meanwhile))
			c := b.NewCoordinator(db, b.Other(afterFind("accounts", row.there, meanwhile)))
			report, err := c.Audit(t.Context())
			require.NoError(t, err)
			require.True(t, done, "nothing happened meanwhile")
			require.Equal(t, row.want, bank.CodesOf(report), "%v", report.Findings)
		})
	}
}

// A commit while the servers are read one after the other makes the sum wrong, and on the
// next read equally wrong. That is not a finding.
func TestAuditExpectsNothingOfWhatMoves(t *testing.T) {
	t.Parallel()
	b := bank.NewBranches(t, bank.SecondServer(t), 1000, 500)
	n := 0
	db := b.Through(afterScans("transfers", func() {
		n++
		_, err := b.Both.Transfer(t.Context(), bank.Across(fmt.Sprint(n), 10))
		assert.NoError(t, err)
	}))
	report, err := b.NewCoordinator(db, b.Other()).AuditWith(t.Context(), transfer.AuditOptions{
		Expected: []transfer.ExpectedTotal{{Sum: transfer.Units(1500)}},
	})
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	require.True(t, report.Ledgers[1].Moving)
	require.False(t, report.Ledgers[0].Moving)
	require.Equal(t, transfer.Units(510), report.Ledgers[1].Total)
	for id := range n {
		b.UntilSuccess(b.Both, fmt.Sprint(1+id))
	}
	b.CheckBooks()
}

// A sum over two servers that is wrong each time, and different each time, is not a
// finding, because somebody pays in meanwhile.
func TestAuditTrustsNoSumThatChanges(t *testing.T) {
	t.Parallel()
	b := bank.NewBranches(t, bank.SecondServer(t), 1000, 500)
	db := b.Through(afterScans("transfers", func() { b.ChangeThere(bson.M{"$inc": bson.M{"balance": int64(7)}}) }))
	report, err := b.NewCoordinator(db, b.Other()).AuditWith(t.Context(), transfer.AuditOptions{
		Expected: []transfer.ExpectedTotal{{Sum: transfer.Units(1500)}},
	})
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	require.Equal(t, transfer.Units(507), report.Ledgers[1].Total, "the first look counts")
	b.ChangeThere(bson.M{"$set": bson.M{"balance": int64(500)}})
	again, err := b.Both.AuditWith(t.Context(), transfer.AuditOptions{Expected: []transfer.ExpectedTotal{{Sum: transfer.Units(1499)}}})
	require.NoError(t, err)
	require.Equal(t, []audit.Code{audit.WrongTotal}, bank.CodesOf(again), "nobody pays in")
}

// A transfer that has stalled in a snapshot, and has ended or gone on since, is not a
// finding.
func TestAuditLooksTwiceAtStalled(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(b *bank.Bank){
		"it ends":          func(b *bank.Bank) { b.RecoverAll() },
		"it is taken over": func(b *bank.Bank) { b.Silence("t", 0) },
		"it is rolled back": func(b *bank.Bank) { // by a clock that was set back to the very moment
			b.Change("transfers", "t", bson.M{"$set": bson.M{"state": "Rollback", "failure": bson.M{"code": "stalled"}}})
		},
		"it is purged": func(b *bank.Bank) { b.RecoverAll(); b.Remove("transfers", "t") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0)
			b.LeavePrepared("t", 60)
			b.SetField("transfers", "t", "lastModified", bank.ThresholdsAgo(10))
			require.Equal(t, []audit.Code{audit.Stalled}, bank.CodesOf(b.MustAudit()))
			c := b.NewCoordinator(b.Through(afterFind("transfers", 1, func() { meanwhile(b) })))
			report, err := c.Audit(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, report.Unfinished)
			require.Empty(t, report.Findings)
			b.RecoverAll()
			if name != "it is purged" {
				b.CheckBooks(bank.Balances(100, 0))
			}
			require.Empty(t, b.MustAudit().Findings)
		})
	}
}

// Sums over two servers are exact as long as nothing commits in between. Otherwise they
// are compared with no expectation.
// An audit during a busy load finds nothing.
func TestAuditTotalsOverTwoServers(t *testing.T) {
	t.Parallel()
	b := bank.NewBranches(t, bank.SecondServer(t), 1000, 500)
	expecting := func(units int64) transfer.AuditReport {
		report, err := b.Both.AuditWith(t.Context(), transfer.AuditOptions{Expected: []transfer.ExpectedTotal{{Sum: transfer.Units(units)}}})
		require.NoError(t, err)
		return report
	}
	for _, state := range []string{"Preparing", "Committed"} {
		for _, payee := range []bank.Trace{bank.Reserved, bank.Done} {
			b.LeaveAcross(fmt.Sprint(state, payee), state, bank.Reserved, payee)
		}
	}
	require.Empty(t, expecting(1500).Findings)
	report := expecting(1501)
	require.Equal(t, []audit.Code{audit.WrongTotal}, bank.CodesOf(report))
	require.Contains(t, report.Findings[0].Detail, "that is -1 off what was expected, 1501")
	finish(b)

	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				_, _ = b.Both.Transfer(ctx, bank.Across(fmt.Sprint(i, "-", n), int64(1-2*(n%2))*int64(1+i)))
			}
		})
	}
	sweeper := b.NewCoordinator(b.DB, b.Other(), transfer.WithStallThreshold(0))
	all.Go(func() {
		for ctx.Err() == nil {
			_, _ = sweeper.Recover(ctx)
		}
	})
	for audits, moving := 0, 0; audits < 20 || moving < 3; audits++ {
		require.NoError(t, ctx.Err(), "nothing was committed while one server was read after the other")
		report := expecting(1500)
		require.Empty(t, report.Findings)
		if report.Ledgers[1].Moving {
			moving++
		}
	}
	stop()
	all.Wait()
	finish(b)
	report = expecting(1500)
	require.Empty(t, report.Findings)
	require.Zero(t, report.InTransit.Cmp(transfer.Units(0)))
	b.CheckBooks()
}

// An audit is independent of its caller's session, even of one that has ended.
func TestAuditOutsideOfSessions(t *testing.T) {
	t.Parallel()
	b := bank.NewBranches(t, bank.SecondServer(t), 1000, 5)
	b.LeaveAcross("t", "Preparing", bank.Reserved, bank.Reserved)
	session, err := b.DB.Client().StartSession()
	require.NoError(t, err)
	session.EndSession(t.Context())
	report, err := b.Both.Audit(mongo.NewSessionContext(t.Context(), session))
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	require.Equal(t, 1, report.Unfinished)
	finish(b)
	b.CheckBooks()
}

// If a server doesn't keep its snapshots for long enough, the audit returns an error that
// says what to do, and so do the reads of a caller.
func TestAuditTooLong(t *testing.T) {
	t.Parallel()
	server := bank.StartServer(t)
	client, err := mongo.Connect(options.Client().ApplyURI(server.URI()))
	require.NoError(t, err)
	defer func() { _ = client.Disconnect(t.Context()) }()
	require.NoError(t, client.Database("admin").RunCommand(t.Context(), bson.D{
		{Key: "setParameter", Value: 1}, {Key: "minSnapshotHistoryWindowInSeconds", Value: 0},
	}).Err())
	writes := client.Database("bank").Collection("other")
	watched, err := mongo.Connect(options.Client().ApplyURI(server.URI()), afterFind("transfers", 1, func() {
		for n := range 200 {
			_, err := writes.InsertOne(t.Context(), bson.M{"_id": n})
			assert.NoError(t, err)
		}
	}))
	require.NoError(t, err)
	defer func() { _ = watched.Disconnect(t.Context()) }()
	c, err := transfer.NewCoordinator(watched.Database("bank"))
	require.NoError(t, err)
	require.NoError(t, c.Setup(t.Context()))
	_, err = c.Audit(t.Context())
	require.ErrorIs(t, err, transfer.ErrAuditTooLong)
	report, err := c.Audit(t.Context())
	require.NoError(t, err, "the next one is quick enough")
	require.Empty(t, report.Findings)
}
