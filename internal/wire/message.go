// Package wire puts a command together, sends it, and reads its reply. It is the only
// package that imports the driver's experimental x/ packages. It knows no transfer and no
// account.
package wire

import (
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongotransfer/transfer/internal/money"
)

// Elements returns the fields of a document, none where it is damaged.
func Elements(document bson.Raw) []bson.RawElement {
	all, err := document.Elements()
	if err != nil {
		return nil
	}
	return all
}

// Message is a BSON document that is appended to one buffer.
// What goes out with every transfer is written so: to encode it by reflection takes as
// long as the rest of the client's work.
type Message struct {
	// Data are the bytes so far.
	Data []byte
	open []int32 // where the documents and arrays begin that are not ended yet
}

// NewMessage begins a document. The size is a guess at its bytes.
func NewMessage(size int) *Message {
	m := &Message{Data: make([]byte, 0, size), open: make([]int32, 0, 8)}
	m.start()
	return m
}

// start begins a document that stands by itself.
func (m *Message) start() {
	at, data := bsoncore.AppendDocumentStart(m.Data)
	m.Data, m.open = data, append(m.open, at)
}

// Begin begins a document as a field.
func (m *Message) Begin(key string) {
	at, data := bsoncore.AppendDocumentElementStart(m.Data, key)
	m.Data, m.open = data, append(m.open, at)
}

// BeginArray begins an array as a field.
func (m *Message) BeginArray(key string) {
	at, data := bsoncore.AppendArrayElementStart(m.Data, key)
	m.Data, m.open = data, append(m.open, at)
}

// End ends the innermost document or array.
func (m *Message) End() {
	last := len(m.open) - 1
	// It fails only on an index beyond the data.
	m.Data, _ = bsoncore.AppendDocumentEnd(m.Data, m.open[last])
	m.open = m.open[:last]
}

// Text writes a string.
func (m *Message) Text(key, value string) {
	m.Data = bsoncore.AppendStringElement(m.Data, key, value)
}

// Number writes an int64.
func (m *Message) Number(key string, value int64) {
	m.Data = bsoncore.AppendInt64Element(m.Data, key, value)
}

// Flag writes a boolean.
func (m *Message) Flag(key string, value bool) {
	m.Data = bsoncore.AppendBooleanElement(m.Data, key, value)
}

// Null writes a null.
func (m *Message) Null(key string) { m.Data = bsoncore.AppendNullElement(m.Data, key) }

// Stored writes a stored value, or null for one that is missing.
func (m *Message) Stored(key string, value bson.RawValue) {
	if value.Type == 0 {
		m.Null(key)
		return
	}
	m.Value(key, value)
}

// Document writes an encoded document.
func (m *Message) Document(key string, value bson.Raw) {
	m.Data = bsoncore.AppendDocumentElement(m.Data, key, value)
}

// Value writes an encoded value.
func (m *Message) Value(key string, value bson.RawValue) {
	m.Data = bsoncore.AppendValueElement(m.Data, key, bsoncore.Value{Type: bsoncore.Type(value.Type), Data: value.Value})
}

// Date writes a time to the millisecond.
func (m *Message) Date(key string, value time.Time) {
	m.Data = bsoncore.AppendDateTimeElement(m.Data, key, value.UnixMilli())
}

// Binary writes bytes under a subtype.
func (m *Message) Binary(key string, subtype byte, value []byte) {
	m.Data = bsoncore.AppendBinaryElement(m.Data, key, subtype, value)
}

// ObjectID writes an ObjectId.
func (m *Message) ObjectID(key string, value bson.ObjectID) {
	m.Data = bsoncore.AppendObjectIDElement(m.Data, key, value)
}

// Amount writes an amount as it is stored: an int64 or a Decimal128.
func (m *Message) Amount(key string, amount money.Amount) {
	if units, whole := amount.Whole(); whole {
		m.Number(key, units)
		return
	}
	high, low := amount.Decimal128().GetBytes()
	m.Data = bsoncore.AppendDecimal128Element(m.Data, key, high, low)
}

// Drawn lets the server set a field to a value that it never has set there and never will
// again: the next tick of the cluster's clock, which goes on with each, and which a new
// primary continues where the last write has left it.
//
// So it is with a fence where no marker is there, which could be set again and again.
//
//  1. A sets a fence. The server stores it, and answers that it is overloaded.
//  2. B pins that fence, and stalls before it prepares.
//  3. C rolls B's transfer back, and sets another fence.
//  4. A's driver sends the same message once more. If it brought the first fence back,
//     B's prepare would fit when it arrives.
func (m *Message) Drawn(field string) {
	m.Begin("$currentDate")
	m.Begin(field)
	m.Text("$type", "timestamp")
	m.End()
	m.End()
}

// Exists requires that a field is there, or that it isn't.
func (m *Message) Exists(path string, there bool) {
	m.Begin(path)
	m.Flag("$exists", there)
	m.End()
}

// NoArray keeps a condition from looking into an array for an element that fulfils it.
func (m *Message) NoArray() {
	m.Begin("$not")
	m.Text("$type", "array")
	m.End()
}

// Equals requires a field's value, as the operand of the field, and not an array in which
// it is one of several.
func (m *Message) Equals(value bson.RawValue) {
	m.Value("$eq", value)
	if value.Type != bson.TypeArray {
		m.NoArray()
		return
	}
	m.Begin("$not")
	m.Begin("$elemMatch")
	m.Value("$eq", value)
	m.End()
	m.End()
}

// Index returns the key of an array's element.
func Index(i int) string { return strconv.Itoa(i) }
