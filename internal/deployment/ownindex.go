package deployment

import (
	"bytes"
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/wire"
)

// missingIndexes returns those of the library's indexes that are not there. An index of the
// user's with the same keys and options is as good, whatever its name. One with the name of
// the library's that is something else is refused: the server would refuse the library's.
func (s *Deployment) missingIndexes(ctx context.Context) ([]mongo.IndexModel, error) {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	there, err := indexesOf(ctx, s.Transfers)
	if err != nil {
		return nil, err
	}
	var missing []mongo.IndexModel
	for _, model := range indexes() {
		own, err := specOf(model)
		if err != nil {
			return nil, err
		}
		found := false
		for _, i := range there {
			found = found || i.serves(own)
			if i.Name == own.Name && !i.serves(own) {
				return nil, fmt.Errorf("%w: the index %q of %s is not the library's, which has that name: drop it, or give it another name",
					collections.ErrUnsupported, i.Name, wire.NamespaceOf(s.Transfers))
			}
		}
		if !found {
			missing = append(missing, model)
		}
	}
	return missing, nil
}

// specOf returns how the server will list an index.
func specOf(model mongo.IndexModel) (indexSpec, error) {
	var given options.IndexOptions
	builder := model.Options
	for _, set := range builder.List() {
		if err := set(&given); err != nil {
			return indexSpec{}, err
		}
	}
	keys, err := bson.Marshal(model.Keys)
	if err != nil {
		return indexSpec{}, err
	}
	own := indexSpec{Key: keys}
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

// serves reports whether an index does what one of the library's is there for.
func (i indexSpec) serves(own indexSpec) bool {
	if i.Unique || i.Sparse || i.Hidden || i.Locale != nil || !bytes.Equal(i.Partial, own.Partial) {
		return false
	}
	seconds, expires := i.Expiry.AsInt64OK()
	ownSeconds, ownExpires := own.Expiry.AsInt64OK()
	if expires != ownExpires || seconds != ownSeconds {
		return false
	}
	keys, ownKeys := wire.Elements(i.Key), wire.Elements(own.Key)
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

func nameOf(model mongo.IndexModel) (string, error) {
	own, err := specOf(model)
	return own.Name, err
}
