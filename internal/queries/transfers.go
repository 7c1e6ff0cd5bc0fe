package queries

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Fingerprint changes whenever anything happens to a stored transfer.
// It is "" for a transfer that does not exist.
type Fingerprint string

// fingerprintFields returns the fields of a transfer that a fingerprint is made of.
func fingerprintFields() []string {
	return []string{"state", "epoch", "held", "lastModified", "expiresAt", "stuckAt"}
}

// fingerprintOf makes the fingerprint of a document that has at least those fields.
func fingerprintOf(stored bson.Raw) Fingerprint {
	made := make([]byte, 0, 128)
	for _, field := range fingerprintFields() {
		value := stored.Lookup(field)
		made = append(made, byte(value.Type))
		made = append(made, value.Value...)
	}
	return Fingerprint(made)
}

// Snapshot is one of several transfers as a read has found it.
type Snapshot struct {
	// Transfer is the transfer as far as it can be decoded.
	Transfer document.Transfer
	// Fingerprint is that of the stored document.
	Fingerprint Fingerprint
	// Err is document.ErrUnreadable where the transfer can't be decoded.
	Err error
}

// ReadTransfers is ReadTransfer for several transfers at once. It leaves out those that
// don't exist. A single one is read in the way that costs the server least.
func (q *Queries) ReadTransfers(ctx context.Context, ids []string) (map[string]Snapshot, error) {
	found := make(map[string]Snapshot, len(ids))
	err := wire.EachByID(ctx, q.catalog.Majority, ids, options.Find(), func(id string, stored bson.Raw) {
		t, err := document.DecodeTransfer(stored)
		found[id] = Snapshot{Transfer: t, Fingerprint: fingerprintOf(stored), Err: err}
	})
	return found, err
}

// Fingerprints returns the fingerprints of transfers as a majority has stored them. It
// leaves out those that don't exist.
func (q *Queries) Fingerprints(ctx context.Context, ids []string) (map[string]Fingerprint, error) {
	found := make(map[string]Fingerprint, len(ids))
	fields := bson.D{}
	for _, field := range fingerprintFields() {
		fields = append(fields, bson.E{Key: field, Value: 1})
	}
	find := options.Find().SetProjection(fields)
	err := wire.EachByID(ctx, q.catalog.Majority, ids, find, func(id string, stored bson.Raw) {
		found[id] = fingerprintOf(stored)
	})
	return found, err
}

// WhichExist returns which of several transfers exist, by a linearizable read.
func (q *Queries) WhichExist(ctx context.Context, ids []string) (map[string]bool, error) {
	found := make(map[string]bool, len(ids))
	find := options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}})
	err := wire.EachByID(ctx, q.catalog.Linearizable, ids, find, func(id string, _ bson.Raw) { found[id] = true })
	return found, err
}
