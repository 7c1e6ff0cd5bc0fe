package mongostore

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
)

// elsewhere returns the bank's database as another cluster, as far as a store can tell.
func (b *bank) elsewhere() *mongo.Database {
	b.t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(mongotest.URI()))
	require.NoError(b.t, err)
	b.t.Cleanup(func() { require.NoError(b.t, client.Disconnect(b.t.Context())) })
	return client.Database(b.db.Name())
}

// scattered returns a store with places on four clusters.
func (b *bank) scattered() *rooms {
	b.t.Helper()
	x, y, z := b.elsewhere(), b.elsewhere(), b.elsewhere()
	s, err := newRooms(config{
		Transfers: b.db.Collection("transfers"),
		Ledgers: map[string]*mongo.Collection{
			"": b.db.Collection("accounts"), "near": b.db.Collection("near"), "x": x.Collection("x1"), "more x": x.Collection("x2"),
			"y\", \"y": y.Collection("y"), "z": z.Collection("orders"),
		},
		Documents: map[string]*mongo.Collection{
			"notes": b.db.Collection("notes"), "orders": b.db.Collection("orders"), "x": x.Collection("x3"),
		},
		Fields: standardFields(),
		Now:    time.Now,
	})
	require.NoError(b.t, err)
	return s
}

// needing returns a transfer between ledgers that changes documents.
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

// A transfer's route is the set of clusters that it needs beside that of the transfers,
// whatever it touches there, and in whatever order.
func TestRouteOf(t *testing.T) {
	t.Parallel()
	s := newBank(t).scattered()
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

// A search finds what takes none of the given routes, all of it and nothing else, in each
// of the searches for work.
func TestSearchWithoutRoutes(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	s := b.scattered()
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
			return b.idsOf(s.Initiated(t.Context(), 0, without...))
		}},
		"stalled": {bson.M{"state": "Committed", "epoch": int64(1)}, func(without ...queries.Route) []string {
			return b.idsOf(s.Stalled(t.Context(), 0, without...))
		}},
		"expired": {bson.M{"state": "Preparing", "epoch": int64(1), "hold": true, "expiresAt": time.Unix(1, 0)}, func(without ...queries.Route) []string {
			return b.idsOf(s.Expired(t.Context(), without...))
		}},
	}
	require.Len(t, routes, 8)
	for name, row := range searches {
		var documents []any
		for _, transfer := range byID {
			documents = append(documents, stored(transfer, row.shows))
		}
		_, err := b.db.Collection("transfers").DeleteMany(t.Context(), bson.D{})
		require.NoError(t, err)
		_, err = b.db.Collection("transfers").InsertMany(t.Context(), documents)
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

// stored returns what a search looks at of a transfer.
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

// idsOf returns the IDs of what a search finds.
func (b *bank) idsOf(found func(yield func(document.Transfer, error) bool)) (ids []string) {
	b.t.Helper()
	for transfer, err := range found {
		require.NoError(b.t, err)
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

// A search for what is new finds what could not be found before, and looks at nothing
// else, however much that is.
func TestSearchForRecent(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	require.NoError(t, b.store.Setup(t.Context()))
	for i := range 20 {
		b.initiated(fmt.Sprint("due long ago", i), time.Now().Add(-time.Hour))
		b.initiated(fmt.Sprint("old", i), time.Time{})
		b.change("transfers", fmt.Sprint("old", i), bson.M{"$set": bson.M{"createdAt": time.Now().Add(-time.Hour)}})
	}
	b.initiated("due", time.Now().Add(-time.Second))
	b.initiated("in an hour", time.Now().Add(time.Hour))
	b.initiated("new", time.Time{})
	b.log.take()
	assert.Equal(t, []string{"due", "new"}, b.idsOf(b.store.Initiated(t.Context(), 10*time.Minute)))
	for _, find := range b.log.take() {
		assert.LessOrEqual(t, b.examined(find), int64(3), "%s", find.body)
		assert.NotContains(t, b.explain(find), `"stage": "SORT"`)
	}
	assert.Equal(t, protocol.Initiated, protocol.State(b.raw("transfers", "new").Lookup("state").StringValue()))
}
