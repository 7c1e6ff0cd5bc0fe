package queries

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Fingerprint stands for a transfer as it is stored: what changes when anything happens to it.
// "" is that of none.
type Fingerprint string

// markFields returns the fields of a transfer that a mark is made of.
func markFields() []string {
	return []string{"state", "epoch", "held", "lastModified", "expiresAt", "stuckAt"}
}

// markOf makes the mark of a document, whole or as [Store.Glance] asks for it.
func markOf(document bson.Raw) Fingerprint {
	mark := make([]byte, 0, 128)
	for _, field := range markFields() {
		value := document.Lookup(field)
		mark = append(mark, byte(value.Type))
		mark = append(mark, value.Value...)
	}
	return Fingerprint(mark)
}

// Snapshot is one of several transfers as a read has found it.
type Snapshot struct {
	Transfer    document.Transfer
	Fingerprint Fingerprint
	Err         error // ErrUnreadable
}

// ReadTransfers is GetTransfer of several transfers at once; those that don't exist are
// left out. A lone one is found in the way that is the quickest for the server.
func (s *Queries) ReadTransfers(ctx context.Context, ids []string) (map[string]Snapshot, error) {
	found := make(map[string]Snapshot, len(ids))
	err := wire.EachByID(ctx, s.Majority, ids, options.Find(), func(id string, doc bson.Raw) {
		t, err := document.DecodeTransfer(doc)
		found[id] = Snapshot{Transfer: t, Fingerprint: markOf(doc), Err: err}
	})
	return found, err
}

// Fingerprints returns the marks of transfers as a majority has them stored; those that don't
// exist are left out.
func (s *Queries) Fingerprints(ctx context.Context, ids []string) (map[string]Fingerprint, error) {
	found := make(map[string]Fingerprint, len(ids))
	fields := bson.D{}
	for _, field := range markFields() {
		fields = append(fields, bson.E{Key: field, Value: 1})
	}
	find := options.Find().SetProjection(fields)
	err := wire.EachByID(ctx, s.Majority, ids, find, func(id string, document bson.Raw) {
		found[id] = markOf(document)
	})
	return found, err
}

// WhichExist returns which of several transfers exist, by a deciding read.
func (s *Queries) WhichExist(ctx context.Context, ids []string) (map[string]bool, error) {
	found := make(map[string]bool, len(ids))
	find := options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}})
	err := wire.EachByID(ctx, s.Linearizable, ids, find, func(id string, _ bson.Raw) { found[id] = true })
	return found, err
}
