package chaos

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/mongotest/opmsg"
)

// A wire recognises the command of a message, wherever in the message it is, and ignores
// unknown messages.
func TestKind(t *testing.T) {
	command := func(fields ...bson.E) []byte {
		document, err := bson.Marshal(bson.D(fields))
		require.NoError(t, err)
		return append([]byte{opmsg.SectionDocument}, document...)
	}
	sequence := append([]byte{opmsg.SectionSequence}, binary.LittleEndian.AppendUint32(nil, 4+8)...)
	sequence = append(sequence, "updates\x00"...)
	ours := bson.E{Key: "$db", Value: database}
	update := bson.E{Key: "update", Value: "accounts"}
	tests := []struct {
		name     string
		sections []byte
		kind     string
	}{
		{"a command", command(update, ours), "update accounts"},
		{"a command after a sequence", append(sequence, command(update, ours)...), "update accounts"},
		{"a command on another database", command(update, bson.E{Key: "$db", Value: "admin"}), ""},
		{"a command on no collection", command(bson.E{Key: "hello", Value: 1}, ours), "hello"},
		{"a cursor's next batch", command(bson.E{Key: "getMore", Value: int64(5)}, bson.E{Key: "collection", Value: "transfers"}, ours),
			"getMore transfers"},
		{"a section of another kind", []byte{7, 5, 0, 0, 0, 0}, ""},
		{"nothing", nil, ""},
		{"a broken document", []byte{opmsg.SectionDocument, 9, 0, 0, 0, 1, 2, 3, 4, 5}, ""},
	}
	for _, test := range tests {
		m := wrapped(t, test.sections)
		require.Equal(t, test.kind, m.kind(), test.name)
	}
	m := wrapped(t, tests[0].sections)
	binary.LittleEndian.PutUint32(m[12:], 2012) // compressed
	require.Empty(t, m.kind())
}

// A wire knows which account a message closes or reopens.
func TestDoor(t *testing.T) {
	for change, want := range map[string]string{"$set closed": "door-1", "$unset closed": "door-1", "$set fence": "", "$inc balance": ""} {
		operator, field, _ := strings.Cut(change, " ")
		command, err := bson.Marshal(bson.D{
			{Key: "update", Value: "accounts"}, {Key: "$db", Value: database},
			{Key: "updates", Value: bson.A{bson.D{
				{Key: "q", Value: bson.D{{Key: "_id", Value: "door-1"}}},
				{Key: "u", Value: bson.D{{Key: operator, Value: bson.D{{Key: field, Value: true}}}}},
			}}},
		})
		require.NoError(t, err)
		require.Equal(t, want, wrapped(t, append([]byte{opmsg.SectionDocument}, command...)).door(), change)
	}
}

// A reply says whether the server performed the command.
func TestOK(t *testing.T) {
	for value, want := range map[any]bool{1.0: true, int32(1): true, 0.0: false, "1": false} {
		document, err := bson.Marshal(bson.D{{Key: "ok", Value: value}})
		require.NoError(t, err)
		require.Equal(t, want, wrapped(t, append([]byte{opmsg.SectionDocument}, document...)).ok(), "%v", value)
	}
}

// wrapped returns a message as it comes over a connection.
func wrapped(t *testing.T, sections []byte) message {
	t.Helper()
	var header []byte
	// The last one is the flags.
	for _, number := range []int{opmsg.HeaderBytes + opmsg.FlagBytes + len(sections), 1, 0, opmsg.Code, 0} {
		header = binary.LittleEndian.AppendUint32(header, uint32(number))
	}
	m, err := readMessage(bytes.NewReader(append(header, sections...)))
	require.NoError(t, err)
	return m
}
