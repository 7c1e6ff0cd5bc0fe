package history_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/history"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// The ways to read an account.
const (
	atOnce    = "at once"    // with the transfers
	apart     = "apart"      // in another cluster than the transfers
	byChanges = "by changes" // the same, and what is committed meanwhile is ordered by them
)

// Whatever step a transfer takes while an account's past is closed, the balance contains
// everything that was committed before the instant of the closing, and nothing else. The
// test tries all moments for each of the three steps. Another transfer is complete
// before.
func TestClosingAmongSteps(t *testing.T) {
	t.Parallel()
	// The last moment is after the first read of undecided transfers.
	for how, most := range map[string]int{atOnce: 8, apart: 9, byChanges: 11} {
		for first := 0; first <= most; first++ {
			t.Run(fmt.Sprintf("%s/prepared before command %d", how, first), func(t *testing.T) {
				t.Parallel()
				b, s := newStepBank(t, how != atOnce)
				for second := first; second <= most; second++ {
					for third := second; third <= most; third++ {
						b.closeAmong(s, how, [3]int{first, second, third})
					}
				}
			})
		}
	}
}

func (b *bank) closeAmong(s *steps, how string, at [3]int) {
	b.T.Helper()
	name := fmt.Sprint(at)
	b.Put(storetest.Account(name, nil))
	before := mover{b, "before " + name, name, 7, 7, false}
	before.prepare()
	before.commit()
	before.settle()
	b.stored()
	m := mover{b, name, name, 50, 30, at[1]%2 == 0}
	if (at[0]+at[1]+at[2])%2 == 0 {
		m.held = -50
	}
	h := b.history(name)
	if at[0] == 0 { // its trace is there from the beginning
		m.prepare()
		b.stored()
	}
	if how == byChanges {
		require.NoError(b.T, h.Reach(b.T.Context()))
	}
	due := map[int][]func(){}
	for i, step := range []func(){m.prepare, m.commit, m.settle} {
		if i > 0 || at[0] > 0 {
			due[at[i]] = append(due[at[i]], step)
		}
	}
	end := s.begin(due)
	closed, found, err := h.BalanceAsOf(b.T.Context(), time.Time{})
	commands := end()
	require.NoError(b.T, err)
	require.True(b.T, found)
	want := int64(107)
	if stored := b.Raw("transfers", name); stored != nil {
		committed, has := stored.Lookup("committedAt").TimeOK()
		switch {
		case !has || !committed.Before(closed.At):
		case m.held > 0:
			want += m.posted
		default:
			want -= m.posted
		}
	}
	require.Equal(b.T, money.Units(want), closed.Balance, "steps before commands %v of %d", at, commands)
}

// A whole transfer looks the same between the clock and the account's read as between
// that read and the clock. So nothing is decided, and the account is read again.
func TestUndecidedClosing(t *testing.T) {
	t.Parallel()
	b, s := newStepBank(t, true)
	for _, at := range []int{2, 3} {
		name := fmt.Sprint(at)
		b.Put(storetest.Account(name, nil))
		m := mover{b, name, name, 50, 50, false}
		h := b.history(name)
		end := s.begin(map[int][]func(){at: {m.prepare, m.commit, m.settle}})
		closed, found, err := h.BalanceAsOf(t.Context(), time.Time{})
		commands := end()
		require.NoError(t, err)
		require.Greater(t, commands, 8, "the account was read again: %v %v %v", closed, found, at)
		require.Equal(t, money.Units(150), closed.Balance)
	}
}

// A past is closed although a whole transfer is made on the account before each command.
// Those whose commits are in the middle of it are ordered by the changes of the account:
// with the first entry of its markers, and with others, and with a document as a whole.
func TestClosingOfABusyAccount(t *testing.T) {
	t.Parallel()
	b, s := newStepBank(t, true)
	for name, changes := range map[string]bson.M{
		"without markers": nil,
		"with others":     {"pending": bson.M{"x": int64(0), "y%": int64(0), "z": int64(0)}},
	} {
		b.Put(storetest.Account(name, changes))
		due := map[int][]func(){}
		for n := range 1000 {
			m := mover{b, fmt.Sprint(name, n), name, 1, 1, false}
			due[n] = []func(){m.prepare, m.commit, m.settle}
			if n%3 == 0 {
				due[n] = []func(){m.prepare, m.replace, m.commit, m.settle, m.replace}
			}
		}
		h := b.history(name)
		end := s.begin(due)
		closed, _, err := h.BalanceAsOf(t.Context(), time.Time{})
		commands := end()
		require.NoError(t, err)
		require.Less(t, commands, 30)
		entries, _, err := h.Page(t.Context(), history.OldestFirst, time.Time{}, closed.At, 1000)
		require.NoError(t, err)
		require.NotEmpty(t, entries)
		require.Equal(t, money.Units(100+int64(len(entries))), closed.Balance)
	}
}

// A clock of whole milliseconds does not show which of two events in one of them was
// first, so it decides nothing there. A commit in the millisecond of the call is in, and
// one in the millisecond of the closing is not.
func TestClosingWithinOneMillisecond(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		apart   bool
		commits int  // in the millisecond of which reading of the clock
		settled bool // before the account is read; or prepared after that
		hellos  int
		in      bool
	}{
		"apart, of the call":           {true, 1, true, 3, true},
		"apart, of the closing":        {true, 2, false, 6, true},
		"apart, of the second reading": {true, 3, true, 6, true},
		"at once, of the call":         {false, 1, true, 2, true},
		"at once, of the closing":      {false, 2, true, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b *bank
			hellos := 0
			monitor := &event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
				if e.CommandName != "hello" {
					return
				}
				if hellos++; hellos == c.commits {
					b.PutIn("transfers", past("t", e.Reply.Lookup("localTime").Time(), 50))
				}
				if hellos == 3 && !c.settled {
					b.Change("accounts", "alice", bson.M{"$set": bson.M{"pending.t": int64(50)}})
				}
			}}
			b = newBank(t, func(config *storetest.Config) {
				db := mongotest.Client(t, options.Client().SetMonitor(monitor)).Database(config.Transfers.Database().Name())
				config.Transfers = db.Collection("transfers")
				if !c.apart {
					config.Ledgers[""] = db.Collection("accounts")
				}
			})
			b.Put(storetest.Account("alice", nil))
			if c.settled {
				b.Change("accounts", "alice", bson.M{"$inc": bson.M{"balance": int64(50)}})
			}
			h := b.history("alice")
			closed, _, err := h.BalanceAsOf(t.Context(), time.Time{})
			require.NoError(t, err)
			require.GreaterOrEqual(t, hellos, c.hellos, "apart, the account was read again")
			entries, _, err := h.Page(t.Context(), history.NewestFirst, time.Time{}, closed.At, 10)
			require.NoError(t, err)
			if !c.in {
				require.Empty(t, entries)
				require.Equal(t, money.Units(100), closed.Balance)
				return
			}
			require.Len(t, entries, 1)
			require.Equal(t, money.Units(150), closed.Balance)
		})
	}
}

// A change shows the traces of transfers in each form in which a server reports it.
func TestTracesInChanges(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for change, want := range map[string][]string{
		`{"updateDescription": {"updatedFields": {"balance": 1, "fence": "x", "pendings.t": 1}}}`:                 nil,
		`{"updateDescription": {"updatedFields": {"pending.t": 1, "pending.%31": 1, "pending.a%2Eb%": 1}}}`:       {"t", "1", "a.b"},
		`{"updateDescription": {"updatedFields": {"pending": {"t": 1, "u%": 1}}}}`:                                {"t", "u"},
		`{"fullDocument": {"pending": {"%31": 1, "u%": 1}}}`:                                                      {"1", "u"},
		`{"updateDescription": {"removedFields": ["pending.t"], "updatedFields": {}}, "documentKey": {"_id": 1}}`: nil,
	} {
		var document bson.Raw
		require.NoError(t, bson.UnmarshalExtJSON([]byte(change), false, &document))
		require.Equal(t, want, b.history("alice").TracesIn(document), change)
	}
}
