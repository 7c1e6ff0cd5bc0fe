package mongostore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
	"github.com/mongotransfer/transfer/internal/wire"
)

// The server gives up a shared statement that waits for a transaction. It changes the
// accounts in the order of their _ids, whatever the order of the calls, so that the
// document at which it waits is found.
func TestSuspectOfASharedStatement(t *testing.T) {
	b := newBank(t)
	names := []string{"zz", "e", "Z", "é", "locked", "a", "10", "9"}
	rs := b.opened(200, names...)
	rs = append(rs, b.opened(1, "below")...) // it stands before the locked one, and can't be changed
	unlock := b.lock("locked")
	b.performLimited(3*time.Second, rs)
	unlock()
	require.True(t, wire.HeldUp(rs[0].Cause), "%v", rs[0].Cause)
	assert.Equal(t, []string{"by locked"}, rs.suspects())
	for _, name := range []string{"10", "9", "Z", "a", "e"} {
		b.debited(200, 1, name) // before it
	}
	for _, name := range []string{"zz", "é"} {
		b.debited(200, 0, name)
	}
}

// A collection that ignores case can't be a ledger. If it were one, a shared statement
// would take the same documents for its accounts as one for a single account does.
func TestSharedStatementUnderACollation(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	ignoring := options.CreateCollection().SetCollation(&options.Collation{Locale: "en", Strength: 1})
	for _, name := range []string{"single", "shared"} {
		require.NoError(t, b.DB.CreateCollection(t.Context(), name, ignoring))
		b.PutIn(name, storetest.Account("ALICE", nil), storetest.Account("bob", bson.M{"closed": true}), storetest.Account("dave", nil))
	}
	updates := b.debitsOf("alice", "bob", "carol")
	var single []*mongostore.Statement
	for _, u := range updates {
		single = append(single, u.Single())
	}
	require.True(t, wire.ModifyAll(t.Context(), b.DB.Collection("single"), single).Matched)
	shared := wire.ModifyAll(t.Context(), b.DB.Collection("shared"), []*mongostore.Statement{b.Store.SharedStatement(updates...)})
	require.NoError(t, shared.Verdicts[0].Err)
	for id, stored := range b.everything("single") {
		assert.Equal(t, storetest.AsMap(t, stored), storetest.AsMap(t, b.Raw("shared", id)))
	}
}

// debitsOf returns an update of each account that takes 60 units.
func (b *bank) debitsOf(accounts ...string) []*mongostore.MergedUpdate {
	var updates []*mongostore.MergedUpdate
	for _, id := range accounts {
		a := formAttempt(b.Store, "t", id, "", money.Units(-60))
		updates = append(updates, b.Store.NewMergedUpdate(&mongostore.Call{Attempt: a, Op: storetest.PrepareWith(0, fence0())}))
	}
	return updates
}

// A document that a shared statement finds, and that is none of its accounts, is left as
// it is.
func TestSharedStatementChangesNoOtherDocument(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("aaron", nil), storetest.Account("alice", nil), storetest.Account("dave", nil))
	for _, op := range []protocol.Operation{storetest.PrepareWith(0, fence0()), storetest.At(protocol.Settle, 0)} {
		for _, amount := range []money.Amount{money.Units(-60), dec("-60")} {
			var updates []*mongostore.MergedUpdate
			for _, id := range []string{"alice", "bob", "carol"} {
				a := formAttempt(b.Store, "t", id, "", amount)
				updates = append(updates, b.Store.NewMergedUpdate(&mongostore.Call{Attempt: a, Op: op}))
			}
			m := wire.NewMessage(1 << 10)
			b.Store.SharedStatement(updates...).Write(m)
			m.End()
			result, err := b.DB.Collection("accounts").UpdateMany(t.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$ne", Value: "alice"}}}},
				bson.A{bson.Raw(m.Data).Lookup("u", "0").Document()})
			require.NoError(t, err)
			assert.EqualValues(t, 2, result.MatchedCount)
			assert.Zero(t, result.ModifiedCount)
		}
	}
}

// An account that is nearly as large as the server allows is changed by both forms or by
// none. That says nothing about the server.
func TestFormsOfALargeAccount(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	const most = 16 << 20
	for _, over := range []int{0, 1} {
		var cases []*formCase
		for i, id := range []string{"large", "small", "tiny"} {
			a := formAttempt(b.Store, "t", id, "", money.Units(-60))
			call := &mongostore.Call{Attempt: a, Op: storetest.PrepareWith(0, fence0())}
			doc := storetest.Account(id, bson.M{"pending": bson.M{"t": int64(60)}})
			if i == 0 {
				doc["note"] = strings.Repeat("x", most+over-len(encode(doc))+len("kept"))
			}
			doc["pending"] = bson.M{}
			cases = append(cases, &formCase{
				id: id, update: b.Store.NewMergedUpdate(call), calls: requests{call}, before: encode(doc), plain: true,
				tooLarge: i == 0 && over > 0,
			})
		}
		f := forms{t, b.Store.Store, b.DB.Collection(fmt.Sprint("single ", over)), b.DB.Collection(fmt.Sprint("shared ", over))}
		alone, together := f.perform(cases)
		for i, c := range cases {
			byItself, shared := c.judge(t, alone[c.id], together[c.id])
			assert.Equal(t, over == 0 || i != 0, byItself)
			assert.Equal(t, byItself, shared)
		}
	}
}

func fence0() protocol.Fence { return document.FenceOfToken(storetest.Fence0()) }
