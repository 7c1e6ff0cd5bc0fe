package history_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/history"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// paidBank is undecidedBank after the money was paid in: alice has a done mark of each of
// the transfers.
func paidBank(t *testing.T, apart bool, ids ...string) (*bank, *steps) {
	t.Helper()
	b, s := undecidedBank(t, apart, ids...)
	for _, id := range ids {
		b.pay(id)
	}
	return b, s
}

// pay turns alice's marker of a transfer into the done mark.
func (b *bank) pay(id string) {
	b.T.Helper()
	b.Change("accounts", "alice", bson.M{
		"$unset": bson.M{"pending." + id: ""}, "$set": bson.M{"pending." + id + "%": int64(50)}, "$inc": bson.M{"balance": int64(50)},
	})
}

// What a done mark has paid in is on the balance. It is in the past exactly if the
// transfer's record is: at whatever moment that is stored, and whether or not the account
// was cleared.
func TestPaidInCountsFromItsRecord(t *testing.T) {
	t.Parallel()
	type command struct{ read, barred int }
	for apart, c := range map[bool]command{false: {4, 7 + history.MaxReads}, true: {2, 7 + history.MaxReads}} {
		for at := 0; at <= c.barred+1; at++ {
			t.Run(fmt.Sprintf("apart=%v/%d", apart, at), func(t *testing.T) {
				t.Parallel()
				b, s := paidBank(t, apart, "t")
				h := b.history("alice")
				end := s.begin(map[int][]func(){at: {func() { b.storeCommit("t", moment(1)) }}})
				closed, found, err := h.BalanceAsOf(t.Context(), time.Time{})
				commands := end()
				require.NoError(t, err)
				require.True(t, found)
				if at > c.barred {
					require.Equal(t, c.barred+1, commands, "it was barred before")
					requireOnly(t, h, closed)
					return
				}
				require.Greater(t, commands, at, "it was stored")
				requireOnly(t, h, closed, "t")
			})
		}
	}
}

// A transfer that has paid in, and has no record yet, is barred like any other that is
// undecided. What was shown stays: its record takes a later time, and the entry comes
// behind.
func TestPaidInWithoutRecordIsBarred(t *testing.T) {
	t.Parallel()
	for _, apart := range []bool{false, true} {
		t.Run(fmt.Sprintf("apart=%v", apart), func(t *testing.T) {
			t.Parallel()
			b, _ := paidBank(t, apart, "t", "u")
			b.storeCommit("u", moment(1))
			h := b.history("alice")
			closed, _, err := h.BalanceAsOf(t.Context(), time.Time{})
			require.NoError(t, err)
			requireOnly(t, h, closed, "u")
			require.EqualValues(t, 1, storetest.AsMap(t, b.Raw("transfers", "t"))["verified"])

			b.Change("transfers", "t", bson.M{"$set": bson.M{"state": "Committed"}, "$currentDate": bson.M{"committedAt": true}})
			b.stored()
			requireOnly(t, h, closed, "u")
			later := b.history("alice")
			now, _, err := later.BalanceAsOf(t.Context(), time.Time{})
			require.NoError(t, err)
			requireOnly(t, later, now, "u", "t")
			before, _, err := b.history("alice").BalanceAsOf(t.Context(), closed.At)
			require.NoError(t, err)
			require.False(t, before.At.Before(closed.At))
		})
	}
}

// What is committed after the end, and has paid in before the account was read, is taken
// off.
func TestPaidInByALaterCommit(t *testing.T) {
	t.Parallel()
	for _, apart := range []bool{false, true} {
		t.Run(fmt.Sprintf("apart=%v", apart), func(t *testing.T) {
			t.Parallel()
			b, _ := paidBank(t, apart, "t", "u")
			b.storeCommit("t", time.Now().Add(time.Hour))
			b.storeCommit("u", moment(1))
			h := b.history("alice")
			closed, _, err := h.BalanceAsOf(t.Context(), time.Time{})
			require.NoError(t, err)
			requireOnly(t, h, closed, "u")
		})
	}
}

// What has paid in without being committed, in the end, stays on the balance, like what
// anybody else has added to it.
func TestPaidInByNoTransferStays(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(b *bank){
		"rolled back": func(b *bank) { b.Change("transfers", "t", bson.M{"$set": bson.M{"state": "Rollback"}}) },
		"foreign":     func(b *bank) { b.Change("transfers", "t", bson.M{"$set": bson.M{"legs.1.account": "carol"}}) },
		"lost": func(b *bank) {
			_, err := b.DB.Collection("transfers").DeleteOne(b.T.Context(), bson.M{"_id": "t"})
			require.NoError(b.T, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := paidBank(t, false, "t")
			harm(b)
			closed, _, err := b.history("alice").BalanceAsOf(t.Context(), time.Time{})
			require.NoError(t, err)
			require.Equal(t, money.Units(150), closed.Balance)
		})
	}
}

// A done mark that is no exact number can't be counted back.
func TestOddDoneMark(t *testing.T) {
	t.Parallel()
	b, _ := paidBank(t, false, "t")
	b.Change("accounts", "alice", bson.M{"$set": bson.M{"pending.t%": 50.0}})
	_, _, err := b.history("alice").BalanceAsOf(t.Context(), time.Time{})
	require.ErrorIs(t, err, history.ErrKind)
}
