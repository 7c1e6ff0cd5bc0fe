package queries_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/queries"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// elsewhere returns the bank's database through another client. To a store it is a
// database of another cluster.
func elsewhere(b *storetest.Bank) *mongo.Database {
	b.T.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(mongotest.URI()))
	require.NoError(b.T, err)
	b.T.Cleanup(func() { require.NoError(b.T, client.Disconnect(b.T.Context())) })
	return client.Database(b.DB.Name())
}

// scattered returns rooms whose collections are on four clusters.
func scattered(b *storetest.Bank) *storetest.Rooms {
	b.T.Helper()
	x, y, z := elsewhere(b), elsewhere(b), elsewhere(b)
	s, err := storetest.NewRooms(storetest.Config{
		Transfers: b.DB.Collection("transfers"),
		Ledgers: map[string]*mongo.Collection{
			"": b.DB.Collection("accounts"), "near": b.DB.Collection("near"), "x": x.Collection("x1"), "more x": x.Collection("x2"),
			"y\", \"y": y.Collection("y"), "z": z.Collection("orders"),
		},
		Documents: map[string]*mongo.Collection{
			"notes": b.DB.Collection("notes"), "orders": b.DB.Collection("orders"), "x": x.Collection("x3"),
		},
		Fields: storetest.StandardFields(),
		Now:    time.Now,
	})
	require.NoError(b.T, err)
	return s
}

// needing returns a transfer between the given ledgers that changes the given documents.
func needing(ledgers, documents []string) document.Transfer {
	t := document.Transfer{ID: strings.Join(ledgers, "+") + "/" + strings.Join(documents, "+")}
	for _, name := range ledgers {
		t.Legs = append(t.Legs, document.Leg{Ledger: name})
	}
	for _, name := range documents {
		t.Effects = append(t.Effects, document.Effect{Documents: name})
	}
	return t
}

// A transfer's route is the set of clusters that it needs beside that of the transfers.
// It does not depend on which collections it touches there, or in which order.
func TestRouteOf(t *testing.T) {
	t.Parallel()
	s := scattered(storetest.New(t))
	on := func(ledgers, documents []string) queries.Route { return s.RouteOf(needing(ledgers, documents)) }
	assert.Equal(t, queries.Route(""), on([]string{"", "near"}, []string{"notes"}))
	assert.Equal(t, queries.Route(""), on([]string{"", "unknown"}, []string{"unknown"}))
	assert.Equal(t, on([]string{"x"}, nil), on([]string{"more x", "x", ""}, nil))
	assert.Equal(t, on([]string{"x"}, nil), on(nil, []string{"x", "notes"}))
	assert.Equal(t, on([]string{"x", "y\", \"y"}, nil), on([]string{"y\", \"y", "more x"}, nil))
	assert.Equal(t, on([]string{"z"}, nil), on(nil, []string{"orders"}), "it may be one collection with that of the ledger z")
	assert.Equal(t, `the clusters of documents "x", ledger "z"`, on([]string{"z", "x"}, nil).String())
	assert.Equal(t, `the cluster of the transfers`, on([]string{""}, nil).String())
	var different []queries.Route
	for _, r := range []queries.Route{
		on(nil, nil), on([]string{"x"}, nil), on([]string{"y\", \"y"}, nil), on([]string{"z"}, nil), on([]string{"z", "x"}, nil),
	} {
		assert.NotContains(t, different, r)
		different = append(different, r)
	}
}

// Each search for work finds all transfers that are on none of the given routes, and no
// others.
func TestSearchWithoutRoutes(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	s := scattered(b)
	byID := map[string]document.Transfer{}
	var routes []queries.Route
	for _, ledgers := range subsets("", "near", "x", "more x", "y\", \"y", "z", "unknown") {
		for _, documents := range subsets("notes", "orders", "x") {
			transfer := needing(ledgers, documents)
			byID[transfer.ID] = transfer
			if r := s.RouteOf(transfer); !slices.Contains(routes, r) {
				routes = append(routes, r)
			}
		}
	}
	searches := map[string]struct {
		shows  bson.M
		search func(without ...queries.Route) []string
	}{
		"submitted": {bson.M{"state": "Initiated"}, func(without ...queries.Route) []string {
			return idsOf(b, s.Initiated(t.Context(), 0, without...))
		}},
		"stalled": {bson.M{"state": "Committed", "epoch": int64(1)}, func(without ...queries.Route) []string {
			return idsOf(b, s.Stalled(t.Context(), 0, without...))
		}},
		"expired": {
			bson.M{"state": "Preparing", "epoch": int64(1), "hold": true, "expiresAt": time.Unix(1, 0)},
			func(without ...queries.Route) []string { return idsOf(b, s.Expired(t.Context(), without...)) },
		},
	}
	require.Len(t, routes, 8)
	for name, row := range searches {
		var documents []any
		for _, transfer := range byID {
			documents = append(documents, stored(transfer, row.shows))
		}
		_, err := b.DB.Collection("transfers").DeleteMany(t.Context(), bson.D{})
		require.NoError(t, err)
		_, err = b.DB.Collection("transfers").InsertMany(t.Context(), documents)
		require.NoError(t, err)
		for _, without := range [][]queries.Route{{}, {""}, routes[:1], routes[1:2], routes[3:6], routes} {
			var want []string
			for id, transfer := range byID {
				if !slices.Contains(without, s.RouteOf(transfer)) {
					want = append(want, id)
				}
			}
			assert.ElementsMatch(t, want, row.search(without...), "%s, without %q", name, without)
		}
	}
}

// stored returns the part of a transfer's document that the searches read.
func stored(transfer document.Transfer, shows bson.M) bson.M {
	document := bson.M{"_id": transfer.ID, "open": true, "epoch": int64(0), "lastModified": time.Unix(1, 0), "createdAt": time.Unix(1, 0)}
	legs, effects := bson.A{}, bson.A{}
	for _, leg := range transfer.Legs {
		legs = append(legs, bson.M{"ledger": leg.Ledger, "amount": int64(1)})
	}
	for _, e := range transfer.Effects {
		effects = append(effects, bson.M{"documents": e.Documents})
	}
	document["legs"] = legs
	if len(effects) > 0 {
		document["effects"] = effects
	}
	for field, value := range shows {
		document[field] = value
	}
	return document
}

// idsOf returns the IDs of the transfers that a search finds.
func idsOf(b *storetest.Bank, found func(yield func(document.Transfer, error) bool)) (ids []string) {
	b.T.Helper()
	for transfer, err := range found {
		require.NoError(b.T, err)
		ids = append(ids, transfer.ID)
	}
	return ids
}

func subsets(names ...string) [][]string {
	all := [][]string{nil}
	for _, name := range names {
		for _, s := range all {
			all = append(all, append(slices.Clone(s), name))
		}
	}
	return all
}

// A search for recent work finds what could not be found before, and examines nothing
// else, however much there is.
func TestSearchForRecent(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	require.NoError(t, b.Store.Setup(t.Context()))
	for i := range 20 {
		initiated(b, fmt.Sprint("due long ago", i), time.Now().Add(-time.Hour))
		initiated(b, fmt.Sprint("old", i), time.Time{})
		b.Change("transfers", fmt.Sprint("old", i), bson.M{"$set": bson.M{"createdAt": time.Now().Add(-time.Hour)}})
	}
	initiated(b, "due", time.Now().Add(-time.Second))
	initiated(b, "in an hour", time.Now().Add(time.Hour))
	initiated(b, "new", time.Time{})
	b.Log.Take()
	assert.Equal(t, []string{"due", "new"}, idsOf(b, b.Store.Initiated(t.Context(), 10*time.Minute)))
	for _, find := range b.Log.Take() {
		assert.LessOrEqual(t, b.Examined(find), int64(3), "%s", find.Body)
		assert.NotContains(t, b.Explain(find), `"stage": "SORT"`)
	}
	assert.Equal(t, protocol.Initiated, protocol.State(b.Raw("transfers", "new").Lookup("state").StringValue()))
}
