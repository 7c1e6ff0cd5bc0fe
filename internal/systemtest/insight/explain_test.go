package insight

import (
	"context"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// explain returns an explanation, and its participants in one line each.
func (b seen) explain(c *transfer.Coordinator, id string) (transfer.Explanation, []string) {
	b.T.Helper()
	e, err := c.Explain(b.T.Context(), id)
	require.NoError(b.T, err)
	var lines []string
	for _, p := range e.Participants {
		lines = append(lines, strings.Join(strings.Fields(p.String()), " "))
	}
	return e, lines
}

// told is what is expected of an explanation.
type told struct {
	leave        func(b seen)
	participants []string
	left, advice string // parts of them
	works        bool   // there is an executor
	tries        bool   // there is a next try
}

// undecided are transfers that are neither committed nor rolled back.
func undecided() map[string]told {
	return map[string]told{
		"scheduled": {
			func(b seen) {
				_, err := b.Submit(b.T.Context(), bank.Later("t", 10))
				require.NoError(b.T, err)
			}, []string{`none "a" -10`, `none "b" 10`}, "a worker has to run it", "it waits for its time", false, true,
		},
		"due": {
			func(b seen) { b.MustSubmit("t") }, []string{`none "a" -1`, `none "b" 1`}, "a worker has to run it", "about to begin", false, true,
		},
		"due for long": {
			func(b seen) {
				b.MustSubmit("t")
				b.SetField("transfers", "t", "createdAt", time.Now().Add(-time.Hour))
			}, []string{`none "a" -1`, `none "b" 1`}, "a worker has to run it", "See that some process calls Run", false, true,
		},
		"half prepared": {
			func(b seen) { b.StallHalf("t", 10) },
			[]string{`reserved "a" -10`, `none "b" 10`}, `to reserve at account "b"`, "Nothing yet: it is under way", true, true,
		},
		"prepared": {
			func(b seen) { b.LeavePrepared("t", 10) },
			[]string{`reserved "a" -10`, `reserved "b" 10`}, "all is reserved: to record the commit", "Nothing yet", true, true,
		},
		"held": {
			func(b seen) { b.MustHold("t", 10, time.Hour) },
			[]string{`reserved "a" -10`, `reserved "b" 10`}, "to be posted or voided", "Post takes the money", false, true,
		},
		"overdue": {
			func(b seen) {
				b.MustHold("t", 10, time.Hour)
				b.Expire("t")
			}, []string{`reserved "a" -10`, `reserved "b" 10`}, "to be posted or voided", "Its time has run out", false, true,
		},
		"not yet held": {
			func(b seen) { b.StallHold("t", bank.HeldMark) },
			[]string{`reserved "a" -60`, `reserved "b" 60`}, "to record that all is held", "Ask for the hold again", true, true,
		},
		"frozen": {
			func(b seen) {
				b.StallHalf("t", 10)
				b.SetField("accounts", "b", "frozen", true)
			}, []string{`reserved "a" -10`, `none "b" 10 (the account is frozen)`}, "to reserve", "Nothing yet", true, true,
		},
	}
}

// decided are the others.
func decided() map[string]told {
	return map[string]told{
		"success": {
			func(b seen) { b.MustMove("t", 10) }, []string{`settled "a" -10`, `settled "b" 10`}, "nothing",
			"Reverse takes its money back", false, false,
		},
		"cancelled": {
			func(b seen) {
				b.MustSubmit("t")
				_, err := b.Cancel(b.T.Context(), "t", "no longer wanted")
				require.NoError(b.T, err)
			}, []string{`none "a" -1`, `none "b" 1`}, "nothing", "needs a new ID", false, false,
		},
		"recorded": {
			func(b seen) { b.LeaveRecorded("t", 10) },
			[]string{`reserved "a" -10`, `reserved "b" 10`}, `to pay or set at account "b"`, "Nothing yet", true, true,
		},
		"paid": {
			func(b seen) { b.LeaveTraces("t", 10, "Committed", bank.Reserved, bank.Done) },
			[]string{`reserved "a" -10`, `settled "b" 10 (a mark is left, which is removed later)`},
			`all is in place: to remove the marks at account "a", account "b"`, "Nothing yet", true, true,
		},
		"cleared": {
			func(b seen) { b.LeaveTraces("t", 10, "Committed", bank.Cleared, bank.Cleared) },
			[]string{`settled "a" -10`, `settled "b" 10`}, "all is in place: to record the end", "Nothing yet", true, true,
		},
		"stalled": {
			func(b seen) {
				b.LeaveRecorded("t", 10)
				b.Silence("t", time.Hour)
			}, []string{`reserved "a" -10`, `reserved "b" 10`}, "to pay", "It has stalled", true, true,
		},
		"modified in an hour": {
			func(b seen) {
				b.LeaveRecorded("t", 10)
				b.Silence("t", -time.Hour)
			}, []string{`reserved "a" -10`, `reserved "b" 10`}, "to pay", "It has stalled", true, true,
		},
		"roll-back": {
			func(b seen) { b.rollBack("t") }, []string{`none "a" -10`, `none "b" 10`}, "to record the end", "Nothing yet", true, true,
		},
		"half rolled back": {
			func(b seen) {
				b.StallHalf("t", 10)
				failure := bson.M{"code": "cancelled", "ledger": "", "account": "", "message": "no longer wanted"}
				b.Change("transfers", "t", bson.M{"$set": bson.M{"state": "Rollback", "failure": failure}})
			}, []string{`reserved "a" -10`, `none "b" 10`}, `to give back at account "a"`, "Nothing yet", true, true,
		},
	}
}

// Explain says of a transfer, wherever its process has died, what each account shows of
// it, what is left to be done, and what to do.
func TestExplain(t *testing.T) {
	t.Parallel()
	shared := bank.NewBare(t)
	rows := maps.Clone(undecided())
	maps.Copy(rows, decided())
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			shared.Renew(t, 1000, 0)
			b := seen{shared}
			row.leave(b)
			e, participants := b.explain(b.Coordinator, "t")
			rec, err := b.Get(t.Context(), "t")
			require.NoError(t, err)
			require.Equal(t, rec, e.Record)
			require.Equal(t, row.participants, participants)
			assert.Contains(t, e.Left, row.left)
			assert.Contains(t, e.Advice, row.advice)
			assert.Equal(t, row.works, e.Executor != "")
			assert.Equal(t, row.tries, !e.NextTry.IsZero())
			assert.Equal(t, rec.LastModified, e.Since)
			for _, line := range participants {
				assert.Contains(t, strings.Join(strings.Fields(e.String()), " "), line)
			}
			b.Change("accounts", "b", bson.M{"$unset": bson.M{"frozen": ""}})
			b.end()
		})
	}
}

// end brings everything to its end, and checks the books.
func (b seen) end() {
	b.T.Helper()
	for rec, err := range b.List(b.T.Context(), transfer.Query{Unfinished: true}) {
		require.NoError(b.T, err)
		if rec.Hold {
			_, err := b.Void(b.T.Context(), rec.ID)
			require.NoError(b.T, err)
		}
	}
	b.CancelWaiting()
	b.RecoverAll()
	b.CheckBooks(bank.Balances(1000, 0))
}

// The next try is when the takeover comes, which is later with each one in vain.
func TestNextTryIsWhenTheTakeoverComes(t *testing.T) {
	t.Parallel()
	b := newSeen(t, 1000, 0)
	bringBack := bank.Deleted("b")
	b.LeaveRecorded("t", 10)
	restore := bringBack(b.Bank)
	impatient := b.NewRecoverer()
	for n := 1; n <= 2; n++ {
		report, err := impatient.Recover(t.Context())
		require.NoError(t, err)
		require.Equal(t, transfer.RecoveryReport{Found: 1, Stuck: 1}, report)
		c := b.NewCoordinator(b.DB, transfer.WithStallThreshold(time.Hour))
		e, participants := b.explain(c, "t")
		require.Equal(t, time.Hour<<n, e.NextTry.Sub(e.Record.LastModified), "after %d takeovers", n)
		require.Equal(t, "b", e.Record.Stuck.Account)
		require.Equal(t, `missing "b" 10 (the transfer can't be finished there until it is back with its marker; it is in the way: `+
			e.Record.Stuck.Message+")", participants[1])
		require.Contains(t, e.Left, `to pay or set at account "b"`)
		require.Contains(t, e.Advice, `Gone is what it has to pay or set: account "b". Bring the document back with its marker`)
		require.Contains(t, e.String(), "stuck:")
		require.Contains(t, e.String(), "was taken over "+map[int]string{1: "once", 2: "2 times"}[n])
	}
	first, _ := b.explain(b.Coordinator, "t")
	_, err := impatient.Recover(t.Context())
	require.NoError(t, err)
	again, _ := b.explain(b.Coordinator, "t")
	require.Equal(t, first.Since, again.Since, "it is stuck since it was first found to be")
	restore()
	e, _ := b.explain(b.Coordinator, "t")
	require.Contains(t, e.Advice, "Nothing: the document that was gone is back, with its marker.")
	b.end()
}

// What waits for funds is not old, and Explain says whose money is lacking.
func TestExplainWaiting(t *testing.T) {
	t.Parallel()
	b := newSeen(t, 1000, 0)
	_, err := b.Submit(t.Context(), transfer.Request{
		ID: "t", From: "b", To: "a", Amount: transfer.Units(10), AwaitFundsUntil: time.Now().Add(time.Hour),
	})
	require.NoError(t, err)
	w := newWatcher()
	end := bank.InBackground(t, b.NewCoordinator(b.DB, transfer.WithObserver(w.observer())))
	require.Eventually(t, func() bool {
		rec, err := b.Get(t.Context(), "t")
		return err == nil && rec.Waiting != nil
	}, time.Minute, time.Millisecond)
	end()
	w.requireBalanced(t)
	require.Equal(t, "postpone t Moved Initiated\n", toldOf(w.take()[0]))
	e, participants := b.explain(b.Coordinator, "t")
	require.Equal(t, `none "b" -10 (it is waited for: `+e.Record.Waiting.Message+")", participants[0])
	require.Contains(t, e.Advice, "It waits for money: ")
	require.Equal(t, e.Record.NextTry, e.NextTry)
	require.NotContains(t, e.Advice, "See that some process calls Run")
	stats := b.mustStats()
	require.EqualValues(t, 1, stats.Scheduled+stats.Due)
	for _, field := range []string{"createdAt", "notBefore"} {
		b.SetField("transfers", "t", field, time.Now().Add(-time.Minute))
	}
	e, _ = b.explain(b.Coordinator, "t")
	require.Equal(t, "It waits for money: "+e.Record.Waiting.Message+
		". A worker should have looked again by now. See that some process calls Run.", e.Advice)
	b.end()
}

// Explain says what was posted of a hold, which may be less than was held, and what is
// left of that to be taken back.
func TestExplainPosted(t *testing.T) {
	t.Parallel()
	b := newSeen(t, 1000, 0)
	_, err := b.Hold(t.Context(), bank.Move("t", "a", "b", 300), time.Hour)
	require.NoError(t, err)
	e, _ := b.explain(b.Coordinator, "t")
	require.NotContains(t, e.String(), "posted:")
	_, err = b.Post(t.Context(), "t", transfer.PostAmount(transfer.Units(240)))
	require.NoError(t, err)
	b.RecoverAll()
	e, participants := b.explain(b.Coordinator, "t")
	require.Equal(t, []string{`settled "a" -300`, `settled "b" 300`}, participants)
	require.Contains(t, e.String(), "\nposted:   240\n")
	require.NotContains(t, e.String(), "reversed:")
	require.Equal(t, "Nothing. Reverse takes its money back.", e.Advice)
	_, err = b.Reverse(t.Context(), transfer.Reversal{ID: "some", Of: "t", Amount: transfer.Units(40)})
	require.NoError(t, err)
	e, _ = b.explain(b.Coordinator, "t")
	require.Contains(t, e.String(), "\nposted:   240\nreversed: 40\n")
	require.Equal(t, "Nothing. Reverse takes its money back.", e.Advice)
	_, err = b.Reverse(t.Context(), transfer.Reversal{ID: "rest", Of: "t", All: true})
	require.NoError(t, err)
	e, _ = b.explain(b.Coordinator, "t")
	require.Contains(t, e.String(), "\nreversed: 240\n")
	require.Equal(t, `Nothing. It was reversed, the last of it by "rest".`, e.Advice)
	b.end()
}

// Explain says once why a transfer has failed.
func TestExplainVoided(t *testing.T) {
	b := newSeen(t, 1000, 0)
	b.MustHold("t", 300, time.Hour)
	_, err := b.Void(t.Context(), "t")
	require.NoError(t, err)
	e, _ := b.explain(b.Coordinator, "t")
	require.Contains(t, e.String(), "\nfailed:   voided\n")
	b.end()
}

// Explain shows what an effect and a reversal do to their documents.
func TestExplainDocuments(t *testing.T) {
	t.Parallel()
	b := seen{bank.NewShop(t, 1000, 0).WithIndexes()}
	b.LeavePayment("paying", "o-1", 10, "Committed", bank.Reserved)
	e, participants := b.explain(b.Coordinator, "paying")
	require.Equal(t, []string{`reserved "a" -10`, `reserved "b" 10`, `reserved "o-1" of "orders"`}, participants)
	require.Equal(t, `to pay or set at account "b", document "o-1" of "orders"`, e.Left)
	b.RecoverAll(bank.Orders(b.DB)...)
	_, participants = b.explain(b.Coordinator, "paying")
	require.Equal(t, []string{`settled "a" -10`, `settled "b" 10`, `settled "o-1" of "orders"`}, participants)

	_, err := b.Reverse(t.Context(), transfer.Reversal{ID: "back", Of: "paying", All: true})
	require.NoError(t, err)
	e, _ = b.explain(b.Coordinator, "paying")
	require.Equal(t, `Nothing. It was reversed, the last of it by "back".`, e.Advice)
	require.Contains(t, e.String(), "\nreversed: 10\n")
	_, participants = b.explain(b.Coordinator, "back")
	require.Equal(t, []string{`settled "a" 10`, `settled "b" -10`, `settled "paying" of "transfers"`}, participants)
	b.Remove("transfers", "paying")
	e, participants = b.explain(b.Coordinator, "back")
	require.Equal(t, `missing "paying" of "transfers" (it was removed, and nobody waits for it)`, participants[2])
	require.Contains(t, e.String(), `(reverses "paying")`)
}

// What can't be read is not known, and the rest is explained all the same: a collection
// that is not registered here, one whose server is away, and markers that are none.
func TestExplainWithoutAll(t *testing.T) {
	t.Parallel()
	b := newSeen(t, 1000, 0)
	elsewhere := transfer.WithLedger("other", b.DB.Collection("other"))
	both := b.NewCoordinator(b.DB, elsewhere)
	other, err := both.Ledger("other")
	require.NoError(t, err)
	_, err = other.Open(t.Context(), transfer.Account{ID: "z"})
	require.NoError(t, err)
	_, err = both.Transfer(t.Context(), bank.ToZ("t"))
	require.NoError(t, err)
	b.SetBack("t", "Committed")
	b.LeaveTrace("t", "a", -1, bank.Reserved)

	e, participants := b.explain(b.Coordinator, "t")
	require.Equal(t, []string{`reserved "a" -1`, `not known "z" of "other" 1 (its collection is not registered here)`}, participants)
	require.Contains(t, e.Advice, "see WithLedger")
	another := b.NewCoordinator(b.DB, transfer.WithLedger("other", b.DB.Collection("another")))
	_, participants = b.explain(another, "t")
	require.Contains(t, participants[1], "its collection is not registered here", "the name stands for another collection there")
	nowhere := bank.Client(t, "mongodb://127.0.0.1:1", options.Client().SetServerSelectionTimeout(50*time.Millisecond))
	blind := b.NewCoordinator(b.DB, transfer.WithLedger("other", nowhere.Database(b.DB.Name()).Collection("other")))
	e, participants = b.explain(blind, "t")
	require.Equal(t, `reserved "a" -1`, participants[0])
	require.Contains(t, participants[1], `not known "z" of "other" 1 (it could not be read: `)
	require.Contains(t, e.Advice, "can be read")
	e, participants = b.explain(both, "t")
	require.Equal(t, []string{`reserved "a" -1`, `settled "z" of "other" 1`}, participants)
	require.Contains(t, e.Left, `to remove the marks at account "a"`)

	b.SetField("accounts", "b", "pending", bson.A{})
	b.MustSubmit("garbled")
	_, participants = b.explain(both, "garbled")
	require.Equal(t, `not known "b" 1 (its markers are no document: see RepairPending)`, participants[1])
}

// A hold is not to be posted while the document of an account is gone, since it would be
// stuck.
func TestExplainHoldOfWhatIsGone(t *testing.T) {
	t.Parallel()
	b := newSeen(t, 1000, 0)
	b.MustHold("t", 10, time.Hour)
	var account bson.M
	require.NoError(t, b.DB.Collection("accounts").FindOne(t.Context(), bson.M{"_id": "b"}).Decode(&account))
	b.Remove("accounts", "b")
	e, participants := b.explain(b.Coordinator, "t")
	require.Equal(t, []string{
		`reserved "a" -10`, `missing "b" 10 (the transfer can't be finished there until it is back with its marker)`,
	}, participants)
	require.Contains(t, e.Advice, `Restore what is missing, with its marker, before you post or void it: account "b".`)
	require.NotContains(t, e.Advice, "Nothing")
	b.Insert("accounts", account)
	e, _ = b.explain(b.Coordinator, "t")
	require.Contains(t, e.Advice, "Nothing. Post takes the money")
	b.end()
}

// What is left is not known, in any state, where that depends on a document that can't be
// read.
func TestExplainWhatIsLeftUnread(t *testing.T) {
	t.Parallel()
	b := newSeen(t, 1000, 0)
	both := b.NewCoordinator(b.DB, transfer.WithLedger("other", b.DB.Collection("other")))
	other, err := both.Ledger("other")
	require.NoError(t, err)
	_, err = other.Open(t.Context(), transfer.Account{ID: "z"})
	require.NoError(t, err)
	for state, row := range map[string]struct {
		trace bank.Trace
		shown string
		left  string // where all can be read
	}{
		"Preparing": {bank.Reserved, "reserved", `to reserve at account "z" of ledger "other"`},
		"Committed": {bank.Cleared, "settled", "all is in place: to record the end"},
		"Rollback":  {bank.Cleared, "none", "to record the end"},
	} {
		_, err = both.Transfer(t.Context(), bank.ToZ(state))
		require.NoError(t, err)
		b.SetBack(state, state)
		b.LeaveTrace(state, "a", -1, row.trace)
		e, participants := b.explain(b.Coordinator, state)
		require.Equal(t, row.shown+` "a" -1`, participants[0])
		require.Equal(t, "not known: not everything could be read", e.Left, state)
		e, _ = b.explain(both, state)
		require.Equal(t, row.left, e.Left, state)
	}
}

// A transfer that makes no sense is shown as it is stored, and recovery leaves it alone.
func TestExplainWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	b := newSeen(t, 1000, 0)
	b.LeaveRecorded("changed", 10)
	b.SetField("transfers", "changed", "legs.0.amount", int64(-11))
	e, _ := b.explain(b.Coordinator, "changed")
	require.Contains(t, e.Advice, "Audit")
	require.Zero(t, e.NextTry)
	b.LeaveRecorded("later", 10)
	b.SetField("transfers", "later", "state", "Teleported")
	e, _ = b.explain(b.Coordinator, "later")
	require.Equal(t, `not known: "Teleported" is no state of this version`, e.Left)
	require.Zero(t, e.NextTry)
	b.MustMove("marked", 10)
	b.LeaveTrace("marked", "b", 10, bank.Reserved)
	e, participants := b.explain(b.Coordinator, "marked")
	require.Equal(t, `reserved "b" 10 (a mark is left, though the transfer is final: see Audit)`, participants[1])
	require.Contains(t, e.Advice, "Audit")
}

// What Explain shows of the accounts is of the state that it shows: a transfer that moves
// on while they are read is read again.
func TestExplainOfOneMoment(t *testing.T) {
	t.Parallel()
	b := newSeen(t, 1000, 0)
	b.LeaveRecorded("t", 10)
	var once sync.Once
	moving := &event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
		if e.CommandName == "find" && strings.Contains(e.Reply.String(), `"fence"`) { // of the accounts
			once.Do(func() { b.RecoverAll() })
		}
	}}
	c := b.NewCoordinator(b.Through(options.Client().SetMonitor(moving)))
	e, participants := b.explain(c, "t")
	require.Equal(t, transfer.StateSuccess, e.Record.State)
	require.Equal(t, []string{`settled "a" -10`, `settled "b" 10`}, participants)
	require.Equal(t, "nothing", e.Left)
	b.end()
}

// While this process works on a transfer, Explain says so.
func TestExplainUnderWay(t *testing.T) {
	t.Parallel()
	b := newSeen(t, 1000, 0)
	w := &bank.Wire{Is: bank.Settles.Selector(), What: bank.Swallowed}
	c := b.NewCoordinator(b.Through(w.Client()))
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() {
		_, err := c.Transfer(ctx, bank.Move("t", "a", "b", 10))
		answered <- err
	}()
	require.Eventually(t, w.HasStruck, time.Minute, time.Millisecond)
	e, _ := b.explain(c, "t")
	require.Contains(t, e.Advice, "this process has been working on it since")
	require.NotEmpty(t, e.Executor)
	e, _ = b.explain(b.Coordinator, "t")
	require.Contains(t, e.Advice, "it is under way")
	require.Contains(t, e.Advice, "where its process has died, Run as a rule within seconds")
	w.Cut()
	cancel()
	bank.Kill(c)
	bank.RequireUnended(t, bank.Within(t, answered))
	b.end()
}

// Explain and Stats answer as other look-ups do.
func TestInsightErrors(t *testing.T) {
	t.Parallel()
	b := newSeen(t, 1000, 0)
	_, err := b.Explain(t.Context(), "nobody")
	require.ErrorIs(t, err, transfer.ErrTransferNotFound)
	require.Equal(t, transfer.Unchanged, transfer.OutcomeOf(err))
	_, err = b.Explain(t.Context(), "")
	require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.Explain(ended, "nobody")
	require.ErrorIs(t, err, context.Canceled)
	_, err = b.Stats(ended)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, transfer.NothingStored, transfer.OutcomeOf(err))
	require.NoError(t, b.Close(t.Context()))
	_, err = b.Explain(t.Context(), "nobody")
	require.ErrorIs(t, err, transfer.ErrClosed)
	_, err = b.Stats(t.Context())
	require.ErrorIs(t, err, transfer.ErrClosed)
}
