package audit

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/words"
)

// Range bounds IDs: From ≤ ID < To.
// The empty string is no bound.
// A range without From includes each _id that is no ID, too.
type Range struct{ From, To string }

// filter selects the documents whose _id lies in the range.
//
// The server compares an _id only with values of its type: $lt finds nothing of another
// type. Ranges from $gte to $lt would leave out such documents, even if there is no gap
// between them. So the first range is everything that is not at or beyond its end.
func (r Range) filter(ids document.IDCodec) (bson.D, error) {
	bounds := bson.D{}
	for _, bound := range []struct{ operator, id string }{{"$gte", r.From}, {"$lt", r.To}} {
		if bound.id == "" {
			continue
		}
		id, err := ids.Encode(bound.id)
		if err != nil {
			return nil, err
		}
		bounds = append(bounds, bson.E{Key: bound.operator, Value: id})
	}
	switch {
	case len(bounds) == 0:
		return bson.D{}, nil
	case r.From == "":
		bounds = bson.D{{Key: "$not", Value: bson.D{{Key: "$gte", Value: bounds[0].Value}}}}
	case r.To != "" && ids.Canonical(r.From) >= ids.Canonical(r.To):
		return nil, fmt.Errorf("from %s to %s there is nothing", words.Quote(r.From), words.Quote(r.To))
	}
	return bson.D{{Key: "_id", Value: bounds}}, nil
}

// Check refuses bounds that can't be IDs, and ranges that can't contain any.
func (r *Reader) Check(accounts, transfers Range) error {
	if _, err := accounts.filter(r.catalog.IDs); err != nil {
		return err
	}
	_, err := transfers.filter(document.StringIDs)
	return err
}
