package config

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// Adopt changes a deployment on purpose, once nothing is in flight.
// From then on the new configuration is the deployment's, and the old one is refused.
func TestAdopt(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.MustMove("before", 10)
	c := b.NewCoordinator(b.DB, transfer.WithFields(transfer.Fields{Pending: "reserved", Balance: "credits"}))
	require.ErrorIs(t, c.Setup(t.Context()), transfer.ErrUnsupportedDeployment)

	rename := bson.D{{Key: "$rename", Value: bson.D{{Key: "pending", Value: "reserved"}, {Key: "balance", Value: "credits"}}}}
	_, err := b.DB.Collection("accounts").UpdateMany(t.Context(), bson.D{}, rename)
	require.NoError(t, err)
	require.NoError(t, c.Adopt(t.Context()))
	once := b.Contents()
	require.NoError(t, c.Adopt(t.Context()))
	require.Equal(t, once, b.Contents(), "it is there")
	require.NoError(t, c.Setup(t.Context()))
	_, err = c.Transfer(t.Context(), bank.Move("after", "a", "b", 10))
	require.NoError(t, err)
	require.ErrorIs(t, b.NewCoordinator(b.DB).Setup(t.Context()), transfer.ErrUnsupportedDeployment)
	report, err := c.Audit(t.Context())
	require.NoError(t, err)
	require.Empty(t, report.Findings)
}

// A note says which field marks frozen accounts where that is not the usual one.
// A note that says nothing of it, as all did before accounts could be frozen, stands for
// the usual one.
func TestAdoptAnotherFieldForFrozenAccounts(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	fields := func() bson.M {
		var note struct{ Fields bson.M }
		err := b.DB.Collection("accounts.transfer").FindOne(t.Context(), bson.M{"_id": "deployment"}).Decode(&note)
		require.NoError(t, err)
		return note.Fields
	}
	usual := fields()
	require.NotContains(t, usual, "frozen")
	c := b.NewCoordinator(b.DB, transfer.WithFields(transfer.Fields{Frozen: "iced"}))
	require.ErrorIs(t, c.Setup(t.Context()), transfer.ErrUnsupportedDeployment)
	require.NoError(t, c.Adopt(t.Context()))
	require.Equal(t, "iced", fields()["frozen"])
	require.NoError(t, c.Check(t.Context()))
	frozen := true
	_, err := c.UpdateAccount(t.Context(), "b", transfer.AccountChange{Frozen: &frozen})
	require.NoError(t, err)
	require.Equal(t, true, b.Raw("accounts")[1]["iced"])
	_, err = c.Transfer(t.Context(), bank.Move("t", "a", "b", 60))
	require.ErrorIs(t, err, transfer.ErrAccountFrozen)

	plain := b.NewCoordinator(b.DB)
	err = plain.Setup(t.Context())
	require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
	require.ErrorContains(t, err, `the field for frozen is "iced"`)
	require.NoError(t, plain.Adopt(t.Context()))
	require.Equal(t, usual, fields())
	require.NoError(t, plain.Check(t.Context()))
	b.CheckBooks(bank.Balances(100, 0))
}

// Adopt also takes another transfers collection, and accounts that have a note while the
// transfers have lost theirs.
func TestAdoptOtherTransfers(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.MustMove("before", 10)
	c := b.NewCoordinator(b.DB, transfer.WithTransfers(b.DB.Collection("payments")))
	require.ErrorIs(t, c.Setup(t.Context()), transfer.ErrUnsupportedDeployment)
	require.NoError(t, c.Adopt(t.Context()))
	require.NoError(t, c.Setup(t.Context()))
	require.ErrorIs(t, b.NewCoordinator(b.DB).Setup(t.Context()), transfer.ErrUnsupportedDeployment)

	require.NoError(t, b.DB.Collection("payments.transfer").Drop(t.Context()))
	c = b.NewCoordinator(b.DB, transfer.WithTransfers(b.DB.Collection("payments")))
	err := c.Setup(t.Context())
	require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
	require.ErrorContains(t, err, "lost its note")
	require.NoError(t, c.Adopt(t.Context()))
	require.NoError(t, c.Check(t.Context()))
	_, err = c.Transfer(t.Context(), bank.Move("after", "a", "b", 10))
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"a": 80, "b": 20}, b.Balances())
}

// While a transfer is in flight, Adopt refuses and changes nothing.
// Otherwise another process would finish the transfer and search for its markers
// elsewhere.
func TestAdoptRefusesWhatIsInFlight(t *testing.T) {
	t.Parallel()
	for name, plant := range map[string]func(*bank.Bank){
		"a hold":                  func(b *bank.Bank) { b.MustHold("t", 60, time.Hour) },
		"a submitted transfer":    func(b *bank.Bank) { b.MustSubmit("t") },
		"a stalled transfer":      func(b *bank.Bank) { b.StallAt("t", bank.Decision, bank.Lost, 60) },
		"a marker, old name":      func(b *bank.Bank) { b.SetField("accounts", "b", "pending", bson.M{"t": int64(5)}) },
		"a marker, new name":      func(b *bank.Bank) { b.SetField("accounts", "b", "reserved", bson.M{"t": int64(5)}) },
		"markers in an array":     func(b *bank.Bank) { b.SetField("accounts", "b", "pending", bson.A{bson.M{"t": int64(5)}}) },
		"a reversal's, unsettled": func(b *bank.Bank) { b.MustMove("t", 1); b.SetField("transfers", "t", "pending", bson.M{"u": int64(0)}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0).WithIndexes()
			plant(b)
			before := b.Contents()
			err := b.NewCoordinator(b.DB, transfer.WithFields(transfer.Fields{Pending: "reserved"})).Adopt(t.Context())
			require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
			require.ErrorContains(t, err, "come to their end first")
			require.Equal(t, before, b.Contents())
		})
	}
}

// A field of the user's that has the name of the markers is not taken for a transfer in
// flight.
func TestAdoptTellsAFieldOfTheUsers(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.SetField("accounts", "b", "orders", bson.A{"order1"})
	before := b.Contents()
	err := b.NewCoordinator(b.DB, transfer.WithFields(transfer.Fields{Pending: "orders"})).Adopt(t.Context())
	require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
	require.ErrorContains(t, err, `the field "orders" of b of `+b.DB.Name()+".accounts is no map of markers: if it is yours, name another one")
	require.NotContains(t, err.Error(), "is in flight")
	require.Equal(t, before, b.Contents())
}

// A note in another format, or with unknown fields, belongs to another release.
// Every verb refuses to work beside it, and Adopt leaves it alone.
func TestNotesOfOtherReleases(t *testing.T) {
	t.Parallel()
	for _, collection := range []string{"accounts.transfer", "transfers.transfer"} {
		for name, row := range map[string]struct {
			change bson.M
			says   string
		}{
			"a newer format":   {bson.M{"format": 3}, "this release writes format 2, and"},
			"an older format":  {bson.M{"format": 0}, "this release writes format 2, and"},
			"another event":    {bson.M{"events": bson.A{"archived"}}, `"events.archived" that this release does not know`},
			"events in a form": {bson.M{"events": true}, `"events" that this release does not know`},
			"something else":   {bson.M{"shards": 3}, `"shards" that this release does not know`},
			"a field for more": {bson.M{"fields.rate": "rate"}, `"fields.rate" that this release does not know`},
		} {
			t.Run(fmt.Sprint(name, " in ", collection), func(t *testing.T) {
				t.Parallel()
				b := bank.New(t, 100, 0).WithIndexes()
				b.MustHold("held", 60, time.Hour)
				b.Change(collection, "deployment", bson.M{"$set": row.change})
				before := b.Contents()
				c := b.NewCoordinator(b.DB)
				all := fitVerbs(c)
				all["Adopt"] = c.Adopt
				requireUnfit(t, all, row.says)
				require.Equal(t, before, b.Contents())
			})
		}
	}
}

// A collection of notes can't be registered for anything else.
func TestNotesAreNoAccounts(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	for name, opts := range map[string][]transfer.Option{
		"as accounts":  {transfer.WithAccounts(b.DB.Collection("transfers.transfer"))},
		"as transfers": {transfer.WithTransfers(b.DB.Collection("accounts.transfer"))},
		"as documents": {transfer.WithDocuments("notes", b.DB.Collection("accounts.transfer"))},
		"of documents": {transfer.WithDocuments("x", b.DB.Collection("x")), transfer.WithLedger("y", b.DB.Collection("x.transfer"))},
	} {
		_, err := transfer.NewCoordinator(b.DB, opts...)
		require.ErrorIs(t, err, transfer.ErrInvalidRequest, name)
		require.ErrorContains(t, err, "holds the note about", name)
	}
}
