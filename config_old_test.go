package transfer_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
)

// forgetNotes makes a deployment one of a release that knew no notes.
func (b *bank) forgetNotes() {
	b.t.Helper()
	for _, name := range []string{"accounts.transfer", "transfers.transfer", "orders.transfer"} {
		require.NoError(b.t, b.db.Collection(name).Drop(b.t.Context()))
	}
}

// notes returns how many notes there are.
func (b *bank) notes() int {
	b.t.Helper()
	n := 0
	for name, documents := range b.everything() {
		if name == "accounts.transfer" || name == "transfers.transfer" || name == "orders.transfer" {
			n += len(documents)
		}
	}
	return n
}

// A deployment from before there were notes gets them from whoever uses it first, by any
// verb, and from then on another configuration is refused.
func TestOldDeploymentGetsItsNotes(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"Setup", "Run", "Recover", "Transfer", "Submit", "Hold", "OpenAccount", "Post"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			b := newBank(t, 100, 0)
			b.hold("held", 60, time.Hour)
			b.forgetNotes()
			c := b.coordinator(b.db)
			if verb == "Run" {
				b.runUntilNoted(c)
			} else { // which may refuse what is asked for
				_ = fitVerbs(c)[verb](t.Context())
			}
			require.Equal(t, 2, b.notes())
			other := b.coordinator(b.db, transfer.WithFields(transfer.Fields{Pending: "reserved"}))
			require.ErrorIs(t, other.Setup(t.Context()), transfer.ErrUnsupportedDeployment)
			require.NoError(t, b.coordinator(b.db).Check(t.Context()))
			_, err := b.Post(t.Context(), "held")
			require.NoError(t, err)
		})
	}
}

func (b *bank) runUntilNoted(c *transfer.Coordinator) {
	b.t.Helper()
	done := make(chan error, 1)
	go func() { done <- c.Run(b.t.Context()) }()
	require.Eventually(b.t, func() bool { return b.notes() == 2 }, 20*time.Second, 10*time.Millisecond)
	kill(c)
	require.NoError(b.t, <-done)
}

// A hold of a release that knew no notes is posted by a process that was told other names:
// it would find no marker, and say Success, and the money would be gone. It is refused, and
// so is everything else that is in flight and could not have been begun by this process.
func TestOldHoldsTellTheNames(t *testing.T) {
	t.Parallel()
	plain := func(*mongo.Database) []transfer.Option { return nil }
	reserved := fields(transfer.Fields{Pending: "reserved"})
	for name, row := range map[string]struct {
		old, opts func(*mongo.Database) []transfer.Option
		says      string
	}{
		"another field for markers": {plain, reserved, `in the field "pending", and WithFields says "reserved"`},
		"it once had another name":  {reserved, plain, `in the field "reserved", and WithFields says "pending"`},
		"another field for balances": {
			plain, fields(transfer.Fields{Balance: "credits"}), `there is no field "credits" for the balance`,
		},
		"another form of IDs": {plain, func(*mongo.Database) []transfer.Option {
			return []transfer.Option{transfer.WithAccountIDs(transfer.ObjectIDs)}
		}, "which is no ID by WithAccountIDs(ObjectIDs)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBareBank(t)
			b.Coordinator = b.coordinator(b.db, row.old(b.db)...)
			require.NoError(t, b.Setup(t.Context()))
			b.open([]int64{100, 0})
			b.hold("held", 60, time.Hour)
			b.forgetNotes()
			before := b.everything()
			c := b.coordinator(b.db, row.opts(b.db)...)
			for verb, call := range fitVerbs(c) {
				if verb == "Check" || verb == "Audit" || verb == "BalanceAt" {
					continue // they only read, and there is nothing to be read yet
				}
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				err := call(ctx)
				cancel()
				require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment, verb)
				require.ErrorContains(t, err, row.says, verb)
			}
			require.Equal(t, before, b.everything())
			c = b.coordinator(b.db, row.old(b.db)...)
			_, err := c.Post(t.Context(), "held")
			require.NoError(t, err)
			require.Equal(t, map[string]int64{"a": 40, "b": 60}, b.balances())
		})
	}
}

// What crashed in the middle shows the names as well: before its commit, and after it, when
// a part of its markers is gone already.
func TestOldTransfersTellTheNames(t *testing.T) {
	t.Parallel()
	for n := 2; n <= 3; n++ {
		b := newBank(t, 100, 0)
		b.stallAt("t", n+1, lost, 60)
		b.forgetNotes()
		c := b.coordinator(b.db, transfer.WithFields(transfer.Fields{Pending: "reserved"}), transfer.WithStallThreshold(0))
		_, err := c.Recover(t.Context())
		require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
		require.Zero(t, b.notes())
		b.recoverAll()
		b.Coordinator = b.coordinator(b.db)
		b.audit(map[string]int64{"a": 100, "b": 0})
	}
}

// What is no marker is not taken for one: a map of the user's that has the transfer's ID in
// it, with another value; and an account that is gone keeps nobody from the others.
func TestOldDeploymentWithItsOwnMaps(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0, 50)
	b.hold("held", 60, time.Hour)
	b.stallAt("t", 2, lost, 10) // nothing is prepared
	b.set("accounts", "a", "orders", bson.M{"held": int64(3), "t": int64(3)})
	b.remove("accounts", "b")
	b.forgetNotes()
	c := b.coordinator(b.db)
	require.NoError(t, c.Setup(t.Context()))
	require.NoError(t, c.Check(t.Context()))
}

// Documents that effects change have notes as well.
func TestOldReservationsTellTheNames(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	b.Coordinator = b.coordinator(b.db, orders(b.db)...)
	require.NoError(t, b.Setup(t.Context()))
	b.insert("orders", order("o-1"))
	_, err := b.Hold(t.Context(), payment("held", "o-1", 60), time.Hour)
	require.NoError(t, err)
	b.forgetNotes()
	opts := append(orders(b.db), transfer.WithFields(transfer.Fields{Pending: "reserved"}), transfer.WithAccounts(b.db.Collection("none")))
	_, err = b.coordinator(b.db, opts...).Recover(t.Context())
	require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
	require.ErrorContains(t, err, ".orders in the field")
	require.Zero(t, b.notes())
	_, err = b.coordinator(b.db, orders(b.db)...).Post(t.Context(), "held")
	require.NoError(t, err)
	require.Equal(t, 3, b.notes())
	b.audit(initial(100, 0))
}
