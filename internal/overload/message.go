package overload

import (
	"encoding/binary"
	"fmt"
	"io"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The wire protocol of MongoDB: a header of four numbers of four bytes, and in an OP_MSG
// then flags and sections.
const (
	headerBytes    = 16
	flagBytes      = 4
	opMsg          = 2013
	largestMessage = 64 << 20
)

// message is one message of a client, as it travels.
type message []byte

// readMessage reads one message.
func readMessage(from io.Reader) (message, error) {
	header := make([]byte, headerBytes)
	if _, err := io.ReadFull(from, header); err != nil {
		return nil, err
	}
	length := message(header).number(0)
	if length < headerBytes || length > largestMessage {
		return nil, fmt.Errorf("a message of %d bytes", length)
	}
	m := make(message, length)
	copy(m, header)
	_, err := io.ReadFull(from, m[headerBytes:])
	return m, err
}

func (m message) number(at int) int { return int(int32(binary.LittleEndian.Uint32(m[at:]))) }

// command returns a command and its collection, such as "update accounts".
// It returns "" if the message is not a command.
func (m message) command() string {
	if len(m) < headerBytes || m.number(12) != opMsg {
		return ""
	}
	for at := headerBytes + flagBytes; at+1+flagBytes < len(m); {
		size := m.number(at + 1)
		if size <= 0 || at+1+size > len(m) {
			return ""
		}
		if m[at] == 0 { // Documents may come before the command.
			return nameOf(bson.Raw(m[at+1 : at+1+size]))
		}
		at += 1 + size
	}
	return ""
}

func nameOf(command bson.Raw) string {
	first, err := command.IndexErr(0)
	if err != nil {
		return ""
	}
	if collection, named := first.Value().StringValueOK(); named {
		return first.Key() + " " + collection
	}
	return first.Key()
}
