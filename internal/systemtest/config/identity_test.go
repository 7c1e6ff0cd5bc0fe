package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// forgetIdentities makes a deployment one of a release that had notes, and no identities.
func forgetIdentities(b *bank.Bank) {
	b.T.Helper()
	for _, name := range []string{"accounts.transfer", "transfers.transfer", "orders.transfer"} {
		_, err := b.DB.Collection(name).DeleteMany(b.T.Context(), bson.M{"_id": bson.M{"$ne": "deployment"}})
		require.NoError(b.T, err)
	}
}

// identityOf returns the identity of a collection, "" if it has none.
func identityOf(b *bank.Bank, collection string) string {
	b.T.Helper()
	return storedIdentity(b, collection, "identity")
}

// recordOf returns the identity that the record of a ledger has, "" if there is none.
func recordOf(b *bank.Bank, ledger, collection string) string {
	b.T.Helper()
	id := bson.D{{Key: "ledger", Value: ledger}, {Key: "namespace", Value: b.DB.Name() + "." + collection}}
	return storedIdentity(b, "transfers", id)
}

func storedIdentity(b *bank.Bank, beside string, id any) string {
	b.T.Helper()
	var stored []struct {
		Identity string `bson:"identity"`
	}
	cursor, err := b.DB.Collection(beside+".transfer").Find(b.T.Context(), bson.M{"_id": id})
	require.NoError(b.T, err)
	require.NoError(b.T, cursor.All(b.T.Context(), &stored))
	if len(stored) == 0 {
		return ""
	}
	return stored[0].Identity
}

// requireRecorded requires that the default ledger stands for the accounts.
func requireRecorded(b *bank.Bank) {
	b.T.Helper()
	identity := identityOf(b, "accounts")
	require.NotEmpty(b.T, identity)
	require.Equal(b.T, identity, recordOf(b, "", "accounts"))
}

// A deployment from before there were identities gets them from the process that uses it
// first, by any verb, and from then on they stay. Until then Check misses them, and a
// process that only reads writes nothing.
func TestOldDeploymentGetsItsIdentities(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"Setup", "Adopt", "Run", "Recover", "Transfer", "Submit", "Hold", "OpenAccount", "Post"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0).WithIndexes()
			if verb != "Adopt" {
				b.MustHold("held", 60, time.Hour)
			}
			forgetIdentities(b)
			c := b.NewCoordinator(b.DB)
			before := b.Contents()
			for _, reads := range []string{"Check", "Audit", "BalanceAt"} {
				err := fitVerbs(c)[reads](t.Context())
				if reads == "Check" {
					require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
					require.ErrorContains(t, err, "is that of the default ledger: run Setup once")
				} else {
					require.NotErrorIs(t, err, transfer.ErrUnsupportedDeployment, reads)
				}
			}
			require.Equal(t, before, b.Contents())
			switch verb {
			case "Run":
				runUntil(b, c, func() bool { return recordOf(b, "", "accounts") != "" })
				c = b.NewCoordinator(b.DB)
			case "Adopt":
				require.NoError(t, c.Adopt(t.Context()))
			default: // which may refuse what is asked for
				_ = fitVerbs(c)[verb](t.Context())
			}
			requireRecorded(b)
			before = b.Contents()
			require.NoError(t, c.Check(t.Context()))
			another := b.NewCoordinator(b.DB)
			require.NoError(t, another.Check(t.Context()))
			require.NoError(t, another.Setup(t.Context()))
			_, err := another.Recover(t.Context())
			require.NoError(t, err)
			require.Equal(t, before, b.Contents())
		})
	}
}

// A collection whose identity is not the recorded one, or that has none any more, is
// refused by every verb, and Adopt makes it the deployment's. Who only reads may read a
// collection that has lost its identity.
func TestAnotherCollectionIsRefused(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		change func(b *bank.Bank)
		says   string
		read   bool // that it can be read all the same
	}{
		"another identity": {
			func(b *bank.Bank) { b.SetField("accounts.transfer", "identity", "identity", "another") },
			"is another collection than the one that the default ledger stands for", false,
		},
		"none": {func(b *bank.Bank) { b.Remove("accounts.transfer", "identity") }, "has lost its identity in ", true},
		"dropped with its note, and made anew": {func(b *bank.Bank) {
			require.NoError(b.T, b.DB.Collection("accounts.transfer").Drop(b.T.Context()))
			require.NoError(b.T, b.DB.Collection("accounts").Drop(b.T.Context()))
			b.Insert("accounts", bson.M{"_id": "a", "balance": int64(100)}, bson.M{"_id": "b", "balance": int64(0)})
		}, "has lost its identity in ", true},
		"a record that nobody understands": {func(b *bank.Bank) {
			b.Change("transfers.transfer", bson.D{
				{Key: "ledger", Value: ""}, {Key: "namespace", Value: b.DB.Name() + ".accounts"},
			}, bson.M{"$set": bson.M{"identity": 5}})
		}, "is another collection", false},
		"neither is understood": {func(b *bank.Bank) {
			b.SetField("accounts.transfer", "identity", "identity", 5)
			b.Change("transfers.transfer", bson.D{
				{Key: "ledger", Value: ""}, {Key: "namespace", Value: b.DB.Name() + ".accounts"},
			}, bson.M{"$set": bson.M{"identity": 5}})
		}, "has lost its identity in ", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0).WithIndexes()
			known := b.NewCoordinator(b.DB)
			_, err := known.Recover(t.Context())
			require.NoError(t, err)
			row.change(b)
			before := b.Contents()
			requireRefused(b, row.says, row.read)
			require.ErrorIs(t, known.Check(t.Context()), transfer.ErrUnsupportedDeployment, "also where it was fit before")
			_, err = known.Recover(t.Context())
			require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment, "what Check has refused is refused")
			require.Equal(t, before, b.Contents())

			c := b.NewCoordinator(b.DB)
			if name == "neither is understood" {
				err = c.Adopt(t.Context())
				require.ErrorContains(t, err, "is no text: restore it, or remove the document")
				b.Remove("accounts.transfer", "identity")
			}
			require.NoError(t, c.Adopt(t.Context()))
			requireRecorded(b)
			once := b.Contents()
			require.NoError(t, c.Adopt(t.Context()))
			require.Equal(t, once, b.Contents(), "it is there")
			for _, c := range []*transfer.Coordinator{c, known, b.NewCoordinator(b.DB)} {
				require.NoError(t, c.Check(t.Context()))
				require.NoError(t, bank.ErrorOf(c.Recover(t.Context())))
			}
			b.MustMove("after", 10)
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}

// requireRefused requires that each verb is refused, but, if the collection can be read,
// those that only read. These are called first, by the same process.
func requireRefused(b *bank.Bank, says string, read bool) {
	b.T.Helper()
	all := fitVerbs(b.NewCoordinator(b.DB))
	for _, verb := range []string{"Post", "Void", "Cancel", "Reverse"} {
		delete(all, verb) // there is no hold
	}
	for _, verb := range []string{"Audit", "BalanceAt"} {
		if read {
			require.NotErrorIs(b.T, all[verb](b.T.Context()), transfer.ErrUnsupportedDeployment, verb)
			delete(all, verb)
		}
	}
	requireUnfit(b.T, all, says)
}

// Adopt replaces no record while something is in flight: it may be the other collection
// that has the markers. An operator who knows better removes the record.
func TestAdoptLeavesTheRecordOfWhatIsInFlight(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.StallAt("t", bank.Settles, bank.Lost, 60)
	was := recordOf(b, "", "accounts")
	b.SetField("accounts.transfer", "identity", "identity", "another")
	err := b.NewCoordinator(b.DB).Adopt(t.Context())
	require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
	require.ErrorContains(t, err, "come to their end first")
	require.Equal(t, was, recordOf(b, "", "accounts"))
	record := bson.D{{Key: "ledger", Value: ""}, {Key: "namespace", Value: b.DB.Name() + ".accounts"}}
	removed, err := b.DB.Collection("transfers.transfer").DeleteOne(t.Context(), bson.M{"_id": record})
	require.NoError(t, err)
	require.EqualValues(t, 1, removed.DeletedCount)
	require.NoError(t, b.NewCoordinator(b.DB).Setup(t.Context()))
	requireRecorded(b)
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 0))
}

// Documents that effects change have identities and records, too.
func TestOtherDocumentsAreRefused(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.Coordinator = b.NewCoordinator(b.DB, bank.Orders(b.DB)...)
	require.NoError(t, b.Setup(t.Context()))
	b.Insert("orders", bank.Order("o-1"))
	_, err := b.Hold(t.Context(), bank.Payment("held", "o-1", 60), time.Hour)
	require.NoError(t, err)
	was := identityOf(b, "orders")
	b.SetField("orders.transfer", "identity", "identity", "another")
	c := b.NewCoordinator(b.DB, bank.Orders(b.DB)...)
	_, err = c.Post(t.Context(), "held")
	require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
	require.ErrorContains(t, err, `stands for, by the record in`)
	require.ErrorContains(t, err, `documents "orders"`)
	b.SetField("orders.transfer", "identity", "identity", was)
	_, err = c.Post(t.Context(), "held")
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(100, 0))
}

// Processes that know different ledgers, or one ledger by different names, work side by
// side; nothing has to be adopted where a ledger gets another name, or where a name is
// given to another collection.
func TestNamesOfLedgers(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	savings := func(name, collection string) *transfer.Coordinator {
		return b.NewCoordinator(b.DB, transfer.WithLedger(name, b.DB.Collection(collection)))
	}
	for _, c := range []*transfer.Coordinator{
		savings("savings", "savings"), savings("deposits", "savings"), savings("savings", "others"),
		b.NewCoordinator(b.DB, transfer.WithAccounts(b.DB.Collection("savings"))), savings("savings", "savings"), b.NewCoordinator(b.DB),
	} {
		require.NoError(t, c.Setup(t.Context()))
		require.NoError(t, c.Check(t.Context()))
	}
	identity := identityOf(b, "savings")
	require.NotEmpty(t, identity)
	for _, name := range []string{"savings", "deposits", ""} {
		require.Equal(t, identity, recordOf(b, name, "savings"), name)
	}
	require.Equal(t, identityOf(b, "others"), recordOf(b, "savings", "others"))
	require.NotEqual(t, identity, identityOf(b, "others"))
	requireRecorded(b)
	b.MustMove("t", 10)
	b.CheckBooks(bank.Balances(100, 0))
}

// An identity travels with the notes: a deployment that was dumped and restored is
// accepted, whole or only the accounts.
func TestRestoredDeployment(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.MustHold("held", 60, time.Hour)
	for _, some := range [][]string{{"accounts", "accounts.transfer"}, {"accounts", "accounts.transfer", "transfers", "transfers.transfer"}} {
		for _, name := range some {
			restore(b, b.DB.Collection(name))
		}
		c := b.NewCoordinator(b.DB)
		require.NoError(t, c.Setup(t.Context()))
		require.NoError(t, c.Check(t.Context()))
	}
	_, err := b.NewCoordinator(b.DB).Post(t.Context(), "held")
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(100, 0))
}

// restore drops a collection and stores its documents again.
func restore(b *bank.Bank, c *mongo.Collection) {
	b.T.Helper()
	var documents []bson.Raw
	cursor, err := c.Find(b.T.Context(), bson.D{})
	require.NoError(b.T, err)
	require.NoError(b.T, cursor.All(b.T.Context(), &documents))
	require.NoError(b.T, c.Drop(b.T.Context()))
	_, err = c.InsertMany(b.T.Context(), documents)
	require.NoError(b.T, err)
}

// Each message of a first use may be lost, or its answer, or arrive after the next
// attempt: what is recorded is the collection that is there.
func TestLostMessagesOfAFirstUse(t *testing.T) {
	t.Parallel()
	for _, what := range []bank.Fault{bank.Lost, bank.AnswerLost, bank.Held, bank.Resent} {
		t.Run(string(what), func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0).WithIndexes()
			writes := 0
			for n := 0; ; n++ {
				forgetIdentities(b)
				w := &bank.Wire{At: n, What: what}
				c := b.NewCoordinator(b.Through(w.Client()))
				first := c.Setup(t.Context())
				if !w.HasStruck() {
					require.NoError(t, first)
					break
				}
				if w.Commands[n] == "findAndModify" {
					writes++
				}
				require.NoError(t, c.Setup(t.Context()))
				w.Deliver(t)
				require.NoError(t, c.Check(t.Context()))
				requireRecorded(b)
			}
			require.Equal(t, 2, writes, "the identity and the record")
			b.MustMove("t", 10)
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}
