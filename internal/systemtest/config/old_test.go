package config

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// forgetNotes makes a deployment one of a release without notes.
func forgetNotes(b *bank.Bank) {
	b.T.Helper()
	for _, name := range []string{"accounts.transfer", "transfers.transfer", "orders.transfer"} {
		require.NoError(b.T, b.DB.Collection(name).Drop(b.T.Context()))
	}
}

// notes returns the number of notes.
func notes(b *bank.Bank) int {
	b.T.Helper()
	n := int64(0)
	for _, name := range []string{"accounts.transfer", "transfers.transfer", "orders.transfer"} {
		some, err := b.DB.Collection(name).CountDocuments(b.T.Context(), bson.M{"_id": "deployment"})
		require.NoError(b.T, err)
		n += some
	}
	return int(n)
}

// A deployment from before the notes gets them at its first use, by any verb.
// From then on another configuration is refused.
func TestOldDeploymentGetsItsNotes(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"Setup", "Run", "Recover", "Transfer", "Submit", "Hold", "OpenAccount", "Post"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0).WithIndexes()
			b.MustHold("held", 60, time.Hour)
			forgetNotes(b)
			c := b.NewCoordinator(b.DB)
			if verb == "Run" {
				runUntil(b, c, func() bool { return notes(b) == 2 })
			} else { // it may refuse the request
				_ = fitVerbs(c)[verb](t.Context())
			}
			require.Equal(t, 2, notes(b))
			other := b.NewCoordinator(b.DB, transfer.WithFields(transfer.Fields{Pending: "reserved"}))
			require.ErrorIs(t, other.Setup(t.Context()), transfer.ErrUnsupportedDeployment)
			require.NoError(t, b.NewCoordinator(b.DB).Check(t.Context()))
			_, err := b.Post(t.Context(), "held")
			require.NoError(t, err)
		})
	}
}

// runUntil runs a worker until something has happened, and stops it.
func runUntil(b *bank.Bank, c *transfer.Coordinator, happened func() bool) {
	b.T.Helper()
	done := make(chan error, 1)
	go func() { done <- c.Run(b.T.Context()) }()
	require.Eventually(b.T, happened, 5*time.Minute, 10*time.Millisecond)
	bank.Kill(c)
	require.NoError(b.T, bank.Within(b.T, done))
}

// A process with other names posts a hold of a release without notes.
// It would find no marker and return Success, and the money would be gone.
// So the post is refused, and so is everything else in flight that this process could not
// have begun.
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
			b := bank.NewBare(t)
			b.Coordinator = b.NewCoordinator(b.DB, row.old(b.DB)...)
			require.NoError(t, b.Setup(t.Context()))
			b.OpenAccounts([]int64{100, 0})
			b.MustHold("held", 60, time.Hour)
			forgetNotes(b)
			before := b.Contents()
			c := b.NewCoordinator(b.DB, row.opts(b.DB)...)
			for verb, call := range fitVerbs(c) {
				if verb == "Check" || verb == "Audit" || verb == "BalanceAt" {
					continue // they only read, and there is nothing to read yet
				}
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				err := call(ctx)
				cancel()
				require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment, verb)
				require.ErrorContains(t, err, row.says, verb)
			}
			require.Equal(t, before, b.Contents())
			c = b.NewCoordinator(b.DB, row.old(b.DB)...)
			_, err := c.Post(t.Context(), "held")
			require.NoError(t, err)
			require.Equal(t, map[string]int64{"a": 40, "b": 60}, b.Balances())
		})
	}
}

// A transfer that crashed in the middle shows the names as well: before its commit, and
// after it, when a part of its markers is already gone.
func TestOldTransfersTellTheNames(t *testing.T) {
	t.Parallel()
	for _, at := range []bank.Step{bank.Decision, bank.Settles} {
		b := bank.New(t, 100, 0).WithIndexes()
		b.StallAt("t", at, bank.Lost, 60)
		forgetNotes(b)
		c := b.NewCoordinator(b.DB, transfer.WithFields(transfer.Fields{Pending: "reserved"}), transfer.WithStallThreshold(0))
		_, err := c.Recover(t.Context())
		require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
		require.Zero(t, notes(b))
		b.RecoverAll()
		b.Coordinator = b.NewCoordinator(b.DB)
		b.CheckBooks(map[string]int64{"a": 100, "b": 0})
	}
}

// A value that is not a marker is not taken for one: a map of the user's may have the
// transfer's ID with another value.
// A deleted account doesn't hide the markers of the others.
func TestOldDeploymentWithItsOwnMaps(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0, 50).WithIndexes()
	b.MustHold("held", 60, time.Hour)
	b.StallAt("t", bank.Prepares, bank.Lost, 10) // nothing is prepared
	b.SetField("accounts", "a", "orders", bson.M{"held": int64(3), "t": int64(3)})
	b.Remove("accounts", "b")
	forgetNotes(b)
	c := b.NewCoordinator(b.DB)
	require.NoError(t, c.Setup(t.Context()))
	require.NoError(t, c.Check(t.Context()))
}

// Documents that effects change get notes as well.
func TestOldReservationsTellTheNames(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.Coordinator = b.NewCoordinator(b.DB, bank.Orders(b.DB)...)
	require.NoError(t, b.Setup(t.Context()))
	b.Insert("orders", bank.Order("o-1"))
	_, err := b.Hold(t.Context(), bank.Payment("held", "o-1", 60), time.Hour)
	require.NoError(t, err)
	forgetNotes(b)
	opts := append(bank.Orders(b.DB),
		transfer.WithFields(transfer.Fields{Pending: "reserved"}), transfer.WithAccounts(b.DB.Collection("none")))
	_, err = b.NewCoordinator(b.DB, opts...).Recover(t.Context())
	require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
	require.ErrorContains(t, err, ".orders in the field")
	require.Zero(t, notes(b))
	_, err = b.NewCoordinator(b.DB, bank.Orders(b.DB)...).Post(t.Context(), "held")
	require.NoError(t, err)
	require.Equal(t, 3, notes(b))
	b.CheckBooks(bank.Balances(100, 0))
}

// A user's map holds the amounts of orders under the same IDs as the transfers have.
// It doesn't keep a deployment without notes from working.
// Otherwise nothing could get it working again, because the configured names are right.
func TestOldDeploymentWithAMapOfTheUsers(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.StallAt("order-17", bank.Decision, bank.Lost, 60) // both are prepared
	b.SetField("accounts", "b", "orders", bson.M{"order-17": int64(60)})
	b.StallAt("order-18", bank.Prepares, bank.Lost, 20) // nothing is prepared
	b.SetField("accounts", "b", "orders", bson.M{"order-17": int64(60), "order-18": int64(20)})
	forgetNotes(b)
	c := b.NewCoordinator(b.DB, transfer.WithStallThreshold(0))
	require.NoError(t, c.Setup(t.Context()))
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 0))
}
