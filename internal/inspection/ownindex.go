package inspection

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/wire"
)

// ownIndexes returns the library's indexes of the transfers. Accounts have none: they are
// only found by _id. A transfer is in as few of them as possible, under keys that rarely
// change: to keep one index costs each transfer as much as to write another document.
//
// Where the deployment has events, there is one more, of what is not delivered.
func ownIndexes(events bool) []mongo.IndexModel {
	where := func(name string, filter bson.D) *options.IndexOptionsBuilder {
		return options.Index().SetName(name).SetPartialFilterExpression(filter)
	}
	exists := bson.D{{Key: "$exists", Value: true}}
	indexes := []mongo.IndexModel{
		{ // unfinished work except holds: first unclaimed transfers, and of these the ones that can run at once
			Keys: bson.D{
				{Key: "hold", Value: 1}, {Key: "epoch", Value: 1}, {Key: "notBefore", Value: 1}, {Key: "createdAt", Value: 1},
			},
			Options: where("unfinished", bson.D{{Key: "open", Value: true}}),
		},
		{ // unfinished holds: those that are not decided, by the time when they expire
			Keys:    bson.D{{Key: "state", Value: 1}, {Key: "expiresAt", Value: 1}},
			Options: where("holds", bson.D{{Key: "open", Value: true}, {Key: "hold", Value: true}}),
		},
		{ // an account's history: what was committed
			Keys: bson.D{
				{Key: "legs.account", Value: 1}, {Key: "legs.ledger", Value: 1}, {Key: "committedAt", Value: 1},
			},
			Options: where("committed", bson.D{{Key: "committedAt", Value: exists}}),
		},
		{ // lists, newest first: all transfers
			Keys:    newestFirst(),
			Options: options.Index().SetName("created"),
		},
		{ // an account's
			Keys:    newestFirst("legs.account", "legs.ledger"),
			Options: options.Index().SetName("account"),
		},
		{ // unfinished holds
			Keys:    newestFirst(),
			Options: where("held", bson.D{{Key: "open", Value: true}, {Key: "hold", Value: true}}),
		},
		{ // what has failed
			Keys:    newestFirst(),
			Options: where("failed", bson.D{{Key: "failure", Value: exists}}),
		},
		{ // a transfer's reversals
			Keys:    newestFirst("reverses"),
			Options: where("reversals", bson.D{{Key: "reverses", Value: exists}}),
		},
		{ // the server removes final transfers by it, where they are not kept for good
			Keys:    bson.D{{Key: "purgeAt", Value: 1}},
			Options: where("purge", bson.D{{Key: "purgeAt", Value: exists}}).SetExpireAfterSeconds(0),
		},
	}
	if events { // what is not delivered, by when a worker may take it in hand
		indexes = append(indexes, mongo.IndexModel{
			Keys: bson.D{{Key: "outbox.due", Value: 1}}, Options: where("undelivered", bson.D{{Key: "outbox.due", Value: exists}}),
		})
	}
	return indexes
}

// newestFirst returns the keys of an index in the order of lists, by the fields whose
// values a list is of.
func newestFirst(by ...string) bson.D {
	var keys bson.D
	for _, field := range by {
		keys = append(keys, bson.E{Key: field, Value: 1})
	}
	return append(keys, bson.E{Key: "createdAt", Value: -1}, bson.E{Key: "_id", Value: -1})
}

// MissingIndexes returns the library's indexes that do not exist. An index of the user's
// with the same keys and options serves as well, whatever its name. One that has the name
// of the library's and differs is refused: the server would refuse the library's.
func (i *Inspector) MissingIndexes(ctx context.Context) ([]mongo.IndexModel, error) {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	existing, err := indexesOf(ctx, i.catalog.Transfers)
	if err != nil {
		return nil, err
	}
	missing, foreign, err := i.missingAmong(existing)
	if foreign != "" {
		return nil, fmt.Errorf("%w: the index %q of %s is not the library's, which has that name: drop it, or give it another name",
			collections.ErrUnsupported, foreign, wire.NamespaceOf(i.catalog.Transfers))
	}
	return missing, err
}

// missingAmong returns those of the library's indexes that no existing one serves as, and
// the name of one of the user's that has the name of the library's and differs.
func (i *Inspector) missingAmong(existing []index) (missing []mongo.IndexModel, foreign string, err error) {
	for _, model := range ownIndexes(i.catalog.Events.Any()) {
		own, err := asListed(model)
		if err != nil {
			return nil, "", err
		}
		if !slices.ContainsFunc(existing, func(x index) bool { return x.serves(own) }) {
			missing = append(missing, model)
		}
		for _, x := range existing {
			if x.Name == own.Name && !x.serves(own) {
				foreign = x.Name
			}
		}
	}
	return missing, foreign, nil
}

// IndexCount returns how many indexes the library has.
func (i *Inspector) IndexCount() int { return len(ownIndexes(i.catalog.Events.Any())) }

// IndexNames returns the names of some of the library's indexes.
func IndexNames(models []mongo.IndexModel) ([]string, error) {
	names := make([]string, len(models))
	for n, model := range models {
		own, err := asListed(model)
		if err != nil {
			return nil, err
		}
		names[n] = own.Name
	}
	return names, nil
}

// asListed returns an index in the form in which the server will list it.
func asListed(model mongo.IndexModel) (index, error) {
	var given options.IndexOptions
	builder := model.Options
	for _, set := range builder.List() {
		if err := set(&given); err != nil {
			return index{}, err
		}
	}
	keys, err := bson.Marshal(model.Keys)
	if err != nil {
		return index{}, err
	}
	own := index{Key: keys}
	if given.Name != nil {
		own.Name = *given.Name
	}
	if given.ExpireAfterSeconds != nil {
		own.Expiry = wire.RawValue(int64(*given.ExpireAfterSeconds))
	}
	if given.PartialFilterExpression != nil {
		own.Partial, err = bson.Marshal(given.PartialFilterExpression)
	}
	return own, err
}

// serves reports whether an index does the work of one of the library's.
func (x index) serves(own index) bool {
	if x.unique() || x.Sparse || x.Hidden || x.Locale != nil || !bytes.Equal(x.Partial, own.Partial) {
		return false
	}
	seconds, expires := x.Expiry.AsInt64OK()
	ownSeconds, ownExpires := own.Expiry.AsInt64OK()
	if expires != ownExpires || seconds != ownSeconds {
		return false
	}
	keys, ownKeys := wire.Elements(x.Key), wire.Elements(own.Key)
	if len(keys) != len(ownKeys) {
		return false
	}
	for n, key := range keys {
		direction, isNumber := key.Value().AsInt64OK()
		ownDirection, _ := ownKeys[n].Value().AsInt64OK()
		if key.Key() != ownKeys[n].Key() || !isNumber || direction != ownDirection {
			return false
		}
	}
	return true
}
