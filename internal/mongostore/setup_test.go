package mongostore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/deployment"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/queries"
)

// Setup creates the indexes of the transfers, none of the accounts, and may be called again, by another process too.
func TestSetupIsIdempotent(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	require.NoError(t, b.store.Setup(t.Context()))
	before := b.indexes("transfers")
	assert.Equal(t, map[string]string{
		"_id_":       `{"_id": {"$numberInt":"1"}}`,
		"unfinished": `{"hold": {"$numberInt":"1"},"epoch": {"$numberInt":"1"},"notBefore": {"$numberInt":"1"},"createdAt": {"$numberInt":"1"}}`,
		"holds":      `{"state": {"$numberInt":"1"},"expiresAt": {"$numberInt":"1"}}`,
		"committed":  `{"legs.account": {"$numberInt":"1"},"legs.ledger": {"$numberInt":"1"},"committedAt": {"$numberInt":"1"}}`,
		"failures":   `{"legs.account": {"$numberInt":"1"},"legs.ledger": {"$numberInt":"1"},"createdAt": {"$numberInt":"1"}}`,
		"created":    `{"createdAt": {"$numberInt":"-1"},"_id": {"$numberInt":"-1"}}`,
		"purge":      `{"purgeAt": {"$numberInt":"1"}}`,
	}, before)
	for _, accounts := range []string{"accounts", "accounts_eu"} {
		assert.Len(t, b.indexes(accounts), 1)
	}
	b.put(account("alice", nil))
	require.NoError(t, b.store.Setup(t.Context()))
	require.NoError(t, b.reconnected(t, 1).store.Setup(t.Context()))
	assert.Equal(t, before, b.indexes("transfers"))
	b.has("accounts", account("alice", nil))
}

func (b *bank) indexes(collection string) map[string]string {
	b.t.Helper()
	specs, err := b.db.Collection(collection).Indexes().ListSpecifications(b.t.Context())
	require.NoError(b.t, err)
	keys := map[string]string{}
	for _, spec := range specs {
		keys[spec.Name] = spec.KeysDocument.String()
	}
	return keys
}

// An index that stands in the way is told, also where the client's own writes are not acknowledged.
func TestSetupTellsAConflict(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]*options.ClientOptions{
		"default": options.Client(), "w: 0": options.Client().SetWriteConcern(writeconcern.Unacknowledged()),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBankOf(t, client)
			index := mongo.IndexModel{Keys: bson.M{"other": 1}, Options: options.Index().SetName("unfinished")}
			_, err := b.db.Collection("transfers").Indexes().CreateOne(t.Context(), index)
			require.NoError(t, err)
			require.ErrorContains(t, b.store.Setup(t.Context()), "transfers")
		})
	}
}

// The sweep for unfinished work reads the index of unfinished work, which finished transfers are not in.
func TestStalledUsesThePartialIndex(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	require.NoError(t, b.store.Setup(t.Context()))
	for _, state := range []protocol.State{
		protocol.Initiated, protocol.Preparing, protocol.Committed, protocol.Rollback, protocol.Success, protocol.Fail,
	} {
		b.claimed(string(state), b.leg("alice", -60))
		b.change("transfers", string(state), bson.M{"$set": bson.M{"state": state, "lastModified": time.Now().Add(-time.Hour)}})
		if state.Final() {
			b.change("transfers", string(state), bson.M{"$unset": bson.M{"open": ""}})
		}
	}
	b.claimed("fresh", b.leg("alice", -60))
	for threshold, want := range map[time.Duration][]string{
		time.Hour: {"Committed", "Preparing", "Rollback"}, 2 * time.Hour: nil, 0: {"Committed", "Preparing", "Rollback", "fresh"},
	} {
		b.log.take()
		var found []string
		for transfer, err := range b.store.Stalled(t.Context(), threshold) {
			require.NoError(t, err)
			found = append(found, transfer.ID)
		}
		slices.Sort(found)
		assert.Equal(t, want, found, threshold)
		find := b.log.take()[0]
		plan := b.explain(find)
		assert.Contains(t, plan, `"indexName": "unfinished"`)
		assert.NotContains(t, plan, "COLLSCAN")
	}
}

// An account's transfers are found by indexes, whatever has become of them.
func TestListOfAnAccountUsesIndexes(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	require.NoError(t, b.store.Setup(t.Context()))
	works := b.crowd(4, 60)
	b.applied(works[0], decide(protocol.Committed, 1))
	b.applied(works[0], finish(protocol.Success))
	b.applied(works[1], decide(protocol.Rollback, 1))
	b.applied(works[1], finish(protocol.Fail))
	b.applied(works[2], decide(protocol.Committed, 1))
	var others []any // so many that it doesn't pay to look through all
	for i := range 1000 {
		others = append(others, bson.M{
			"_id": fmt.Sprint("other", i), "state": "Success", "createdAt": time.Now(), "committedAt": time.Now(),
			"legs": bson.A{bson.M{"ledger": "", "ns": "x.y", "account": "bob", "amount": int64(5)}},
		})
	}
	_, err := b.db.Collection("transfers").InsertMany(t.Context(), others)
	require.NoError(t, err)
	b.log.take()
	var found []string
	for transfer, err := range b.store.List(t.Context(), queries.Query{Account: "alice"}) {
		require.NoError(t, err)
		found = append(found, transfer.ID)
	}
	slices.Sort(found)
	assert.Equal(t, []string{"t0", "t1", "t2", "t3"}, found)
	plan := b.explain(b.log.take()[0])
	for _, index := range []string{"unfinished", "committed", "failures"} {
		assert.Contains(t, plan, `"indexName": "`+index+`"`)
	}
	assert.NotContains(t, plan, "COLLSCAN")
}

// explain returns the winning plan of a find that was logged.
func (b *bank) explain(find *command) string {
	b.t.Helper()
	query := bson.D{{Key: "find", Value: find.text("find")}}
	for _, field := range []string{"filter", "sort"} {
		if value := find.body.Lookup(field); value.Type != 0 {
			query = append(query, bson.E{Key: field, Value: value})
		}
	}
	var reply struct {
		QueryPlanner struct {
			WinningPlan bson.Raw `bson:"winningPlan"`
		} `bson:"queryPlanner"`
	}
	require.NoError(b.t, b.db.RunCommand(b.t.Context(), bson.D{{Key: "explain", Value: query}}).Decode(&reply))
	return reply.QueryPlanner.WinningPlan.String()
}

// Setup refuses collections in which an ID does not stand for one document that stays, whichever of the collections it is.
func TestSetupRefusesOtherCollections(t *testing.T) {
	t.Parallel()
	for name, create := range map[string]bson.D{
		"view":        {{Key: "viewOn", Value: "others"}, {Key: "pipeline", Value: bson.A{}}},
		"collation":   {{Key: "collation", Value: bson.M{"locale": "en", "strength": 2}}},
		"time series": {{Key: "timeseries", Value: bson.M{"timeField": "at"}}},
		"capped":      {{Key: "capped", Value: true}, {Key: "size", Value: 1 << 20}},
	} {
		for _, collection := range []string{"transfers", "accounts", "accounts_eu"} {
			t.Run(name+" as "+collection, func(t *testing.T) {
				t.Parallel()
				b := newBank(t)
				command := append(bson.D{{Key: "create", Value: collection}}, create...)
				require.NoError(t, b.db.RunCommand(t.Context(), command).Err())
				err := b.store.Setup(t.Context())
				require.ErrorIs(t, err, collections.ErrUnsupported)
				require.ErrorContains(t, err, b.db.Name()+"."+collection)
			})
		}
	}
	b := newBank(t)
	simple := bson.D{{Key: "create", Value: "accounts"}, {Key: "collation", Value: bson.M{"locale": "simple"}}}
	require.NoError(t, b.db.RunCommand(t.Context(), simple).Err())
	require.NoError(t, b.store.Setup(t.Context()))
}

// A collection may be sharded by _id alone.
func TestShardedByID(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		entry bson.M
		fine  bool
	}{
		"ranged":           {bson.M{"key": bson.M{"_id": 1}}, true},
		"hashed":           {bson.M{"key": bson.M{"_id": "hashed"}}, true},
		"not sharded":      {bson.M{"_id": "bank.accounts"}, true},
		"dropped":          {bson.M{"key": bson.M{"region": 1}, "dropped": true}, true},
		"not dropped":      {bson.M{"key": bson.M{"region": 1}, "dropped": false}, false},
		"another field":    {bson.M{"key": bson.M{"region": 1}}, false},
		"compound":         {bson.M{"key": bson.D{{Key: "_id", Value: 1}, {Key: "region", Value: 1}}}, false},
		"compound, behind": {bson.M{"key": bson.D{{Key: "region", Value: 1}, {Key: "_id", Value: 1}}}, false},
		"field of _id":     {bson.M{"key": bson.M{"_id.region": 1}}, false},
	} {
		err := deployment.ShardedByID("bank.accounts", encode(row.entry))
		if row.fine {
			require.NoError(t, err, name)
		} else {
			require.ErrorIs(t, err, collections.ErrUnsupported, name)
			require.ErrorContains(t, err, "bank.accounts", name)
		}
	}
}

// config returns a configuration with one ledger more.
func (b *bank) config(name string, ledger *mongo.Collection) config {
	ledgers := map[string]*mongo.Collection{name: ledger}
	for name, l := range b.store.Ledgers {
		ledgers[name] = l.Commands
	}
	return config{Transfers: b.store.Transfers, Ledgers: ledgers, Fields: standardFields(), MarkerLimit: 1, Now: time.Now}
}

// One collection under two names would make one account two participants with one marker: it is refused, through one client at
// once, and through two as soon as the server can be asked.
func TestOneCollectionUnderTwoNames(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	db := b.store.Transfers.Database()
	for _, name := range []string{"accounts", "accounts_eu", "transfers"} {
		_, err := newRooms(b.config("again", db.Collection(name)))
		require.ErrorContains(t, err, db.Name()+"."+name)
	}
	other := mongotest.Client(t)
	for name, refused := range map[string]bool{"accounts": true, "transfers": true, "accounts_us": false} {
		store, err := newRooms(b.config("again", other.Database(db.Name()).Collection(name)))
		require.NoError(t, err)
		for range 2 {
			err := store.Connect(t.Context(), store.Addresses()...)
			if refused {
				require.ErrorIs(t, err, collections.ErrUnsupported, name)
				require.ErrorContains(t, err, db.Name()+"."+name)
				require.False(t, store.Connected(touching("", "eu", "again")), "what was refused is not taken for fit")
				require.False(t, name == "transfers" && store.Connected(touching("again")))
				require.ErrorIs(t, store.Setup(t.Context()), collections.ErrUnsupported)
			} else {
				require.NoError(t, err, name)
			}
		}
	}
	// The same name in another database is another collection.
	store, err := newRooms(b.config("again", mongotest.Database(t).Collection("accounts")))
	require.NoError(t, err)
	require.NoError(t, store.Connect(t.Context(), store.Addresses()...))
}

// The same name on another cluster is another collection: its UUID tells.
func TestSameNameOnAnotherCluster(t *testing.T) {
	t.Setenv("MONGODB_URI", "")
	server, err := mongotest.Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	b := newBank(t)
	far := mongotest.Client(t, options.Client().ApplyURI(server.URI())).Database(b.db.Name()).Collection("accounts")
	store, err := newRooms(b.config("far", far))
	require.NoError(t, err)
	both := touching("", "far")
	require.NoError(t, store.Connect(t.Context(), document.Address{}))
	require.NoError(t, store.Connect(t.Context(), document.Address{Name: "far"}))
	assert.False(t, store.Connected(both), "they have one name, and are not told apart yet")
	require.NoError(t, store.Connect(t.Context(), both.Addresses()...))
	assert.True(t, store.Connected(both))
	require.NoError(t, store.Connect(t.Context(), store.Addresses()...))
	assert.True(t, store.Ledgers["eu"].SameClient)
	assert.False(t, store.Ledgers["far"].SameClient)
	require.NoError(t, store.Setup(t.Context()))
}

// A transfer is worked on only where each of its collections is registered under the name that it stored.
func TestForeignTransfersAreLeftAlone(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	assert.True(t, b.store.HasLedger("eu"))
	assert.False(t, b.store.HasLedger("us"))
	for _, leg := range []document.Leg{
		{Ledger: "us", Namespace: b.db.Name() + ".accounts", Account: "alice"},
		{Ledger: "eu", Namespace: b.db.Name() + ".accounts", Account: "alice"},
		{Ledger: "", Namespace: "other.accounts", Account: "alice"},
		{Account: "alice"},
	} {
		_, err := b.store.NewAttempt(document.Transfer{ID: "order", Legs: []document.Leg{b.leg("bob", 1), leg}}, "me")
		require.ErrorIs(t, err, ErrForeign, "%+v", leg)
	}
}

// Metadata has no index of the library's: the newest transfers are looked through. An index of the user's, in the order that the
// documentation names, finds and sorts.
func TestListByMetadata(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	require.NoError(t, b.store.Setup(t.Context()))
	var transfers []any
	for i := range 1000 {
		transfers = append(transfers, bson.M{"_id": fmt.Sprint(i), "state": "Success", "createdAt": time.Now(),
			"metadata": bson.M{"order": int32(i / 2)}})
	}
	_, err := b.db.Collection("transfers").InsertMany(t.Context(), transfers)
	require.NoError(t, err)
	list := func() *command {
		b.log.take()
		n := 0
		for _, err := range b.store.List(t.Context(), queries.Query{Metadata: encode(bson.M{"order": 17})}) {
			require.NoError(t, err)
			n++
		}
		require.Equal(t, 2, n)
		return b.log.take()[0]
	}
	find := list()
	assert.Contains(t, b.explain(find), `"indexName": "created"`)
	assert.NotContains(t, b.explain(find), `"stage": "SORT"`)
	assert.EqualValues(t, 1000, b.examined(find))
	index := mongo.IndexModel{Keys: bson.D{{Key: "metadata.order", Value: 1}, {Key: "createdAt", Value: -1}, {Key: "_id", Value: -1}}}
	_, err = b.db.Collection("transfers").Indexes().CreateOne(t.Context(), index)
	require.NoError(t, err)
	assert.NotContains(t, b.explain(find), `"stage": "SORT"`)
	assert.EqualValues(t, 2, b.examined(list()))
}
