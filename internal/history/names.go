package history

import (
	"context"
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
)

// names distinguish the legs on the accounts of a ledger from others. A leg names its
// collection by a ledger and a namespace, and what these stand for is not the same
// everywhere: one process knows a collection as eu, another one as europe, and a third
// one has another collection as eu. The records of identities say which is which: see
// package deployment.
type names struct {
	// others are the namespaces by the other names under which the collection is
	// recorded.
	others map[string]bson.A
	// foreign are the namespaces for which the ledger's own name stands for another
	// collection. Under the own name all others count, as there may be no record of them:
	// the first releases wrote none.
	foreign bson.A
}

// readNames reads the names of the ledger from the records, with the given read concern.
//
// A record is stored for good before the first transfer under its name. So the records
// have to be read as of the time of the transfers, and after the account: then they name
// every transfer that is in the account, or was committed before the end of the past.
func (h *History) readNames(ctx context.Context, concern *readconcern.ReadConcern) error {
	records := wire.ForReads(collections.NoteCollection(h.catalog.Transfers), concern)
	ofLedgers := bson.D{{Key: "_id.ledger", Value: bson.D{{Key: "$exists", Value: true}}}}
	var found []struct {
		ID struct {
			Ledger    string `bson:"ledger"`
			Namespace string `bson:"namespace"`
		} `bson:"_id"`
		Identity string `bson:"identity"`
	}
	if err := wire.FindAll(ctx, records, ofLedgers, &found); err != nil || len(found) == 0 {
		return err
	}
	h.names = names{others: map[string]bson.A{}, foreign: bson.A{}}
	identity := ""
	for _, record := range found {
		if record.ID.Ledger == h.ledger.Name && record.ID.Namespace == h.ledger.Namespace {
			identity = record.Identity
		}
	}
	if identity == "" {
		var err error
		if identity, err = h.readIdentity(ctx); err != nil || identity == "" {
			return err
		}
	}
	for _, record := range found {
		name, namespace := record.ID.Ledger, record.ID.Namespace
		switch own := name == h.ledger.Name; {
		case own && record.Identity != identity:
			h.names.foreign = append(h.names.foreign, namespace)
		case !own && record.Identity == identity:
			h.names.others[name] = append(h.names.others[name], namespace)
		}
	}
	return nil
}

// readIdentity returns the identity that lies beside the ledger, which has no record
// under its name here. There is none if it was lost: then nothing but the name is known.
func (h *History) readIdentity(ctx context.Context) (string, error) {
	beside := wire.ForReads(collections.NoteCollection(h.ledger.Commands), readconcern.Linearizable())
	stored, err := wire.FindOne(wire.Detached(ctx), beside, bson.D{{Key: "_id", Value: collections.IdentityID}})
	if wire.NotFound(err) {
		return "", nil
	}
	identity, _ := stored.Lookup("identity").StringValueOK()
	return identity, err
}

// leg is the condition for a leg on the account. Its conditions on the namespace have a
// form for which the server looks for no other index.
func (h *History) leg() bson.D {
	account, own := bson.E{Key: "account", Value: h.account}, h.ledger.Name
	if len(h.names.others) == 0 && len(h.names.foreign) == 0 {
		return bson.D{account, {Key: "ledger", Value: own}}
	}
	not := func(ledger, operator string, namespaces bson.A) bson.D {
		return bson.D{{Key: "ledger", Value: ledger}, {Key: "ns", Value: bson.D{{Key: operator, Value: namespaces}}}}
	}
	ledgers, excluded := bson.A{own}, bson.A{not(own, "$in", h.names.foreign)}
	for _, name := range slices.Sorted(maps.Keys(h.names.others)) {
		ledgers, excluded = append(ledgers, name), append(excluded, not(name, "$nin", h.names.others[name]))
	}
	return bson.D{
		account, {Key: "ledger", Value: bson.D{{Key: "$in", Value: ledgers}}}, {Key: "$nor", Value: excluded},
	}
}

// isOwn reports whether a leg is on the account, as the condition of leg does.
func (h *History) isOwn(leg document.Leg) bool {
	if leg.Account != h.account {
		return false
	}
	if leg.Ledger == h.ledger.Name {
		return !slices.Contains(h.names.foreign, any(leg.Namespace))
	}
	return slices.Contains(h.names.others[leg.Ledger], any(leg.Namespace))
}
