package bank

import (
	"errors"
	"strings"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
)

// Change changes a document behind the library's back.
func (b *Bank) Change(collection string, id any, update bson.M) {
	b.T.Helper()
	result, err := b.DB.Collection(collection).UpdateOne(b.T.Context(), bson.M{"_id": id}, update)
	require.NoError(b.T, err)
	require.EqualValues(b.T, 1, result.MatchedCount, "there is no %v in %s", id, collection)
}

// SetField sets a field of a document behind the library's back.
func (b *Bank) SetField(collection string, id any, field string, value any) {
	b.T.Helper()
	b.Change(collection, id, bson.M{"$set": bson.M{field: value}})
}

// Insert stores documents behind the library's back.
func (b *Bank) Insert(collection string, documents ...any) {
	b.T.Helper()
	_, err := b.DB.Collection(collection).InsertMany(b.T.Context(), documents)
	require.NoError(b.T, err)
}

// Remove removes documents behind the library's back.
func (b *Bank) Remove(collection string, ids ...string) {
	b.T.Helper()
	_, err := b.DB.Collection(collection).DeleteMany(b.T.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}})
	require.NoError(b.T, err)
}

// Raw returns the documents of a collection without the empty pending maps that markers
// leave behind.
func (b *Bank) Raw(collection string) []bson.M {
	b.T.Helper()
	cursor, err := b.DB.Collection(collection).Find(b.T.Context(), bson.D{})
	require.NoError(b.T, err)
	var documents []bson.M
	require.NoError(b.T, cursor.All(b.T.Context(), &documents))
	for _, d := range documents {
		if pending, ok := d["pending"].(bson.D); ok && len(pending) == 0 {
			delete(d, "pending")
		}
	}
	return documents
}

// Contents returns all documents of the bank's database, by collection, but for the notes
// that processes live: they are written at any time.
func (b *Bank) Contents() map[string][]string {
	b.T.Helper()
	names, err := b.DB.ListCollectionNames(b.T.Context(), bson.D{})
	require.NoError(b.T, err)
	all := map[string][]string{}
	for _, name := range names {
		if strings.HasSuffix(name, ".processes") {
			continue
		}
		cursor, err := b.DB.Collection(name).Find(b.T.Context(), bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
		require.NoError(b.T, err)
		var documents []bson.Raw
		require.NoError(b.T, cursor.All(b.T.Context(), &documents))
		all[name] = []string{}
		for _, d := range documents {
			all[name] = append(all[name], d.String())
		}
	}
	return all
}

// RawTransfer is what the database has of a transfer.
type RawTransfer struct {
	// Found is false if there is no such transfer.
	Found bool
	// State is the stored state.
	State string
	epoch int64
}

// RawTransfer reads a transfer with the driver, as any later read of a majority will find
// it at least.
func (b *Bank) RawTransfer(id string) RawTransfer {
	b.T.Helper()
	var stored struct {
		State string `bson:"state"`
		Epoch int64  `bson:"epoch"`
	}
	transfers := b.DB.Collection("transfers", options.Collection().SetReadConcern(readconcern.Majority()))
	err := transfers.FindOne(b.T.Context(), bson.D{{Key: "_id", Value: id}}).Decode(&stored)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return RawTransfer{}
	}
	require.NoError(b.T, err)
	return RawTransfer{true, stored.State, stored.Epoch}
}
