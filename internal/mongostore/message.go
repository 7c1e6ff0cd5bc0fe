package mongostore

import (
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongotransfer/transfer/internal/money"
)

// message is a BSON document that is appended to one buffer. What goes out with every transfer is written so: to
// encode it by reflection takes as long as the rest of the client's work.
type message struct {
	data []byte
	open []int32 // where the documents and arrays begin that are not ended yet
}

// newMessage begins a document. The size is a guess at its bytes.
func newMessage(size int) *message {
	m := &message{data: make([]byte, 0, size), open: make([]int32, 0, 8)}
	m.start()
	return m
}

// start begins a document that stands by itself.
func (m *message) start() {
	at, data := bsoncore.AppendDocumentStart(m.data)
	m.data, m.open = data, append(m.open, at)
}

func (m *message) begin(key string) {
	at, data := bsoncore.AppendDocumentElementStart(m.data, key)
	m.data, m.open = data, append(m.open, at)
}

func (m *message) beginArray(key string) {
	at, data := bsoncore.AppendArrayElementStart(m.data, key)
	m.data, m.open = data, append(m.open, at)
}

// end ends the innermost document or array.
func (m *message) end() {
	last := len(m.open) - 1
	m.data, _ = bsoncore.AppendDocumentEnd(m.data, m.open[last]) // it fails only on an index beyond the data
	m.open = m.open[:last]
}

func (m *message) text(key, value string) {
	m.data = bsoncore.AppendStringElement(m.data, key, value)
}

func (m *message) number(key string, value int64) {
	m.data = bsoncore.AppendInt64Element(m.data, key, value)
}

func (m *message) flag(key string, value bool) {
	m.data = bsoncore.AppendBooleanElement(m.data, key, value)
}

func (m *message) null(key string) { m.data = bsoncore.AppendNullElement(m.data, key) }

func (m *message) document(key string, value bson.Raw) {
	m.data = bsoncore.AppendDocumentElement(m.data, key, value)
}

func (m *message) value(key string, value bson.RawValue) {
	m.data = bsoncore.AppendValueElement(m.data, key, bsoncore.Value{Type: bsoncore.Type(value.Type), Data: value.Value})
}

// date writes a time to the millisecond.
func (m *message) date(key string, value time.Time) {
	m.data = bsoncore.AppendDateTimeElement(m.data, key, value.UnixMilli())
}

func (m *message) binary(key string, value []byte) {
	m.data = bsoncore.AppendBinaryElement(m.data, key, 0, value)
}

func (m *message) objectID(key string, value bson.ObjectID) {
	m.data = bsoncore.AppendObjectIDElement(m.data, key, value)
}

func (m *message) amount(key string, amount money.Amount) {
	if units, whole := amount.Whole(); whole {
		m.number(key, units)
		return
	}
	m.value(key, rawValue(amount.Value()))
}

// drawn lets the server set a field to a value that it never has set there and never will
// again: the next tick of the cluster's clock, which goes on with each, and which a new
// primary continues where the last write has left it.
//
// So it is with a fence where no marker is there, which could be set again and again. 1.
// A sets a fence. The server stores it, and answers that it is overloaded. 2. B pins that
// fence, and stalls before it prepares. 3. C rolls B's transfer back, and sets another
// fence. 4. A's driver sends the same message once more. If it brought the first fence
// back, B's prepare would fit when it arrives.
func (m *message) drawn(field string) {
	m.begin("$currentDate")
	m.begin(field)
	m.text("$type", "timestamp")
	m.end()
	m.end()
}

// exists requires that a field is there, or that it isn't.
func (m *message) exists(path string, there bool) {
	m.begin(path)
	m.flag("$exists", there)
	m.end()
}

// noArray keeps a condition from looking into an array for an element that fulfils it.
func (m *message) noArray() {
	m.begin("$not")
	m.text("$type", "array")
	m.end()
}

// equals requires a field's value, as the operand of the field, and not an array in which
// it is one of several.
func (m *message) equals(value bson.RawValue) {
	m.value("$eq", value)
	if value.Type != bson.TypeArray {
		m.noArray()
		return
	}
	m.begin("$not")
	m.begin("$elemMatch")
	m.value("$eq", value)
	m.end()
	m.end()
}

// index returns the key of an array's element.
func index(i int) string { return strconv.Itoa(i) }
