package chaos

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The wire protocol of MongoDB: a header of four numbers of four bytes, and in an OP_MSG
// then flags and sections.
const (
	headerBytes     = 16
	flagBytes       = 4
	opMsg           = 2013
	largestMessage  = 64 << 20
	sectionDocument = 0
	sectionSequence = 1
)

// message is one message of a client or a server, as it travels.
type message []byte

// readMessage reads one message.
func readMessage(from io.Reader) (message, error) {
	header := make([]byte, headerBytes)
	if _, err := io.ReadFull(from, header); err != nil {
		return nil, err
	}
	length := message(header).length()
	if length < headerBytes || length > largestMessage {
		return nil, fmt.Errorf("a message of %d bytes", length)
	}
	m := make(message, length)
	copy(m, header)
	_, err := io.ReadFull(from, m[headerBytes:])
	return m, err
}

func (m message) number(at int) int { return int(int32(binary.LittleEndian.Uint32(m[at:]))) }
func (m message) length() int       { return m.number(0) }
func (m message) id() int           { return m.number(4) }
func (m message) answerTo() int     { return m.number(8) }

// body returns the document of a message: the command, or the reply.
func (m message) body() (bson.Raw, error) {
	if m.number(12) != opMsg {
		return nil, errors.New("no OP_MSG")
	}
	for at := headerBytes + flagBytes; at+flagBytes < len(m); {
		kind, size := m[at], m.number(at+1)
		if size <= 0 || at+1+size > len(m) {
			break
		}
		section := m[at+1 : at+1+size]
		switch kind {
		case sectionDocument:
			return bson.Raw(section), bson.Raw(section).Validate()
		case sectionSequence: // documents of a command, which may come before it
			at += 1 + size
		default:
			return nil, fmt.Errorf("a section of kind %d", kind)
		}
	}
	return nil, errors.New("no command in the message")
}

// kind returns the kind of command that a message is, such as "update accounts".
// It returns "" if the command is not on the run's database.
func (m message) kind() string {
	body, err := m.body()
	if err != nil {
		return ""
	}
	if db, _ := body.Lookup("$db").StringValueOK(); db != database {
		return ""
	}
	first, err := body.IndexErr(0)
	if err != nil {
		return ""
	}
	if collection, named := first.Value().StringValueOK(); named {
		return first.Key() + " " + collection
	}
	if collection, named := body.Lookup("collection").StringValueOK(); named {
		return first.Key() + " " + collection
	}
	return first.Key()
}

// door returns the account that a message closes or reopens, or "".
func (m message) door() string {
	if m.kind() != "update accounts" {
		return ""
	}
	body, _ := m.body() // It has a kind, so it has a body.
	for _, change := range []string{"$set", "$unset"} {
		if _, err := body.LookupErr("updates", "0", "u", change, "closed"); err == nil {
			account, _ := body.Lookup("updates", "0", "q", "_id").StringValueOK()
			return account
		}
	}
	return ""
}

// ok reports whether a reply says that the server performed the command.
func (m message) ok() bool {
	body, err := m.body()
	if err != nil {
		return false
	}
	number, isNumber := body.Lookup("ok").AsInt64OK()
	return isNumber && number == 1
}
