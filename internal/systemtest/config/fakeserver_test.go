package config

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// fakeServer answers every command with one document, as a server answers hello, and
// records the commands.
type fakeServer struct {
	address string
	hello   bson.D
	refuses func(command bson.Raw) bool // answered with an error
	mu      sync.Mutex
	asked   []string
	all     sync.WaitGroup
	conns   []net.Conn
}

// newFakeServer starts a server that reports the given fields. It ends with the test.
func newFakeServer(t *testing.T, hello bson.D) *fakeServer {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &fakeServer{address: listener.Addr().String(), hello: hello}
	s.all.Add(1)
	go func() {
		defer s.all.Done()
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.serve(conn)
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		s.mu.Lock()
		for _, conn := range s.conns {
			_ = conn.Close()
		}
		s.mu.Unlock()
		s.all.Wait()
	})
	return s
}

// serve answers the messages of a connection until it is closed.
func (s *fakeServer) serve(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, conn)
	s.all.Add(1)
	go func() {
		defer s.all.Done()
		defer func() { _ = conn.Close() }()
		for s.answer(conn) == nil {
		}
	}()
}

// answer reads one message and answers it.
func (s *fakeServer) answer(conn net.Conn) error {
	header := make([]byte, bank.HeaderBytes)
	if _, err := io.ReadFull(conn, header); err != nil {
		return err
	}
	body := make([]byte, binary.LittleEndian.Uint32(header)-bank.HeaderBytes)
	if _, err := io.ReadFull(conn, body); err != nil {
		return err
	}
	reply, err := bson.Marshal(append(bson.D{{Key: "ok", Value: 1}, {Key: "localTime", Value: time.Now()}}, s.hello...))
	if err != nil {
		return err
	}
	var command bson.Raw
	kind := binary.LittleEndian.Uint32(header[12:])
	switch kind {
	case bank.OpMsg: // flags and the kind of section come before the document
		command = body[5:]
		kind, reply = bank.OpMsg, append(make([]byte, 5), reply...)
	case bank.OpQuery: // flags, a name, how many to skip and to return
		command = body[4+bytes.IndexByte(body[4:], 0)+1+8:]
		// Flags, cursor, offset, and the number of documents: one.
		kind, reply = bank.OpReply, append(append(make([]byte, 16), 1, 0, 0, 0), reply...)
	default:
		return errors.New("an unknown kind of message")
	}
	if err := s.takeDown(command); err != nil {
		return err
	}
	if s.refuses != nil && kind == bank.OpMsg && s.refuses(command) {
		refusal, err := bson.Marshal(bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: 238}, {Key: "errmsg", Value: "not implemented"}})
		if err != nil {
			return err
		}
		reply = append(make([]byte, 5), refusal...)
	}
	message := binary.LittleEndian.AppendUint32(nil, uint32(bank.HeaderBytes+len(reply)))
	message = append(message, 0, 0, 0, 0)
	message = append(message, header[4:8]...)
	message = binary.LittleEndian.AppendUint32(message, kind)
	_, err = conn.Write(append(message, reply...))
	return err
}

// takeDown records a command's name, which is its first key.
func (s *fakeServer) takeDown(command bson.Raw) error {
	first, err := command.IndexErr(0)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, first.Key())
	return nil
}

// coordinator returns a coordinator over a database on the fake server.
func (s *fakeServer) coordinator(t *testing.T) *transfer.Coordinator {
	t.Helper()
	client := bank.Client(t, "mongodb://"+s.address+"/?directConnection=true")
	c, err := transfer.NewCoordinator(client.Database("bank"))
	require.NoError(t, err)
	t.Cleanup(func() { bank.Kill(c) })
	return c
}
