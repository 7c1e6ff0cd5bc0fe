package deployment_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// Setup creates the indexes of the transfers, and none of the accounts. It may be called
// again, also by another process.
func TestSetupIsIdempotent(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	require.NoError(t, b.Store.Setup(t.Context()))
	before := indexes(b, "transfers")
	assert.Equal(t, map[string]string{
		"_id_":       `{"_id": {"$numberInt":"1"}}`,
		"unfinished": `{"hold": {"$numberInt":"1"},"epoch": {"$numberInt":"1"},"notBefore": {"$numberInt":"1"},"createdAt": {"$numberInt":"1"}}`,
		"holds":      `{"state": {"$numberInt":"1"},"expiresAt": {"$numberInt":"1"}}`,
		"committed":  `{"legs.account": {"$numberInt":"1"},"legs.ledger": {"$numberInt":"1"},"committedAt": {"$numberInt":"1"}}`,
		"account": `{"legs.account": {"$numberInt":"1"},"legs.ledger": {"$numberInt":"1"},` +
			`"createdAt": {"$numberInt":"-1"},"_id": {"$numberInt":"-1"}}`,
		"created":   `{"createdAt": {"$numberInt":"-1"},"_id": {"$numberInt":"-1"}}`,
		"held":      `{"createdAt": {"$numberInt":"-1"},"_id": {"$numberInt":"-1"}}`,
		"failed":    `{"createdAt": {"$numberInt":"-1"},"_id": {"$numberInt":"-1"}}`,
		"reversals": `{"reverses": {"$numberInt":"1"},"createdAt": {"$numberInt":"-1"},"_id": {"$numberInt":"-1"}}`,
		"purge":     `{"purgeAt": {"$numberInt":"1"}}`,
	}, before)
	for _, accounts := range []string{"accounts", "accounts_eu"} {
		assert.Len(t, indexes(b, accounts), 1)
	}
	b.Put(storetest.Account("alice", nil))
	require.NoError(t, b.Store.Setup(t.Context()))
	db := mongotest.Client(t).Database(b.DB.Name())
	another, err := storetest.NewRooms(storetest.Config{
		Transfers: db.Collection("transfers"),
		Ledgers:   map[string]*mongo.Collection{"": db.Collection("accounts"), "eu": db.Collection("accounts_eu")},
		Fields:    storetest.StandardFields(),
		Now:       time.Now,
	})
	require.NoError(t, err)
	require.NoError(t, another.Setup(t.Context()))
	assert.Equal(t, before, indexes(b, "transfers"))
	b.Has("accounts", storetest.Account("alice", nil))
}

// Setup's indexes wait for a majority, and not for a member that is down.
func TestIndexesNeedAMajority(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	require.NoError(t, b.Store.Setup(t.Context()))
	var quorums []string
	for _, command := range b.Log.Take() {
		if command.Name == "createIndexes" {
			quorum, _ := command.Body.Lookup("commitQuorum").StringValueOK()
			quorums = append(quorums, quorum)
		}
	}
	assert.Equal(t, []string{"majority"}, quorums)
}

func indexes(b *storetest.Bank, collection string) map[string]string {
	b.T.Helper()
	specs, err := b.DB.Collection(collection).Indexes().ListSpecifications(b.T.Context())
	require.NoError(b.T, err)
	keys := map[string]string{}
	for _, spec := range specs {
		keys[spec.Name] = spec.KeysDocument.String()
	}
	return keys
}

// Setup reports an index that excludes one of the library's, also where the client's own
// writes are not acknowledged.
func TestSetupTellsAConflict(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]*options.ClientOptions{
		"default": options.Client(), "w: 0": options.Client().SetWriteConcern(writeconcern.Unacknowledged()),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := storetest.NewOf(t, client)
			index := mongo.IndexModel{Keys: bson.M{"other": 1}, Options: options.Index().SetName("unfinished")}
			_, err := b.DB.Collection("transfers").Indexes().CreateOne(t.Context(), index)
			require.NoError(t, err)
			require.ErrorContains(t, b.Store.Setup(t.Context()), "transfers")
		})
	}
}

// Setup refuses a collection in which an ID does not stand for one document that stays,
// whichever of the collections it is.
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
				b := storetest.New(t)
				command := append(bson.D{{Key: "create", Value: collection}}, create...)
				require.NoError(t, b.DB.RunCommand(t.Context(), command).Err())
				err := b.Store.Setup(t.Context())
				require.ErrorIs(t, err, collections.ErrUnsupported)
				require.ErrorContains(t, err, b.DB.Name()+"."+collection)
			})
		}
	}
	b := storetest.New(t)
	simple := bson.D{{Key: "create", Value: "accounts"}, {Key: "collation", Value: bson.M{"locale": "simple"}}}
	require.NoError(t, b.DB.RunCommand(t.Context(), simple).Err())
	require.NoError(t, b.Store.Setup(t.Context()))
}

// The index by which the server purges has one date as its key and nothing else: a
// document without that date is never removed.
func TestPurgeIndex(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	require.NoError(t, b.Store.Setup(t.Context()))
	specs, err := b.DB.Collection("transfers").Indexes().ListSpecifications(t.Context())
	require.NoError(t, err)
	found := false
	for _, spec := range specs {
		if spec.Name != "purge" {
			assert.Nil(t, spec.ExpireAfterSeconds, spec.Name)
			continue
		}
		found = true
		require.NotNil(t, spec.ExpireAfterSeconds)
		assert.Zero(t, *spec.ExpireAfterSeconds)
		assert.JSONEq(t, `{"purgeAt": {"$numberInt": "1"}}`, spec.KeysDocument.String())
	}
	assert.True(t, found)
}
