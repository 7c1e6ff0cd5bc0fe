package overload

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/mongotest/opmsg"
)

const (
	longEnough = 20 * time.Second // for what must happen
	// aWhile is long enough for what must not happen to show.
	aWhile = 300 * time.Millisecond
)

// road is a line to one server, which echoes everything.
type road struct {
	*line
	server string
}

// openLine opens a line of this width.
func openLine(t *testing.T, bytesPerSecond int) road {
	t.Helper()
	server, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	l := newLine(bytesPerSecond)
	t.Cleanup(l.close)
	return road{l, server.Addr().String()}
}

func dial(t *testing.T, l road) net.Conn {
	t.Helper()
	conn, err := l.DialContext(t.Context(), "tcp", l.server)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(longEnough)))
	return conn
}

// messageOf returns a message with this command and the given number of other bytes.
func messageOf(t *testing.T, command, collection string, besides int) message {
	t.Helper()
	body, err := bson.Marshal(bson.D{
		{Key: command, Value: collection}, {Key: "besides", Value: bson.Binary{Data: make([]byte, besides)}},
	})
	require.NoError(t, err)
	m := binary.LittleEndian.AppendUint32(nil, uint32(opmsg.HeaderBytes+opmsg.FlagBytes+1+len(body)))
	m = binary.LittleEndian.AppendUint32(m, 1)
	m = binary.LittleEndian.AppendUint32(m, 0)
	m = binary.LittleEndian.AppendUint32(m, opmsg.Code)
	m = append(m, 0, 0, 0, 0, 0)
	return append(m, body...)
}

// there requires that a message comes back.
func there(t *testing.T, conn net.Conn, m message) {
	t.Helper()
	back, err := readMessage(conn)
	require.NoError(t, err)
	require.Equal(t, m, back)
}

// nothing requires that nothing comes back for a while.
func nothing(t *testing.T, conn net.Conn) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(aWhile)))
	_, err := conn.Read(make([]byte, 1))
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout())
	require.NoError(t, conn.SetDeadline(time.Now().Add(longEnough)))
}

func send(t *testing.T, conn net.Conn, m message) {
	t.Helper()
	_, err := conn.Write(m)
	require.NoError(t, err)
}

// All connections of a narrow line share its width, and each direction has its own.
func TestNarrowLineIsShared(t *testing.T) {
	t.Parallel()
	const width, each = 200_000, 50_000
	l := openLine(t, width)
	m := messageOf(t, "update", "accounts", each)
	one, other := dial(t, l), dial(t, l)
	begun := time.Now()
	send(t, one, m)
	send(t, other, m)
	there(t, one, m)
	there(t, other, m)
	took := time.Since(begun).Seconds()
	require.Greater(t, took, 2*each/float64(width))
	require.Less(t, took, longEnough.Seconds())
}

// On a silent line nothing arrives, neither on old connections nor on new ones. When it
// flows again, everything does.
func TestSilentLine(t *testing.T) {
	t.Parallel()
	l := openLine(t, 0)
	m := messageOf(t, "update", "accounts", 10)
	old := dial(t, l)
	send(t, old, m)
	there(t, old, m)
	l.set(silent)
	fresh := dial(t, l)
	send(t, old, m)
	send(t, fresh, m)
	nothing(t, old)
	nothing(t, fresh)
	l.set(flowing)
	there(t, old, m)
	there(t, fresh, m)
}

// A line that refuses ends the existing connections and accepts no others until it flows
// again.
func TestRefusingLine(t *testing.T) {
	t.Parallel()
	l := openLine(t, 0)
	m := messageOf(t, "update", "accounts", 10)
	old := dial(t, l)
	send(t, old, m)
	there(t, old, m)
	l.set(refusing)
	_, err := old.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	_, err = l.DialContext(t.Context(), "tcp", l.server)
	require.Error(t, err)
	l.set(flowing)
	fresh := dial(t, l)
	send(t, fresh, m)
	there(t, fresh, m)
}

// Held messages arrive once they are released. Other commands pass meanwhile.
func TestHeldBackCommand(t *testing.T) {
	t.Parallel()
	l := openLine(t, 0)
	l.hold(func(command string) bool { return command == "update accounts" })
	update, find := messageOf(t, "update", "accounts", 10), messageOf(t, "find", "accounts", 10)
	writer, reader := dial(t, l), dial(t, l)
	send(t, writer, update)
	send(t, reader, find)
	there(t, reader, find)
	nothing(t, writer)
	l.hold(nil)
	there(t, writer, update)
}

// A closed line leaves nothing behind, whatever waits on it.
func TestClosedLine(t *testing.T) {
	t.Parallel()
	server, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	l := road{newLine(1), server.Addr().String()}
	send(t, dial(t, l), messageOf(t, "update", "accounts", 100_000))
	l.set(silent)
	dial(t, l)
	closed := make(chan struct{})
	go func() {
		l.close()
		close(closed)
	}()
	ctx, cancel := context.WithTimeout(t.Context(), longEnough)
	defer cancel()
	select {
	case <-closed:
	case <-ctx.Done():
		t.Fatal("it is not closed")
	}
}

// A command is found behind its documents too.
func TestCommandBehindItsDocuments(t *testing.T) {
	t.Parallel()
	m := messageOf(t, "insert", "transfers", 0)
	body := m[opmsg.HeaderBytes+opmsg.FlagBytes:]
	sequence := []byte{1, 9, 0, 0, 0, 'd', 'o', 'c', 's', 0}
	behind := message(append(append(append([]byte{}, m[:opmsg.HeaderBytes+opmsg.FlagBytes]...), sequence...), body...))
	require.Equal(t, "insert transfers", behind.command())
	require.Empty(t, m[:opmsg.HeaderBytes+opmsg.FlagBytes+2].command())
	require.Empty(t, m[:4].command())
}
