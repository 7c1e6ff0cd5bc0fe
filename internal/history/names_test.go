package history_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/history"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// movedUnder returns a committed transfer to alice in a ledger of a namespace.
func movedUnder(id, ledger string, namespace any, at time.Time) bson.M {
	leg := bson.M{"ledger": ledger, "account": "alice", "amount": int64(10)}
	if namespace != nil {
		leg["ns"] = namespace
	}
	return bson.M{"_id": id, "state": "Success", "createdAt": at, "committedAt": at, "legs": bson.A{leg}}
}

// recordedAs returns the record of the collection that a name stands for.
func recordedAs(ledger, namespace, identity string) bson.M {
	return bson.M{
		"_id":      bson.D{{Key: "ledger", Value: ledger}, {Key: "namespace", Value: namespace}},
		"identity": identity, "changes": int64(1),
	}
}

// identity returns the identity of the accounts.
func (b *bank) identity() string {
	b.T.Helper()
	return b.Raw("accounts.transfer", "identity").Lookup("identity").StringValue()
}

// An account's history has the legs on its collection, under all names that the records
// give to it, and none on another collection that has had its name. Where there is no
// record the name decides.
func TestHistoryOfACollectionWithSeveralNames(t *testing.T) {
	t.Parallel()
	all := []string{"bare", "own", "earlier", "europe", "elsewhere", "foreign", "other", "unrecorded"}
	byName := []string{"bare", "own", "earlier", "foreign", "unrecorded"}
	byIdentity := []string{"bare", "own", "earlier", "europe", "elsewhere", "unrecorded"}
	for name, c := range map[string]struct {
		recorded bool   // the others are
		own      string // the identity in the record of this name
		identity string // beside the collection
		want     []string
	}{
		"no records":                {false, "", "", byName},
		"recorded":                  {true, "I", "I", byIdentity},
		"this name is not recorded": {true, "", "I", byIdentity},
		"the identity is lost":      {true, "", "", byName},
		"made anew":                 {true, "J", "J", []string{"bare", "own", "foreign", "other", "unrecorded"}},
	} {
		for _, apart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/apart=%v", name, apart), func(t *testing.T) {
				t.Parallel()
				b := newBank(t, func(config *storetest.Config) {
					if apart {
						config.Ledgers[""] = mongotest.Client(t).Database(config.Transfers.Database().Name()).Collection("accounts")
					}
				})
				require.NoError(t, b.Store.Setup(t.Context()))
				for _, notes := range []string{"transfers.transfer", "accounts.transfer"} {
					_, err := b.DB.Collection(notes).DeleteMany(t.Context(), bson.M{"identity": bson.M{"$exists": true}})
					require.NoError(t, err)
				}
				own := b.DB.Name() + ".accounts"
				b.PutIn("transfers",
					movedUnder("bare", "", nil, moment(0)), movedUnder("own", "", own, moment(1)),
					movedUnder("earlier", "", "old.accounts", moment(2)), movedUnder("europe", "europe", own, moment(3)),
					movedUnder("elsewhere", "europe", "old.accounts", moment(4)), movedUnder("foreign", "", "j.accounts", moment(5)),
					movedUnder("other", "europe", "j.accounts", moment(6)), movedUnder("unrecorded", "", "k.accounts", moment(7)),
				)
				if c.recorded {
					b.PutIn("transfers.transfer",
						recordedAs("europe", own, "I"), recordedAs("", "old.accounts", "I"), recordedAs("europe", "old.accounts", "I"),
						recordedAs("", "j.accounts", "J"), recordedAs("europe", "j.accounts", "J"),
					)
				}
				if c.own != "" {
					b.PutIn("transfers.transfer", recordedAs("", own, c.own))
				}
				if c.identity != "" {
					b.PutIn("accounts.transfer", bson.M{"_id": "identity", "identity": c.identity})
				}
				b.requireHistory(c.want, all)
			})
		}
	}
}

// requireHistory requires that alice's history has some of the transfers, of which each
// has a marker on the account.
func (b *bank) requireHistory(want, marked []string) {
	b.T.Helper()
	pending := bson.M{}
	for _, id := range marked {
		pending[id] = int64(10)
	}
	b.Put(storetest.Account("alice", bson.M{"pending": pending}))
	h := b.history("alice")
	closed, found, err := h.BalanceAsOf(b.T.Context(), time.Time{})
	require.NoError(b.T, err)
	require.True(b.T, found)
	require.Equal(b.T, money.Units(100+10*int64(len(want))), closed.Balance)
	for _, read := range []func(context.Context, history.Order, time.Time, time.Time, int) ([]history.Entry, bool, error){h.Page, h.Amounts} {
		entries, _, err := read(b.T.Context(), history.OldestFirst, time.Time{}, closed.At, 100)
		require.NoError(b.T, err)
		var ids []string
		for _, e := range entries {
			ids = append(ids, e.TransferID)
			require.Equal(b.T, money.Units(10), e.Amount)
		}
		require.Equal(b.T, want, ids)
	}
}

// A transfer may have legs on accounts of one ID in several collections, under names that
// this process knows for others.
func TestLegOfACollectionWithSeveralNames(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	require.NoError(t, b.Store.Setup(t.Context()))
	own := b.DB.Name() + ".accounts"
	b.PutIn("transfers.transfer", recordedAs("europe", own, b.identity()), recordedAs("", "j.accounts", "J"))
	leg := func(ledger, namespace string, units int64) bson.M {
		return bson.M{"ledger": ledger, "ns": namespace, "account": "alice", "amount": units}
	}
	swapped, known := movedUnder("swapped", "", "", moment(0)), movedUnder("known", "", "", moment(1))
	swapped["legs"] = bson.A{leg("", "j.accounts", -10), leg("europe", own, 10)}
	known["legs"] = bson.A{leg("europe", "j.accounts", -10), leg("", own, 10)}
	b.PutIn("transfers", swapped, known)
	b.requireHistory([]string{"swapped", "known"}, []string{"swapped", "known"})
}

// A name that is recorded while a past is closed is known to it: the first transfer under
// that name is in the balance and among the entries, or in neither of them.
func TestNameOfTheLastMoment(t *testing.T) {
	t.Parallel()
	for _, apart := range []bool{false, true} {
		t.Run(fmt.Sprintf("apart=%v", apart), func(t *testing.T) {
			t.Parallel()
			b, s := newStepBank(t, apart)
			own := b.DB.Name() + ".accounts"
			for at := range 9 {
				name := fmt.Sprint("europe", at)
				b.Put(storetest.Account(name, nil))
				record := func() {
					b.PutIn("transfers.transfer", recordedAs(name, own, b.identity()))
					moved := movedUnder(name, name, own, time.Now())
					moved["legs"].(bson.A)[0].(bson.M)["account"] = name
					b.PutIn("transfers", moved)
					b.Change("accounts", name, bson.M{"$inc": bson.M{"balance": int64(10)}})
				}
				h := b.history(name)
				end := s.begin(map[int][]func(){at: {record}})
				closed, _, err := h.BalanceAsOf(t.Context(), time.Time{})
				commands := end()
				require.NoError(t, err)
				entries, _, err := h.Page(t.Context(), history.NewestFirst, time.Time{}, closed.At, 10)
				require.NoError(t, err)
				require.Equal(t, money.Units(100+10*int64(len(entries))), closed.Balance, "before command %d of %d", at, commands)
			}
		})
	}
}
