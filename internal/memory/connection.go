package memory

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The messages of the wire protocol. All numbers are little endian.
const (
	headerBytes  = 16
	maxMessage   = 48 << 20
	opReply      = 1
	opQuery      = 2004 // of the first hello, from a driver that knows nothing yet
	opMessage    = 2013
	moreToCome   = 1 << 1
	bodySection  = 0
	listSection  = 1
	checksumFlag = 1 << 0
)

// apart is how long the answer is held back to a command that has inserted a document,
// or stored the time of day ($currentDate, $$NOW). So what a test does one after the
// other is stored with times in that order, and lists and statements have one order, as
// they nearly always have on a server that takes longer.
const apart = time.Millisecond

// serve answers the messages of a connection until it is closed.
func (s *Server) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	for s.answer(conn) == nil {
	}
}

// answer reads one message and answers it.
func (s *Server) answer(conn net.Conn) error {
	header := make([]byte, headerBytes)
	if _, err := io.ReadFull(conn, header); err != nil {
		return err
	}
	length := binary.LittleEndian.Uint32(header)
	if length < headerBytes || length > maxMessage {
		return fmt.Errorf("a message of %d bytes", length)
	}
	body := make([]byte, length-headerBytes)
	if _, err := io.ReadFull(conn, body); err != nil {
		return err
	}
	kind := binary.LittleEndian.Uint32(header[12:])
	command, silent, err := read(kind, body)
	if err != nil {
		return err
	}
	answer, dated := s.perform(command)
	if dated {
		<-time.NewTimer(apart).C
	}
	reply, err := bson.Marshal(answer)
	if err != nil || silent {
		return err
	}
	_, err = conn.Write(message(kind, header[4:8], reply))
	return err
}

// read reads a command. It is silent where no reply is wanted.
func read(kind uint32, body []byte) (command bson.D, silent bool, err error) {
	switch kind {
	case opQuery: // flags, a name, how many to skip and to return
		end := 4 + bytes.IndexByte(body[4:], 0) + 1 + 8
		if end > len(body) {
			return nil, false, io.ErrUnexpectedEOF
		}
		err = bson.Unmarshal(body[end:], &command)
		return command, false, err
	case opMessage:
		if len(body) < 4 {
			return nil, false, io.ErrUnexpectedEOF
		}
		flags := binary.LittleEndian.Uint32(body)
		if flags&checksumFlag != 0 {
			return nil, false, errors.New("a message with a checksum")
		}
		command, err = readSections(body[4:])
		return command, flags&moreToCome != 0, err
	}
	return nil, false, fmt.Errorf("a message of kind %d", kind)
}

// readSections reads the sections of a message: the command, and lists of documents that
// belong to it.
func readSections(rest []byte) (bson.D, error) {
	var command, lists bson.D
	for len(rest) > 4 {
		size := int(binary.LittleEndian.Uint32(rest[1:]))
		if size < 4 || size > len(rest)-1 {
			return nil, io.ErrUnexpectedEOF
		}
		section := rest[1 : 1+size]
		switch rest[0] {
		case bodySection:
			if err := bson.Unmarshal(section, &command); err != nil {
				return nil, err
			}
		case listSection:
			list, err := readList(section[4:])
			if err != nil {
				return nil, err
			}
			lists = append(lists, list)
		default:
			return nil, fmt.Errorf("a section of kind %d", rest[0])
		}
		rest = rest[1+size:]
	}
	return append(command, lists...), nil
}

// readList reads a section with the documents of a command's list.
func readList(section []byte) (bson.E, error) {
	name, rest, found := bytes.Cut(section, []byte{0})
	if !found {
		return bson.E{}, io.ErrUnexpectedEOF
	}
	documents := bson.A{}
	for len(rest) > 0 {
		if len(rest) < 4 || int(binary.LittleEndian.Uint32(rest)) > len(rest) {
			return bson.E{}, io.ErrUnexpectedEOF
		}
		size := binary.LittleEndian.Uint32(rest)
		var document bson.D
		if err := bson.Unmarshal(rest[:size], &document); err != nil {
			return bson.E{}, err
		}
		documents = append(documents, document)
		rest = rest[size:]
	}
	return bson.E{Key: string(name), Value: documents}, nil
}

// message returns the message that answers one of a kind with that number.
func message(kind uint32, number, reply []byte) []byte {
	before := make([]byte, 5) // flags, and the kind of the section
	if kind == opQuery {
		kind = opReply
		before = make([]byte, 20) // flags, a cursor, and where it begins
		before[16] = 1            // document
	}
	m := binary.LittleEndian.AppendUint32(nil, uint32(headerBytes+len(before)+len(reply)))
	m = append(append(m, 0, 0, 0, 0), number...)
	m = binary.LittleEndian.AppendUint32(m, kind)
	return append(append(m, before...), reply...)
}
