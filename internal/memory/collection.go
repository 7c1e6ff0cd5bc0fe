package memory

import (
	"crypto/rand"
	"maps"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// keptSeconds is for how long a version that was replaced can still be read.
const keptSeconds = 60

// collection has documents in the order in which they were inserted.
type collection struct {
	uuid    bson.Binary
	records []*record
	byID    map[string]*record
	writes  int // how many versions were stored
	indexes []bson.D
}

// record is one document in its versions, the latest one last.
type record struct{ versions []version }

// version is a document from a time on, nil where it was removed then.
type version struct {
	from     bson.Timestamp
	document bson.D
}

func newCollection() *collection {
	uuid := make([]byte, 16)
	_, _ = rand.Read(uuid) // it never fails
	return &collection{
		uuid: bson.Binary{Subtype: bson.TypeBinaryUUID, Data: uuid},
		byID: map[string]*record{},
		indexes: []bson.D{{
			{Key: "v", Value: int32(2)}, {Key: "key", Value: bson.D{{Key: "_id", Value: int32(1)}}}, {Key: "name", Value: "_id_"},
		}},
	}
}

// at returns the document as it was at a time, the zero time for now, nil if there was
// none.
func (r *record) at(t bson.Timestamp) bson.D {
	for _, v := range slices.Backward(r.versions) {
		if t == (bson.Timestamp{}) || !v.from.After(t) {
			return v.document
		}
	}
	return nil
}

// store stores a version of a document under an _id, which comes first in it, nil to
// remove it.
func (c *collection) store(id any, document bson.D, at bson.Timestamp) {
	if document != nil && document[0].Key != "_id" {
		document = append(bson.D{{Key: "_id", Value: id}}, without(document, "_id")...)
	}
	c.writes++
	k := key(id)
	r := c.byID[k]
	if r == nil {
		r = &record{}
		c.byID[k] = r
		c.records = append(c.records, r)
	}
	if document != nil && r.at(bson.Timestamp{}) == nil && len(r.versions) > 0 { // inserted again
		c.records = append(slices.DeleteFunc(c.records, func(other *record) bool { return other == r }), r)
	}
	keep := 0 // the first version that somebody may still read
	for keep < len(r.versions)-1 && r.versions[keep+1].from.T+keptSeconds < at.T {
		keep++
	}
	r.versions = append(r.versions[keep:len(r.versions):len(r.versions)], version{at, document})
}

// get returns the latest document with an _id, nil if there is none.
func (c *collection) get(id any) bson.D {
	if r := c.byID[key(id)]; r != nil {
		return r.at(bson.Timestamp{})
	}
	return nil
}

// find returns the documents that match a filter, as they were at a time.
func (c *collection) find(filter bson.D, s scope, at bson.Timestamp) ([]bson.D, error) {
	var found []bson.D
	for _, r := range c.candidates(filter) {
		document := r.at(at)
		if document == nil {
			continue
		}
		met, err := matches(document, filter, s)
		if err != nil {
			return nil, err
		}
		if met {
			found = append(found, document)
		}
	}
	return found, nil
}

// candidates returns the records that may match a filter: by their _ids, if it names
// those.
func (c *collection) candidates(filter bson.D) []*record {
	id := field(filter, "_id")
	var ids bson.A
	operators, are := operatorsOf(id)
	switch {
	case !are && id != any(missing{}) && rankOf(id) != rankArray:
		ids = bson.A{id}
	case are && len(operators) == 1 && operators[0].Key == "$in":
		ids, _ = operators[0].Value.(bson.A)
	default:
		return c.records
	}
	found := map[*record]bool{}
	for _, id := range ids {
		if r := c.byID[key(id)]; r != nil {
			found[r] = true
		}
	}
	if len(found) == 1 {
		return slices.Collect(maps.Keys(found))
	}
	return slices.DeleteFunc(slices.Clone(c.records), func(r *record) bool { return !found[r] })
}

// expire removes what the collection's TTL indexes say is due.
func (c *collection) expire(now time.Time, at bson.Timestamp) {
	for _, index := range c.indexes {
		after := field(index, "expireAfterSeconds")
		keys := nested(index, "key")
		if after == any(missing{}) || len(keys) != 1 {
			continue
		}
		limit := bson.NewDateTimeFromTime(now.Add(-time.Duration(whole(index, "expireAfterSeconds")) * time.Second))
		for _, r := range slices.Clone(c.records) {
			document := r.at(bson.Timestamp{})
			if date, is := field(document, keys[0].Key).(bson.DateTime); is && date <= limit {
				c.store(field(document, "_id"), nil, at)
			}
		}
	}
}
