package opmsg_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/mongotest/opmsg"
)

// A message is read whole, with its numbers, its document and its command.
func TestRead(t *testing.T) {
	document, err := bson.Marshal(bson.D{{Key: "update", Value: "accounts"}})
	require.NoError(t, err)
	sent := header(opmsg.HeaderBytes+opmsg.FlagBytes+1+len(document), 7, 5, opmsg.Code, 0)
	sent = append(append(sent, opmsg.SectionDocument), document...)
	m, err := opmsg.Read(bytes.NewReader(append(sent, "the next message"...)))
	require.NoError(t, err)
	assert.Equal(t, opmsg.Message(sent), m)
	assert.Equal(t, 7, m.ID())
	assert.Equal(t, 5, m.ReplyTo())
	body, err := m.Body()
	require.NoError(t, err)
	assert.Equal(t, bson.Raw(document), body)
	assert.Equal(t, "update accounts", opmsg.Command(body))
}

// A message that is cut short, or has an impossible length, is an error.
func TestReadFails(t *testing.T) {
	for name, sent := range map[string][]byte{
		"nothing":         nil,
		"half a header":   header(100, 1),
		"half a message":  header(100, 1, 0, opmsg.Code, 0),
		"less than it is": header(8, 1, 0, opmsg.Code),
		"a huge one":      header(1<<30, 1, 0, opmsg.Code),
	} {
		_, err := opmsg.Read(bytes.NewReader(sent))
		require.Error(t, err, name)
	}
}

// A message without a document has no body.
func TestNoBody(t *testing.T) {
	for name, m := range map[string]opmsg.Message{
		"nothing":           nil,
		"another code":      header(20, 1, 0, 2012, 0),
		"no section":        header(20, 1, 0, opmsg.Code, 0),
		"an unknown kind":   append(header(26, 1, 0, opmsg.Code, 0), 7, 5, 0, 0, 0, 0),
		"a section cut off": append(header(26, 1, 0, opmsg.Code, 0), opmsg.SectionDocument, 9, 0, 0, 0, 0),
	} {
		_, err := m.Body()
		require.Error(t, err, name)
	}
}

// header returns numbers as they are encoded at the beginning of a message.
func header(numbers ...int) (bytes []byte) {
	for _, n := range numbers {
		bytes = binary.LittleEndian.AppendUint32(bytes, uint32(n))
	}
	return bytes
}
