package config

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// indexed returns a function that creates an index of the user's.
func indexed(collection string, keys bson.D, o *options.IndexOptionsBuilder) func(*testing.T, *mongo.Database) {
	return func(t *testing.T, db *mongo.Database) {
		t.Helper()
		_, err := db.Collection(collection).Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: keys, Options: o})
		require.NoError(t, err)
	}
}

// created returns a function that creates a collection with the user's options.
func created(collection string, how bson.D) func(*testing.T, *mongo.Database) {
	return func(t *testing.T, db *mongo.Database) {
		t.Helper()
		require.NoError(t, db.RunCommand(t.Context(), append(bson.D{{Key: "create", Value: collection}}, how...)).Err())
	}
}

func key(names ...string) bson.D {
	var keys bson.D
	for _, name := range names {
		keys = append(keys, bson.E{Key: name, Value: 1})
	}
	return keys
}

func hourly() *options.IndexOptionsBuilder { return options.Index().SetExpireAfterSeconds(3600) }

func unique() *options.IndexOptionsBuilder { return options.Index().SetUnique(true) }

func sparse() *options.IndexOptionsBuilder { return unique().SetSparse(true) }

// partial returns the options of a unique index with a condition.
func partial(condition bson.D) *options.IndexOptionsBuilder {
	return unique().SetPartialFilterExpression(condition)
}

// Some collections are harmful: the server removes money from them by itself, two IDs are
// one account in them, or an index refuses what a transfer writes.
// Every verb refuses them before anything moves: Setup, Check, and the first use in each
// process.
func TestHarmfulCollectionsAreRefused(t *testing.T) {
	t.Parallel()
	exists := bson.D{{Key: "$exists", Value: true}}
	for name, plant := range map[string]func(*testing.T, *mongo.Database){
		"transfers that expire":                 indexed("transfers", key("createdAt"), hourly()),
		"transfers that expire as they are due": indexed("transfers", key("notBefore"), options.Index().SetExpireAfterSeconds(0)),
		"transfers that expire by metadata":     indexed("transfers", key("metadata.until"), hourly()),
		"accounts that expire":                  indexed("accounts", key("createdAt"), hourly()),
		"one transfer per state":                indexed("transfers", key("state"), unique()),
		"one transfer per account":              indexed("transfers", key("legs.account"), sparse()),
		"one transfer without metadata":         indexed("transfers", key("metadata.order"), unique()),
		"one success per order":                 indexed("transfers", key("metadata.order"), partial(bson.D{{Key: "state", Value: "Success"}})),
		"one order, and null": indexed("transfers", key("metadata.order"),
			partial(bson.D{{Key: "metadata.order", Value: nil}})),
		"one account per balance":                    indexed("accounts", key("balance"), unique()),
		"one account without markers":                indexed("accounts", key("owner", "pending"), unique()),
		"one account per currency":                   indexed("accounts", key("currency"), sparse()),
		"one owner who has any money":                indexed("accounts", key("owner"), partial(bson.D{{Key: "balance", Value: exists}})),
		"one account per balance in a region of IDs": indexed("accounts", key("_id.region", "balance"), unique()),
		"one account per balance of IDs in any case": indexed("accounts", key("_id", "balance"),
			unique().SetCollation(&options.Collation{Locale: "en", Strength: 2})),
		"one transfer in a region of IDs": indexed("transfers", key("_id.region"), unique()),
		"capped transfers":                created("transfers", bson.D{{Key: "capped", Value: true}, {Key: "size", Value: 1 << 20}}),
		"capped accounts":                 created("accounts", bson.D{{Key: "capped", Value: true}, {Key: "size", Value: 1 << 20}}),
		"a view":                          created("accounts", bson.D{{Key: "viewOn", Value: "others"}, {Key: "pipeline", Value: bson.A{}}}),
		"a time series":                   created("transfers", bson.D{{Key: "timeseries", Value: bson.M{"timeField": "at"}}}),
		"a collation":                     created("accounts", bson.D{{Key: "collation", Value: bson.M{"locale": "en", "strength": 2}}}),
		"a collation of the transfers":    created("transfers", bson.D{{Key: "collation", Value: bson.M{"locale": "de"}}}),
		"clustered transfers that expire": created("transfers", bson.D{
			{Key: "clusteredIndex", Value: bson.D{{Key: "key", Value: key("_id")}, {Key: "unique", Value: true}}},
			{Key: "expireAfterSeconds", Value: int64(3600)},
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.NewBare(t)
			plant(t, b.DB)
			before := b.Contents()
			all := fitVerbs(b.NewCoordinator(b.DB))
			delete(all, "Audit") // changes nothing
			delete(all, "BalanceAt")
			requireUnfit(t, all, "")
			require.Equal(t, before, b.Contents())
		})
	}
}

// An index that collMod is to make unique refuses credits already.
// A server before 6.0 doesn't know the option, and leaves the index as it is.
func TestIndexThatIsToBecomeUnique(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	indexed("accounts", key("kind", "balance"), options.Index())(t, b.DB)
	require.NoError(t, b.NewCoordinator(b.DB).Setup(t.Context()))
	index := bson.D{{Key: "keyPattern", Value: key("kind", "balance")}, {Key: "prepareUnique", Value: true}}
	err := b.DB.RunCommand(t.Context(), bson.D{{Key: "collMod", Value: "accounts"}, {Key: "index", Value: index}}).Err()
	c := b.NewCoordinator(b.DB)
	if err != nil {
		require.ErrorContains(t, err, "prepareUnique", "the server doesn't know it")
		require.NoError(t, c.Setup(t.Context()))
		return
	}
	for _, err := range []error{c.Setup(t.Context()), c.Check(t.Context())} {
		require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
		require.ErrorContains(t, err, "kind_1_balance_1")
		require.ErrorContains(t, err, "which every transfer changes")
	}
}

// An index of the user's that can do no harm is left alone, and money moves beside it.
func TestHarmlessIndexes(t *testing.T) {
	t.Parallel()
	text := bson.D{{Key: "metadata.order", Value: bson.D{{Key: "$type", Value: "string"}}}}
	b := bank.NewBare(t)
	for _, plant := range []func(*testing.T, *mongo.Database){
		indexed("transfers", key("metadata.order", "metadata.line"), sparse()),
		indexed("transfers", key("metadata.invoice"), partial(bson.D{{Key: "metadata.invoice", Value: bson.D{{Key: "$exists", Value: true}}}})),
		indexed("transfers", key("metadata.order"), partial(bson.D{{Key: "$and", Value: bson.A{text}}})),
		indexed("transfers", key("state", "_id"), unique()),
		indexed("accounts", key("balance", "_id"), unique()),
		indexed("accounts", key("_id.region"), sparse()),
		indexed("transfers", key("createdAt"), options.Index().SetName("my own")),
		indexed("accounts", key("owner", "currency"), sparse()),
		indexed("accounts", key("email"), sparse()),
		indexed("accounts", key("balance"), options.Index()),
		indexed("orders", key("paidAt"), options.Index()),
	} {
		plant(t, b.DB)
	}
	b.Coordinator = b.NewCoordinator(b.DB, bank.Orders(b.DB)...)
	require.NoError(t, b.Setup(t.Context()))
	require.NoError(t, b.Check(t.Context()))
	b.OpenAccounts([]int64{100, 0, 10})
	b.Insert("orders", bank.Order("o-1"))
	_, err := b.Transfer(t.Context(), bank.Payment("t", "o-1", 60))
	require.NoError(t, err)
	for n := range 3 {
		b.MustMove(string(rune('u'+n)), 1)
	}
	b.CheckBooks(bank.Balances(100, 0, 10))
}

// The server would remove documents while they are reserved, whatever the condition of
// the index: it looks at that before it removes one, and not once more as it does.
func TestDocumentsThatExpire(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]*options.IndexOptionsBuilder{
		"all": hourly(), "those without a marker": hourly().SetPartialFilterExpression(bson.D{{Key: "pending", Value: bson.D{}}}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0)
			indexed("orders", key("paidAt"), o)(t, b.DB)
			b.Insert("orders", bank.Order("o"))
			before := b.Contents()
			c := b.NewCoordinator(b.DB, bank.Orders(b.DB)...)
			pay := func(ctx context.Context) error { return bank.ErrorOf(c.Transfer(ctx, bank.Payment("t", "o", 60))) }
			requireUnfit(t, map[string]func(context.Context) error{"Setup": c.Setup, "Check": c.Check, "Transfer": pay},
				`delete those whose field "pending" is missing or empty`)
			require.Equal(t, before, b.Contents())
			require.NoError(t, b.DB.Collection("orders").Indexes().DropOne(t.Context(), "paidAt_1"))
			require.NoError(t, c.Setup(t.Context()))
			require.NoError(t, pay(t.Context()))
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}

// A collection that is sharded by another key than _id, or was resharded since Setup, is
// refused at its first use.
func TestShardedAnew(t *testing.T) {
	t.Setenv("MONGODB_URI", "") // a server of its own, because the catalog is shared
	server := bank.StartServer(t)
	b := bankOn(t, server)
	require.NoError(t, b.Setup(t.Context()))
	b.OpenAccounts([]int64{100, 0})
	catalog := b.DB.Client().Database("config").Collection("collections")
	entry := bson.D{{Key: "_id", Value: b.DB.Name() + ".accounts"}, {Key: "key", Value: bson.D{{Key: "_id", Value: "hashed"}}}}
	_, err := catalog.InsertOne(t.Context(), entry)
	require.NoError(t, err)
	require.NoError(t, b.NewCoordinator(b.DB).Check(t.Context()))
	anew := bson.D{{Key: "$set", Value: bson.D{{Key: "key", Value: bson.D{{Key: "region", Value: 1}}}}}}
	_, err = catalog.UpdateByID(t.Context(), b.DB.Name()+".accounts", anew)
	require.NoError(t, err)
	for verb, call := range fitVerbs(b.NewCoordinator(b.DB)) {
		if verb == "Audit" || verb == "BalanceAt" {
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		err := call(ctx)
		cancel()
		require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment, verb)
		require.ErrorContains(t, err, "sharded by", verb)
	}
	require.ErrorIs(t, b.Check(t.Context()), transfer.ErrUnsupportedDeployment, "also where it was fit before")
	require.ErrorIs(t, b.Setup(t.Context()), transfer.ErrUnsupportedDeployment)
	b.CheckBooks(bank.Balances(100, 0))
}

// bankOn returns a bank on a server of its own.
func bankOn(t *testing.T, server interface{ URI() string }) *bank.Bank {
	t.Helper()
	return bank.Over(t, bank.Client(t, server.URI()).Database("bank"))
}
