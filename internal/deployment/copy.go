package deployment

import (
	"context"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/wire"
)

// recordsRead is how many records about one namespace are read.
const recordsRead = 64

// refuseCopy refuses a collection that belongs to the transfers of which these are a
// copy. A copy has the identities of the original, so only the namespace in the
// collection's note tells them apart:
//
//  1. A deployment is copied to another database of the same server. The copy's records
//     name the accounts of the original, and these have the recorded identity.
//  2. A process is configured with the transfers of the copy, and the accounts of the
//     original. It voids a hold, and the money is given back.
//  3. The original posts its hold. It finds no marker, and takes that as the sign that
//     the money was moved already: Success, and the payee gets nothing.
//
// A note names other transfers also where the transfers were renamed, or moved to another
// server. Then they are no longer where the note says. And where accounts are copied with
// the transfers, the original's records don't name them.
//
// A user without the right to read the other notes is not refused.
func (d *Deployment) refuseCopy(ctx context.Context, c *collections.Collection, stored beside) error {
	own := wire.NamespaceOf(d.catalog.Transfers)
	named := stored.note.transfers
	database, collection, ok := strings.Cut(named, ".")
	if !ok || named == own || stored.identity == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	client := d.catalog.Transfers.Database().Client()
	notes := wire.ForCommands(collections.NoteCollection(client.Database(database).Collection(collection)))
	found, err := wire.Sample(ctx, notes, bson.D{{Key: "$or", Value: bson.A{
		bson.D{{Key: "_id", Value: collections.NoteID}},
		bson.D{{Key: "_id.namespace", Value: c.Namespace}},
	}}}, recordsRead)
	if wire.Denied(err) != nil || wire.CommandCode(err) == wire.CodeInvalidNamespace {
		return nil
	}
	if err != nil {
		return err
	}
	var sameTransfers, recorded bool
	for _, beside := range found {
		if id, isText := beside.Lookup("_id").StringValueOK(); isText {
			sameTransfers = id == collections.NoteID && decodeNote(beside).deployment == d.transfersIdentity()
		} else {
			recorded = recorded || identityIn(beside) == stored.identity
		}
	}
	if !sameTransfers || !recorded {
		return nil
	}
	return fmt.Errorf("%w: %s belongs to the transfers collection %s, and this one, %s, is a copy of that: "+
		"give this coordinator the copy's own collections; "+
		"if the transfers were moved on purpose, see Coordinator.Adopt", collections.ErrUnsupported, c.Namespace, named, own)
}
