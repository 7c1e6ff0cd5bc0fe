package memory

import (
	"bytes"
	"errors"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// written counts what the statements of a command have done.
type written struct {
	matched, modified int
	upserted, errors  bson.A
}

// refused notes that a statement was refused.
func (w *written) refused(index int, err error) {
	w.errors = append(w.errors, append(bson.D{{Key: "index", Value: int32(index)}}, fields(err)...))
}

// reply returns the reply to a write.
func (c command) reply(w written) bson.D {
	reply := bson.D{{Key: "n", Value: int32(w.matched)}, {Key: "nModified", Value: int32(w.modified)}}
	if len(w.upserted) > 0 {
		reply = append(reply, bson.E{Key: "upserted", Value: w.upserted})
	}
	if len(w.errors) > 0 {
		reply = append(reply, bson.E{Key: "writeErrors", Value: w.errors})
	}
	return append(reply, c.opTime())
}

// opTime returns the field of a reply that says when its write happened.
func (c command) opTime() bson.E {
	return bson.E{Key: "opTime", Value: bson.D{{Key: "ts", Value: c.server.time()}, {Key: "t", Value: int64(1)}}}
}

// ordered reports whether a command ends with its first error.
func (c command) ordered() bool { return field(c.body, "ordered") != any(false) }

func (c command) insert() (bson.D, error) {
	collection := c.made()
	*c.dated = true
	var done written
	for i, d := range list(c.body, "documents") {
		document, _ := d.(bson.D)
		id := field(document, "_id")
		if id == any(missing{}) {
			id = bson.NewObjectID()
			document = append(bson.D{{Key: "_id", Value: id}}, document...)
		}
		if err := errors.Join(checkID(id), checkSize(document)); err != nil {
			done.refused(i, err)
			if c.ordered() {
				break
			}
			continue
		}
		c.before(collection, id, nil, document)
		if stored := collection.get(id); stored != nil {
			done.errors = append(done.errors, duplicate(i, c.database+"."+c.name, id))
			if c.ordered() {
				break
			}
			continue
		}
		collection.store(id, document, c.server.tick())
		done.matched++
	}
	return c.reply(done), nil
}

// maxDocument is how large a document may be.
const maxDocument = 16 << 20

// checkSize refuses a document that is too large to be stored.
func checkSize(document bson.D) error {
	if size := len(encoded(document)); size > maxDocument {
		return refuse(codeTooLarge, "BSONObj size: %d is invalid. Size must be between 0 and %d", size, maxDocument)
	}
	return nil
}

// checkID refuses what can't be an _id.
func checkID(id any) error {
	switch name := typeOf(id); name {
	case "array", "regex", "undefined":
		return refuse(codeInvalidID, "The '_id' value cannot be of type %s", name)
	}
	return checkNames(id)
}

// checkNames refuses the names of operators within an _id.
func checkNames(v any) error {
	switch v := v.(type) {
	case bson.D:
		for _, e := range v {
			if strings.HasPrefix(e.Key, "$") {
				return refuse(codeDollarName, "_id fields may not contain '$'-prefixed fields: %s is not valid for storage.", e.Key)
			}
			if err := checkNames(e.Value); err != nil {
				return err
			}
		}
	case bson.A:
		for _, element := range v {
			if err := checkNames(element); err != nil {
				return err
			}
		}
	}
	return nil
}

// duplicate returns the error of an insert whose _id is taken.
func duplicate(index int, namespace string, id any) bson.D {
	err := refuse(codeDuplicateKey, "E11000 duplicate key error collection: %s index: _id_ dup key: { _id: %v }", namespace, id)
	return append(append(bson.D{{Key: "index", Value: int32(index)}}, fields(err)...),
		bson.E{Key: "keyPattern", Value: bson.D{{Key: "_id", Value: int32(1)}}},
		bson.E{Key: "keyValue", Value: bson.D{{Key: "_id", Value: id}}})
}

// before lets the interceptor's write come first.
func (c command) before(collection *collection, id any, stored, change bson.D) {
	if c.server.intercept == nil {
		return
	}
	if first := c.server.intercept(c.server.clock(), c.database+"."+c.name, stored, change); first != nil {
		collection.store(id, first, c.server.tick())
	}
}

func (c command) update() (bson.D, error) {
	collection := c.made()
	var done written
	for i, u := range list(c.body, "updates") {
		statement, _ := u.(bson.D)
		upserted, err := c.updateOne(collection, statement, &done)
		if upserted != nil {
			done.upserted = append(done.upserted, bson.D{{Key: "index", Value: int32(i)}, {Key: "_id", Value: upserted}})
		}
		if err != nil {
			done.refused(i, err)
			if c.ordered() {
				break
			}
		}
	}
	return c.reply(done), nil
}

// updateOne performs one statement. It returns the _id of a document that it has
// inserted.
func (c command) updateOne(collection *collection, statement bson.D, done *written) (upserted any, err error) {
	if err := onlyKnown("an update", statement, "q", "u", "upsert", "multi"); err != nil {
		return nil, err
	}
	filter := nested(statement, "q")
	update := field(statement, "u")
	if err := check(update); err != nil {
		return nil, err
	}
	if err := c.intercepted(collection, filter, update); err != nil {
		return nil, err
	}
	found, err := collection.find(filter, c.scope, bson.Timestamp{})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 && flag(statement, "upsert") {
		document, err := c.upsert(collection, filter, update)
		if err != nil {
			return nil, err
		}
		done.matched++
		return field(document, "_id"), nil
	}
	if !flag(statement, "multi") {
		found = found[:min(1, len(found))]
	}
	for _, document := range found {
		_, modified, err := c.modify(collection, document, update)
		if err != nil {
			return nil, err
		}
		done.matched++
		done.modified += number(modified)
	}
	return nil, nil
}

// intercepted calls the interceptor for each document that a filter names or matches.
func (c command) intercepted(collection *collection, filter bson.D, update any) error {
	operators, are := update.(bson.D)
	if c.server.intercept == nil || !are {
		return nil
	}
	found, err := collection.find(filter, c.scope, bson.Timestamp{})
	for _, stored := range found {
		c.before(collection, field(stored, "_id"), stored, operators)
	}
	return err
}

// modify changes a document.
func (c command) modify(collection *collection, document bson.D, update any) (after bson.D, modified bool, err error) {
	at := c.server.tick()
	after, err = change{update: update, scope: c.scope, at: at}.applied(document)
	if err != nil {
		return nil, false, err
	}
	if bytes.Equal(encoded(document), encoded(after)) {
		return document, false, nil
	}
	*c.dated = *c.dated || dates(update)
	collection.store(field(document, "_id"), after, at)
	return after, true, nil
}

// dates reports whether an update stores the time of day.
func dates(update any) bool {
	operators, are := update.(bson.D)
	return are && len(nested(operators, "$currentDate")) > 0 || !are && bytes.Contains(encoded(update), []byte("$$NOW"))
}

// required returns the document that a filter requires, which an upsert begins with.
func required(filter bson.D) (document bson.D, err error) {
	for _, e := range filter {
		operators, are := operatorsOf(e.Value)
		switch {
		case e.Key == "$expr", e.Key == "$comment":
			continue
		case strings.HasPrefix(e.Key, "$"):
			return nil, refuse(codeNotSupported, "the server in memory doesn't know an upsert by %s", e.Key)
		case !are:
			operators = bson.D{{Key: "$eq", Value: e.Value}}
		}
		for _, o := range operators {
			switch o.Key {
			case "$eq":
				if document, err = put(document, e.Key, o.Value); err != nil {
					return nil, err
				}
			case "$in":
				return nil, refuse(codeNotSupported, "the server in memory doesn't know an upsert by %s", o.Key)
			}
		}
	}
	return document, nil
}

// upsert inserts a document with what a filter requires, as the update changes it.
func (c command) upsert(collection *collection, filter bson.D, update any) (bson.D, error) {
	document, err := required(filter)
	if err != nil {
		return nil, err
	}
	at := c.server.tick()
	after, err := change{update: update, scope: c.scope, at: at, inserted: true}.applied(document)
	if err != nil {
		return nil, err
	}
	id := field(after, "_id")
	if id == any(missing{}) {
		id = bson.NewObjectID()
		after = append(bson.D{{Key: "_id", Value: id}}, after...)
	}
	if err := checkID(id); err != nil {
		return nil, err
	}
	if collection.get(id) != nil {
		return nil, refuse(codeDuplicateKey, "E11000 duplicate key error collection: %s.%s index: _id_", c.database, c.name)
	}
	*c.dated = true
	collection.store(id, after, at)
	return after, nil
}

func (c command) findAndModify() (bson.D, error) {
	collection, filter, update := c.made(), nested(c.body, "query"), field(c.body, "update")
	if err := errors.Join(check(update), checkProjection(nested(c.body, "fields"))); err != nil {
		return nil, err
	}
	if err := c.intercepted(collection, filter, update); err != nil {
		return nil, err
	}
	found, err := collection.find(filter, c.scope, bson.Timestamp{})
	if err != nil {
		return nil, err
	}
	if err := sortBy(found, nested(c.body, "sort")); err != nil {
		return nil, err
	}
	var before, after bson.D
	switch {
	case len(found) == 0 && flag(c.body, "upsert"):
		after, err = c.upsert(collection, filter, update)
	case len(found) == 0:
	case flag(c.body, "remove"):
		before = found[0]
		collection.store(field(before, "_id"), nil, c.server.tick())
	default:
		before = found[0]
		after, _, err = c.modify(collection, before, update)
	}
	if err != nil {
		return nil, err
	}
	shown := before
	if flag(c.body, "new") {
		shown = after
	}
	var value any
	if shown != nil {
		if value, err = c.project(shown, nested(c.body, "fields")); err != nil {
			return nil, err
		}
	}
	existing := bson.D{{Key: "n", Value: int32(number(before != nil || after != nil))}, {Key: "updatedExisting", Value: before != nil}}
	return bson.D{{Key: "lastErrorObject", Value: existing}, {Key: "value", Value: value}, c.opTime()}, nil
}

func (c command) delete() (bson.D, error) {
	collection := c.made()
	var done written
	for i, s := range list(c.body, "deletes") {
		statement, _ := s.(bson.D)
		if err := c.deleteOne(collection, statement, &done); err != nil {
			done.refused(i, err)
			if c.ordered() {
				break
			}
		}
	}
	return c.reply(done), nil
}

// deleteOne performs one statement.
func (c command) deleteOne(collection *collection, statement bson.D, done *written) error {
	if err := onlyKnown("a delete", statement, "q", "limit"); err != nil {
		return err
	}
	found, err := collection.find(nested(statement, "q"), c.scope, bson.Timestamp{})
	if err != nil {
		return err
	}
	if whole(statement, "limit") == 1 {
		found = found[:min(1, len(found))]
	}
	for _, document := range found {
		collection.store(field(document, "_id"), nil, c.server.tick())
		done.matched++
	}
	return nil
}
