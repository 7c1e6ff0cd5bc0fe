package config

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// An invalid coordinator is refused, and the text says what is wrong.
func TestInvalidOptions(t *testing.T) {
	t.Parallel()
	db := mongotest.Database(t)
	other := db.Collection("other")
	for text, opts := range map[string][]transfer.Option{
		"option 0 is nil":         {nil},
		`not "moved"`:             {transfer.WithEvents(transfer.EventHandler{Kinds: []transfer.EventKind{"moved"}})},
		"and is -1":               {transfer.WithEvents(transfer.EventHandler{MaxAttempts: -1})},
		"want a collection":       {transfer.WithAccounts(nil)},
		`"euro" wants`:            {transfer.WithLedger("euro", nil)},
		"the name of a ledger":    {transfer.WithLedger("", other)},
		`"x" is registered twice`: {transfer.WithLedger("x", other), transfer.WithLedger("x", db.Collection("more"))},
		`"y" is registered twice`: {transfer.WithDocuments("y", other), transfer.WithDocuments("y", db.Collection("more"))},
		"name of a collection":    {transfer.WithDocuments("a\x00", other)},
		"under two names":         {transfer.WithLedger("euro", db.Collection("accounts"))},
		"holds the transfers":     {transfer.WithLedger("euro", db.Collection("transfers"))},
		"can't hold anything":     {transfer.WithTransfers(db.Collection("accounts"))},
		"transfers are kept":      {transfer.WithDocuments("x", db.Collection("transfers.retention"))},
		"which processes live":    {transfer.WithLedger("x", db.Collection("transfers.processes"))},
		"without dots":            {transfer.WithFields(transfer.Fields{Balance: "a.b"})},
		`"x" is taken`:            {transfer.WithFields(transfer.Fields{Balance: "x", Floor: "x"})},
		`"_id" is taken`:          {transfer.WithFields(transfer.Fields{Fence: "_id"})},
		"StringIDs or ObjectIDs":  {transfer.WithAccountIDs(7)},
		"an owner's name":         {transfer.WithOwner("")},
		"1 to 128 bytes":          {transfer.WithOwner(strings.Repeat("x", 129))},
		"UTF-8 without NUL":       {transfer.WithOwner("a\x00b")},
		"between 1 and 8192":      {transfer.WithMarkerLimit(0)},
		"and is 8193":             {transfer.WithMarkerLimit(8193)},
		"1048576 bytes or more, or 0 for none, not 1048575":                {transfer.WithFenceCache(1<<20 - 1)},
		"or 0 for none, not -1":                                            {transfer.WithFenceCache(-1)},
		"MaxBatch of GroupCommit lies between 1 and 4096, and is -1":       {transfer.WithGroupCommit(transfer.GroupCommit{MaxBatch: -1})},
		"MaxInFlight of GroupCommit lies between 1 and 64, and is 65":      {transfer.WithGroupCommit(transfer.GroupCommit{MaxInFlight: 65})},
		"MaxPending of GroupCommit lies between 1 and 65536, and is 65537": {transfer.WithGroupCommit(transfer.GroupCommit{MaxPending: 65537})},
		"not negative":                           {transfer.WithStallThreshold(-time.Second)},
		"1h0m0s or longer, not 59m59.999999999s": {transfer.WithRetention(time.Hour - 1)},
		"1h0m0s or longer, not 0s":               {transfer.WithRetention(0)},
		"or longer, not -1h0m0s":                 {transfer.WithRetention(-time.Hour)},
		"Resume or RollBack":                     {transfer.WithStallPolicy(0)},
		"AtCommit, AtSettled or AtSuccess":       {transfer.WithReturnAt(9)},
		"wants a logger":                         {transfer.WithLogger(nil)},
	} {
		_, err := transfer.NewCoordinator(db, opts...)
		require.ErrorIs(t, err, transfer.ErrInvalidRequest, text)
		require.ErrorContains(t, err, text)
	}
	_, err := transfer.NewCoordinator(nil)
	require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	_, err = transfer.NewCoordinator(db, transfer.WithMarkerLimit(8192), transfer.WithFenceCache(1<<20),
		transfer.WithOwner(strings.Repeat("x", 128)), transfer.WithStallThreshold(0), transfer.WithRetention(time.Hour),
		transfer.WithGroupCommit(transfer.GroupCommit{MaxBatch: 4096, MaxInFlight: 64, MaxPending: 65536}))
	require.NoError(t, err, "the limits themselves are allowed")
}

// Databases of the server's own are refused, for whatever they are meant: what is in
// local is lost with its member, and even by an election.
func TestDatabasesOfTheServersOwn(t *testing.T) {
	t.Parallel()
	db := mongotest.Database(t)
	for name, text := range map[string]string{"local": "not replicated", "admin": "the server's own", "config": "the server's own"} {
		own := db.Client().Database(name)
		_, err := transfer.NewCoordinator(own)
		require.ErrorIs(t, err, transfer.ErrInvalidRequest)
		for _, option := range []transfer.Option{
			transfer.WithTransfers(own.Collection("x")), transfer.WithAccounts(own.Collection("x")),
			transfer.WithLedger("x", own.Collection("x")), transfer.WithDocuments("x", own.Collection("x")),
		} {
			_, err := transfer.NewCoordinator(db, option)
			require.ErrorIs(t, err, transfer.ErrInvalidRequest)
			require.ErrorContains(t, err, name+".x")
			require.ErrorContains(t, err, text)
		}
	}
}

// A collection of accounts that is reached through two clients is detected before money
// moves.
// Otherwise an account would be two participants that share one marker.
func TestOneCollectionThroughTwoClients(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	twice := mongotest.Client(t).Database(b.DB.Name()).Collection("accounts")
	c := b.NewCoordinator(b.DB, transfer.WithLedger("twice", twice))
	_, err := c.Transfer(t.Context(), transfer.Request{ID: "t", Legs: []transfer.Leg{
		{Account: "a", Amount: transfer.Units(-60)}, {Ledger: "twice", Account: "a", Amount: transfer.Units(60)},
	}})
	require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
	require.ErrorIs(t, c.Setup(t.Context()), transfer.ErrUnsupportedDeployment)
	require.Empty(t, b.Raw("transfers"))
	b.CheckBooks(bank.Balances(100, 0))
}

// An effect can't change an account.
// A collection of accounts or transfers is refused as documents, even if it is reached
// through another client, without a Setup, and by a transfer without accounts.
func TestDocumentsThatAreAccounts(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100)
	other := mongotest.Client(t).Database(b.DB.Name())
	set := func(id string, documents *mongo.Collection) error {
		c := b.NewCoordinator(b.DB, transfer.WithLedger("eu", b.DB.Collection("eu")), transfer.WithDocuments("papers", documents))
		_, err := c.Transfer(t.Context(), transfer.Request{ID: id, Effects: []transfer.Effect{
			{Documents: "papers", ID: "a", Set: bson.D{{Key: "balance", Value: int64(1000)}}},
		}})
		return err
	}
	for _, name := range []string{"accounts", "eu", "transfers"} {
		err := set(name, other.Collection(name))
		require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment, name)
		require.ErrorContains(t, err, b.DB.Name()+"."+name)
	}
	require.Empty(t, b.Raw("transfers"))
	b.Insert("papers", bson.D{{Key: "_id", Value: "a"}})
	require.NoError(t, set("papers", other.Collection("papers")))
	b.CheckBooks(bank.Balances(100))
}

// Stored transfers name the process that runs them, and the user can set that name.
// No two executions have the same one.
func TestOwners(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	c := b.NewCoordinator(b.DB, transfer.WithOwner("till-7"))
	owners := map[string]bool{}
	for _, id := range []string{"1", "2"} {
		rec, err := c.Transfer(t.Context(), bank.Move(id, "a", "b", 1))
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(rec.Owner, "till-7-"), rec.Owner)
		owners[rec.Owner] = true
	}
	require.Len(t, owners, 2)
	b.CheckBooks(bank.Balances(100, 0))
}
