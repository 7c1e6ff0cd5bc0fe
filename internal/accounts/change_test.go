package accounts_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/accounts"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// A change needs the fence that was read, a balance of the floor's kind, and a map of
// markers, or none.
// It sets its token for a fence.
// A document that has anything else stays as it is.
func TestChange(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	whole, decimals, zero := money.Units(7), amount(t, "7.5"), money.Amount{}
	yes := true
	old := document.FenceOfToken(storetest.Fence0())
	for i, row := range []struct {
		account bson.M
		fence   protocol.Fence
		change  accounts.Change
		changes bool
	}{
		{nil, old, accounts.Change{Frozen: &yes}, true},
		{nil, old, accounts.Change{Floor: &whole}, true},
		{nil, old, accounts.Change{Floor: &zero}, true},
		{nil, old, accounts.Change{NoFloor: true}, true},
		{nil, old, accounts.Change{Floor: &decimals}, false},
		{bson.M{"balance": int32(5)}, old, accounts.Change{Floor: &whole}, true},
		{bson.M{"balance": decimal(t, "5")}, old, accounts.Change{Floor: &whole}, false},
		{bson.M{"balance": decimal(t, "5")}, old, accounts.Change{Floor: &decimals}, true},
		{bson.M{"balance": decimal(t, "5")}, old, accounts.Change{Floor: &zero}, true},
		{bson.M{"balance": 5.0}, old, accounts.Change{Frozen: &yes}, false},
		{bson.M{"balance": nil}, old, accounts.Change{Frozen: &yes}, false},
		{bson.M{"balance": bson.A{int64(5)}}, old, accounts.Change{Frozen: &yes}, false},
		{bson.M{"pending": nil}, old, accounts.Change{Frozen: &yes}, true},
		{bson.M{"pending": bson.Null{}}, old, accounts.Change{Frozen: &yes}, true},
		{bson.M{"pending": bson.M{"order": int64(-5)}}, old, accounts.Change{Frozen: &yes}, true},
		{bson.M{"pending": bson.A{bson.M{}}}, old, accounts.Change{Frozen: &yes}, false},
		{bson.M{"pending": "none"}, old, accounts.Change{Frozen: &yes}, false},
		{nil, document.FenceOfToken(bson.NewObjectID()), accounts.Change{Frozen: &yes}, false},
		{nil, "", accounts.Change{Frozen: &yes}, false},
		{bson.M{"fence": nil}, "", accounts.Change{Frozen: &yes}, true},
		{bson.M{"fence": nil}, old, accounts.Change{Frozen: &yes}, false},
		{bson.M{"fence": bson.A{storetest.Fence0()}}, old, accounts.Change{Frozen: &yes}, false},
		{bson.M{"closed": true, "frozen": true}, old, accounts.Change{Frozen: &yes}, true},
	} {
		id := fmt.Sprint("account ", i)
		b.Put(storetest.Account(id, row.account))
		before := b.Raw("accounts", id)
		token := bson.NewObjectID()
		after, result, err := b.Store.Change(t.Context(), "", id, row.fence, row.change, token)
		require.NoError(t, err)
		if !row.changes {
			assert.Equal(t, protocol.NotMatched, result, "%s: %v", id, row)
			assert.Equal(t, before, b.Raw("accounts", id))
			continue
		}
		require.Equal(t, protocol.Applied, result, "%s: %v", id, row)
		require.Equal(t, b.Raw("accounts", id), after.Stored)
		require.Equal(t, document.FenceOfToken(token), after.Fence())
		_, result, err = b.Store.Change(t.Context(), "", id, row.fence, row.change, token)
		require.NoError(t, err)
		require.Equal(t, protocol.NotMatched, result, "the same message, again")
	}
	_, result, err := b.Store.Change(t.Context(), "", "nobody", "", accounts.Change{Frozen: &yes}, bson.NewObjectID())
	require.NoError(t, err)
	require.Equal(t, protocol.NotMatched, result)
	require.Nil(t, b.Raw("accounts", "nobody"))
}

// A page costs the server no more than its accounts, by the index of _id, wherever it
// begins, and none of it is kept back to be sorted.
func TestPageExaminesItsAccounts(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	var all []bson.M
	for i := range 1000 {
		all = append(all, storetest.Account(fmt.Sprintf("%04d", i), bson.M{"currency": []string{"EUR", "USD"}[i%2]}))
	}
	b.Put(all...)
	var after bson.RawValue
	for i := range 4 {
		b.Log.Take()
		page, err := b.Store.Page(t.Context(), "", after, "EUR", 100)
		require.NoError(t, err)
		require.Len(t, page.Accounts, 50)
		require.Equal(t, fmt.Sprintf("%04d", 100*i), page.Accounts[0].ID)
		after = page.Next
		commands := b.Log.Take()
		require.Len(t, commands, 1)
		assert.EqualValues(t, 100, b.Examined(commands[0]))
		plan := b.Explain(commands[0])
		assert.Contains(t, plan, `"indexName": "_id_"`)
		assert.NotContains(t, plan, `"stage": "SORT"`)
	}
	page, err := b.Store.Page(t.Context(), "", after, "", 1000)
	require.NoError(t, err)
	require.Len(t, page.Accounts, 600)
	require.Zero(t, page.Next)
}
