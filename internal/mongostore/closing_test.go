package mongostore

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongotransfer/transfer/internal/history"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

// steps lets things happen before the commands of a store, counted over all of its clients.
type steps struct {
	mu     sync.Mutex
	n      int
	before map[int][]func()
}

func (s *steps) monitor() *options.ClientOptions {
	return options.Client().SetMonitor(&event.CommandMonitor{Started: func(context.Context, *event.CommandStartedEvent) {
		s.mu.Lock()
		due := s.before[s.n]
		s.n++
		s.mu.Unlock()
		for _, happen := range due {
			happen()
		}
	}})
}

// begin lets the next command be number 0, and returns what counts the commands since and ends it all.
func (s *steps) begin(before map[int][]func()) (end func() int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n, s.before = 0, before
	return func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.before = nil
		return s.n
	}
}

// newStepBank returns a bank without accounts. Apart: the store reaches those through another client than the transfers, so that they
// may be in two clusters for all that it knows.
func newStepBank(t *testing.T, apart bool) (*bank, *steps) {
	t.Helper()
	s := &steps{}
	b := newBank(t, func(c *config) {
		name := c.Transfers.Database().Name()
		db := mongotest.Client(t, s.monitor()).Database(name)
		c.Transfers = db.Collection("transfers")
		if apart {
			db = mongotest.Client(t, s.monitor()).Database(name)
		}
		c.Ledgers = map[string]*mongo.Collection{"": db.Collection("accounts")}
	})
	require.NoError(t, b.store.Setup(t.Context()))
	b.flush()
	return b, s
}

// mover takes a transfer on one account from step to step, as its executor would. Of what was held it posts a part.
type mover struct {
	*bank
	id, account  string
	held, posted int64
	hold         bool
}

func (m mover) update(collection, id string, update bson.M) {
	m.t.Helper()
	durable := options.Collection().SetWriteConcern(writeconcern.Majority())
	upsert := options.UpdateOne().SetUpsert(true)
	_, err := m.db.Collection(collection, durable).UpdateOne(m.t.Context(), bson.M{"_id": id}, update, upsert)
	require.NoError(m.t, err)
}

func (m mover) prepare() {
	m.update("transfers", m.id, bson.M{"$set": bson.M{"state": "Preparing", "held": m.hold, "legs": bson.A{
		bson.M{"ledger": "", "account": m.account, "amount": m.held}, bson.M{"ledger": "", "account": "bob", "amount": -m.held},
	}}})
	m.update("accounts", m.account, bson.M{"$set": bson.M{"pending." + m.id: m.held}, "$inc": bson.M{"balance": min(m.held, 0)}})
}

func (m mover) commit() {
	m.update("transfers", m.id, bson.M{"$set": bson.M{"state": "Committed", "posted": m.posted}, "$currentDate": bson.M{"committedAt": true}})
}

func (m mover) settle() {
	back := m.posted // a credit comes on
	if m.held < 0 {
		back = -m.held - m.posted // of a debit, what was not posted
	}
	m.update("accounts", m.account, bson.M{"$unset": bson.M{"pending." + m.id: ""}, "$inc": bson.M{"balance": back}})
}

// Whatever step a transfer takes while an account's past is closed, the balance is that of all which was committed before the instant of
// the closing, and of nothing else. The table holds all moments for each of its three steps; another transfer is complete before.
func TestClosingAmongSteps(t *testing.T) {
	t.Parallel()
	// The last moment is behind the first look at what is outstanding.
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

// flush keeps the journal flushed, for which linearizable reads would wait up to 100 ms each. It ends with the test.
func (b *bank) flush() {
	var flushing sync.WaitGroup
	durable := b.db.Collection("flushed", options.Collection().SetWriteConcern(writeconcern.Majority()))
	flushing.Go(func() {
		for n := 0; b.t.Context().Err() == nil; n++ {
			_, _ = durable.InsertOne(b.t.Context(), bson.M{})
		}
	})
	b.t.Cleanup(flushing.Wait)
}

func (b *bank) closeAmong(s *steps, at [3]int) {
	b.t.Helper()
	name := fmt.Sprint(at)
	b.put(account(name, nil))
	before := mover{b, "before " + name, name, 7, 7, false}
	before.prepare()
	before.commit()
	before.settle()
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
	closing, found, err := h.BalanceAsOf(b.t.Context(), time.Time{})
	commands := end()
	require.NoError(b.t, err)
	require.True(b.t, found)
	want := int64(107)
	if stored := b.raw("transfers", name); stored != nil {
		committed, has := stored.Lookup("committedAt").TimeOK()
		switch {
		case !has || !committed.Before(closing.At):
		case m.held > 0:
			want += m.posted
		default:
			want -= m.posted
		}
	}
	require.Equal(b.t, money.Units(want), closing.Balance, "steps before commands %v of %d", at, commands)
}

// Between the clock and the account's read, and between that and the clock, a whole transfer looks the same: so nothing is decided, and
// the account is read again.
func TestUndecidedClosing(t *testing.T) {
	t.Parallel()
	b, s := newStepBank(t, true)
	for _, at := range []int{2, 3} {
		name := fmt.Sprint(at)
		b.put(account(name, nil))
		m := mover{b, name, name, 50, 50, false}
		h := b.history(name)
		end := s.begin(map[int][]func(){at: {m.prepare, m.commit, m.settle}})
		closing, found, err := h.BalanceAsOf(t.Context(), time.Time{})
		commands := end()
		require.NoError(t, err)
		require.Greater(t, commands, 8, "there was a second look: %v %v %v", closing, found, at)
		require.Equal(t, money.Units(150), closing.Balance)
	}

	b.put(account("busy", nil))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	due := map[int][]func(){}
	for n := range 1000 { // one transfer before each command, for ever
		m := mover{b, fmt.Sprint("t", n), "busy", 1, 1, false}
		due[n] = []func(){m.prepare, m.commit, m.settle}
	}
	h := b.history("busy")
	end := s.begin(due)
	_, _, err := h.BalanceAsOf(ctx, time.Time{})
	end()
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// A clock of whole milliseconds does not tell which of two things in one of them was
// first: nothing is decided by it. What was committed in the millisecond of the call is
// in, what was committed in that of the closing is not.
func TestClosingWithinOneMillisecond(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		apart   bool
		commits int  // in the millisecond of which look at the clock
		settled bool // before the account is read; or prepared after that
		hellos  int
		in      bool
	}{
		"apart, of the call":        {true, 1, true, 3, true},
		"apart, of the closing":     {true, 2, false, 6, true},
		"apart, of the second look": {true, 3, true, 6, true},
		"at once, of the call":      {false, 1, true, 2, true},
		"at once, of the closing":   {false, 2, true, 2, false},
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
					b.putIn("transfers", past("t", e.Reply.Lookup("localTime").Time(), 50))
				}
				if hellos == 3 && !c.settled {
					b.change("accounts", "alice", bson.M{"$set": bson.M{"pending.t": int64(50)}})
				}
			}}
			b = newBank(t, func(config *config) {
				db := mongotest.Client(t, options.Client().SetMonitor(monitor)).Database(config.Transfers.Database().Name())
				config.Transfers = db.Collection("transfers")
				if !c.apart {
					config.Ledgers[""] = db.Collection("accounts")
				}
			})
			b.put(account("alice", nil))
			if c.settled {
				b.change("accounts", "alice", bson.M{"$inc": bson.M{"balance": int64(50)}})
			}
			h := b.history("alice")
			closing, _, err := h.BalanceAsOf(t.Context(), time.Time{})
			require.NoError(t, err)
			require.GreaterOrEqual(t, hellos, c.hellos, "apart, there was a second look")
			entries, _, err := h.Page(t.Context(), history.NewestFirst, time.Time{}, closing.At, 10)
			require.NoError(t, err)
			if !c.in {
				require.Empty(t, entries)
				require.Equal(t, money.Units(100), closing.Balance)
				return
			}
			require.Len(t, entries, 1)
			require.Equal(t, money.Units(150), closing.Balance)
		})
	}
}
