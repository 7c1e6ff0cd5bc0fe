// Package opmsg reads messages of MongoDB's wire protocol, for test networks that pass
// them on between clients and servers.
package opmsg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A message has a header of four numbers of four bytes. In an OP_MSG, flags and sections
// follow.
const (
	// HeaderBytes is the size of the header.
	HeaderBytes = 16
	// FlagBytes is the size of the flags.
	FlagBytes = 4
	// Code is the number of OP_MSG, which is the last one in the header.
	Code = 2013
	// SectionDocument is the kind of the section that holds the command or the reply.
	SectionDocument = 0
	// SectionSequence is the kind of a section that holds documents of a command.
	SectionSequence = 1

	largest = 64 << 20
)

// Message is one message of a client or a server, with its header.
type Message []byte

// Read reads one message.
func Read(from io.Reader) (Message, error) {
	header := make(Message, HeaderBytes)
	if _, err := io.ReadFull(from, header); err != nil {
		return nil, err
	}
	length := header.number(0)
	if length < HeaderBytes || length > largest {
		return nil, fmt.Errorf("a message of %d bytes", length)
	}
	m := make(Message, length)
	copy(m, header)
	_, err := io.ReadFull(from, m[HeaderBytes:])
	return m, err
}

func (m Message) number(at int) int { return int(int32(binary.LittleEndian.Uint32(m[at:]))) }

// ID returns the number by which the reply names this message.
func (m Message) ID() int { return m.number(4) }

// ReplyTo returns the number of the message that this one replies to.
func (m Message) ReplyTo() int { return m.number(8) }

// Body returns the document of a message: the command, or the reply.
// The document is not validated, because that takes time for a large one.
func (m Message) Body() (bson.Raw, error) {
	if len(m) < HeaderBytes || m.number(12) != Code {
		return nil, errors.New("no OP_MSG")
	}
	for at := HeaderBytes + FlagBytes; at+FlagBytes < len(m); {
		kind, size := m[at], m.number(at+1)
		if size <= 0 || at+1+size > len(m) {
			break
		}
		switch kind {
		case SectionDocument:
			return bson.Raw(m[at+1 : at+1+size]), nil
		case SectionSequence: // It may come before the command.
			at += 1 + size
		default:
			return nil, fmt.Errorf("a section of kind %d", kind)
		}
	}
	return nil, errors.New("no command in the message")
}

// Command returns the name and the collection of the command in a message's body, such as
// "update accounts".
// It returns the name alone if the command names its collection elsewhere, or none.
func Command(body bson.Raw) string {
	first, err := body.IndexErr(0)
	if err != nil {
		return ""
	}
	if collection, named := first.Value().StringValueOK(); named {
		return first.Key() + " " + collection
	}
	return first.Key()
}
