package poison

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/audit"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// An index of the user's can't have what an effect sets: the payment is committed, and
// stuck at once, with the reason.
// The audit has nothing else to say.
// It ends once the index is gone.
func TestIndexThatCannotHaveAnEffect(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keys   bson.D
		set    bson.D
		reason string
	}{
		"two arrays": {bson.D{{Key: "tags", Value: 1}, {Key: "items", Value: 1}}, bson.D{{Key: "items", Value: bson.A{"y"}}},
			"server error 171 CannotIndexParallelArrays: an index of the collection can't have the document"},
		"an array beside a text": {bson.D{{Key: "items", Value: 1}, {Key: "note", Value: "text"}},
			bson.D{{Key: "note", Value: "x"}, {Key: "items", Value: bson.A{"y"}}},
			"server error 201 CannotBuildIndexKeys"},
		"a hashed array": {bson.D{{Key: "items", Value: "hashed"}}, bson.D{{Key: "items", Value: bson.A{"y"}}},
			"server error 16766 CannotHashArray"},
		"no geometry": {bson.D{{Key: "where", Value: "2dsphere"}}, bson.D{{Key: "where", Value: "nowhere"}},
			"server error 16755 NoGeometry"},
		"a point out of bounds": {bson.D{{Key: "where", Value: "2d"}}, bson.D{{Key: "where", Value: bson.A{500, 500}}},
			"server error 13027 GeoPointOutOfBounds"},
		"no point": {bson.D{{Key: "where", Value: "2d"}}, bson.D{{Key: "where", Value: bson.A{1, "x"}}},
			"server error 13026 NoGeoPoint"},
		"half a point": {bson.D{{Key: "where", Value: "2d"}}, bson.D{{Key: "where", Value: bson.A{1}}},
			"server error 13068 NoGeoPoint"},
		"a list of no points": {bson.D{{Key: "where", Value: "2d"}}, bson.D{{Key: "where", Value: bson.A{"x"}}},
			"server error 16804 NoGeoPoint"},
		"a number for a name": {bson.D{{Key: "items.0", Value: 1}}, bson.D{{Key: "items", Value: bson.A{bson.D{{Key: "0", Value: 1}}}}},
			"server error 16746 AmbiguousFieldName"},
		"an unknown language": {bson.D{{Key: "note", Value: "text"}},
			bson.D{{Key: "note", Value: "x"}, {Key: "language", Value: "klingon"}}, "server error 17262 TextLanguageUnknown"},
		"a language that is no string": {bson.D{{Key: "note", Value: "text"}},
			bson.D{{Key: "note", Value: "x"}, {Key: "language", Value: 5}}, "server error 17261 TextLanguageNoString"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.NewShop(t, 100, 0).WithIndexes()
			orders := b.DB.Collection("orders")
			b.SetField("orders", "o-1", "tags", bson.A{"x"})
			index, err := orders.Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: c.keys})
			require.NoError(t, err)
			payment := bank.Payment("p", "o-1", 60)
			payment.Effects[0].Set = append(payment.Effects[0].Set, c.set...)

			limited, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			rec, err := b.Transfer(limited, payment)
			require.ErrorIs(t, err, transfer.ErrUnsettled)
			require.Equal(t, transfer.Moved, transfer.OutcomeOf(err))
			require.Equal(t, transfer.StateCommitted, rec.State)
			b.RequireStuck("p", transfer.StateCommitted, "o-1", "unwritable", 0)
			rec, err = b.Get(t.Context(), "p")
			require.NoError(t, err)
			require.Contains(t, rec.Stuck.Message, c.reason)
			require.Equal(t, []audit.Code{}, bank.CodesOf(b.MustAudit()))

			require.NoError(t, orders.Indexes().DropOne(t.Context(), index))
			require.Equal(t, 1, b.RecoverAll(bank.Orders(b.DB)...).Succeeded)
			b.RequireOrder("o-1", "paid", false)
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}

// A transfer whose metadata an index of the user's can't have is refused at once, and
// nothing is stored.
func TestIndexThatCannotHaveMetadata(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	transfers := b.DB.Collection("transfers")
	keys := bson.D{{Key: "metadata.tags", Value: 1}, {Key: "legs.account", Value: 1}}
	index, err := transfers.Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: keys})
	require.NoError(t, err)
	tagged := func(tags any) transfer.Request {
		req := bank.Move("t", "a", "b", 60)
		req.Metadata = map[string]any{"tags": tags}
		return req
	}
	limited, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = b.Transfer(limited, tagged([]string{"x", "y"}))
	require.ErrorContains(t, err, "server error 171 CannotIndexParallelArrays: an index of the collection can't have the document")
	require.Equal(t, transfer.NothingStored, transfer.OutcomeOf(err))
	require.False(t, b.RawTransfer("t").Found)
	_, err = b.Submit(limited, tagged([]string{"x", "y"}))
	require.Equal(t, transfer.NothingStored, transfer.OutcomeOf(err))
	b.CheckBooks(bank.Balances(100, 0))

	require.NoError(t, transfers.Indexes().DropOne(t.Context(), index))
	_, err = b.Transfer(t.Context(), tagged([]string{"x", "y"}))
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(100, 0))
}
