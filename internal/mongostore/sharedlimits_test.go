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
	names := []string{"e", "Z", "locked", "zz", "a", "é", "10", "9"}
	rs := b.opened(200, names...)
	poor := b.opened(1, "below")
	unlock := b.lock("locked")
	both := append(poor, rs...)
	b.performLimited(3*time.Second, both)
	unlock()
	require.True(t, wire.HeldUp(rs[0].Cause), "%v", rs[0].Cause)
	assert.Equal(t, []string{"by locked"}, both.suspects())
	for _, name := range []string{"10", "9", "Z", "a", "e"} {
		b.debited(200, 1, name) // before it
	}
	for _, name := range []string{"zz", "é"} {
		b.debited(200, 0, name)
	}
}

// A collection that ignores case can't be a ledger. A statement for accounts there finds
// none but those that it is for.
func TestSharedStatementUnderACollation(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	ignoring := options.CreateCollection().SetCollation(&options.Collation{Locale: "en", Strength: 1})
	require.NoError(t, b.DB.CreateCollection(t.Context(), "folded", ignoring))
	folded := b.DB.Collection("folded")
	b.PutIn("folded", storetest.Account("ALICE", nil), storetest.Account("bob", nil))
	var updates []*mongostore.MergedUpdate
	for _, id := range []string{"alice", "bob", "carol"} {
		a := formAttempt(b.Store, "t", id, "", money.Units(-60))
		updates = append(updates, b.Store.NewMergedUpdate(&mongostore.Call{Attempt: a, Op: storetest.PrepareWith(0, fence0())}))
	}
	shared := wire.ModifyAll(t.Context(), folded, []*mongostore.Statement{b.Store.SharedStatement(updates...)})
	require.NoError(t, shared.Verdicts[0].Err)
	assert.True(t, shared.Matched)
	b.Has("folded", storetest.Account("ALICE", nil))
	b.Has("folded", storetest.Account("bob", bson.M{"balance": int64(40), "pending": bson.M{"t": int64(-60)}}))
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
