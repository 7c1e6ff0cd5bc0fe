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

// Whatever step a transfer takes while an account's past is closed, the balance contains
// everything that was committed before the instant of the closing, and nothing else. The
// test tries all moments for each of the three steps. Another transfer is complete
// before.
func TestClosingAmongSteps(t *testing.T) {
	t.Parallel()
	// The last moment is after the first read of undecided transfers.
	for apart, most := range map[bool]int{false: 8, true: 9} {
		for first := 0; first <= most; first++ {
			t.Run(fmt.Sprintf("apart=%v/prepared before command %d", apart, first), func(t *testing.T) {
				t.Parallel()
				b, s := newStepBank(t, apart)
				for second := first; second <= most; second++ {
					for third := second; third <= most; third++ {
						b.closeAmong(s, [3]int{first, second, third})
					}
				}
			})
		}
	}
}

func (b *bank) closeAmong(s *steps, at [3]int) {
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
	due := map[int][]func(){}
	for i, step := range []func(){m.prepare, m.commit, m.settle} {
		due[at[i]] = append(due[at[i]], step)
	}
	h := b.history(name)
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

	b.Put(storetest.Account("busy", nil))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	due := map[int][]func(){}
	for n := range 1000 { // one transfer before each command, without end
		m := mover{b, fmt.Sprint("t", n), "busy", 1, 1, false}
		due[n] = []func(){m.prepare, m.commit, m.settle}
	}
	h := b.history("busy")
	end := s.begin(due)
	_, _, err := h.BalanceAsOf(ctx, time.Time{})
	end()
	require.ErrorIs(t, err, context.DeadlineExceeded)
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
