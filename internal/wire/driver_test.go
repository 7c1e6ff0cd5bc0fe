package wire

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/auth"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// The driver calls its x/ packages experimental, so what this package uses of them may
// change with any release.
// These tests state what that is, and `make driver` runs them with the newest one.

// Each method of a message appends what the driver's own encoder would have written.
func TestMessagesAreEncodedAsTheDriverDoes(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_700_000_000_123).UTC()
	id := bson.ObjectID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	decimal, err := money.Parse("-12.50")
	require.NoError(t, err)
	for name, row := range map[string]struct {
		write func(*Message)
		value any
	}{
		"text":       {func(m *Message) { m.Text("x", "Grüße\x00") }, "Grüße\x00"},
		"number":     {func(m *Message) { m.Number("x", -1<<62) }, int64(-1 << 62)},
		"true":       {func(m *Message) { m.Flag("x", true) }, true},
		"false":      {func(m *Message) { m.Flag("x", false) }, false},
		"null":       {func(m *Message) { m.Null("x") }, nil},
		"date":       {func(m *Message) { m.Date("x", at) }, at},
		"binary":     {func(m *Message) { m.Binary("x", 0, []byte{1, 0, 2}) }, []byte{1, 0, 2}},
		"subtype":    {func(m *Message) { m.Binary("x", 0x80, []byte{1}) }, bson.Binary{Subtype: 0x80, Data: []byte{1}}},
		"id":         {func(m *Message) { m.ObjectID("x", id) }, id},
		"units":      {func(m *Message) { m.Amount("x", money.Units(-60)) }, int64(-60)},
		"decimal":    {func(m *Message) { m.Amount("x", decimal) }, decimal.Value()},
		"value":      {func(m *Message) { m.Value("x", RawValue(bson.Timestamp{T: 1, I: 2})) }, bson.Timestamp{T: 1, I: 2}},
		"raw text":   {func(m *Message) { m.Value("x", RawText("order")) }, "order"},
		"document":   {func(m *Message) { m.Document("x", encoded(t, bson.M{"y": int32(1)})) }, bson.M{"y": int32(1)}},
		"nested":     {func(m *Message) { m.Begin("x"); m.Begin("y"); m.End(); m.End() }, bson.M{"y": bson.M{}}},
		"array":      {func(m *Message) { m.BeginArray("x"); m.Text("0", "a"); m.Null("1"); m.End() }, bson.A{"a", nil}},
		"after many": {func(m *Message) { m.BeginArray("x"); m.End() }, bson.A{}},
	} {
		m := NewMessage(0)
		row.write(m)
		m.End()
		require.Equal(t, encoded(t, bson.D{{Key: "x", Value: row.value}}), bson.Raw(m.Data), name)
	}
}

// The driver's errors are recognised by type, however deeply they are wrapped, and no
// type is mistaken for another one.
func TestDriverErrorsAreRecognised(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		err                  error
		text                 string
		cleared, unconnected bool
	}{
		"no server":     {topology.ServerSelectionError{Wrapped: context.DeadlineExceeded}, "no server is known", false, false},
		"no connection": {topology.WaitQueueTimeoutError{Wrapped: context.DeadlineExceeded}, "pool was free in time", false, false},
		"handshake":     {&auth.Error{}, "", false, true},
		"cleared pool":  {clearedPool{errors.New("another one has failed")}, "another one has failed", true, false},
		"deadline":      {context.DeadlineExceeded, "no answer in time", false, false},
	} {
		wrapped := fmt.Errorf("wrapped: %w", fmt.Errorf("again: %w", row.err))
		require.Contains(t, ServerTextOf(wrapped), row.text, name)
		require.Equal(t, row.cleared, Cleared(wrapped), name)
		require.Equal(t, row.unconnected, unconnected(wrapped), name)
	}
	refused := fmt.Errorf("wrapped: %w", driver.Error{Code: 18, Name: "AuthenticationFailed"})
	require.Equal(t, "server error 18 AuthenticationFailed", ServerTextOf(refused))
}

// clearedPool is the driver's error for a connection that it gives up because another one
// was refused.
type clearedPool struct{ error }

// Retryable implements driver.RetryablePoolError.
func (clearedPool) Retryable() bool { return true }

// A command without an available server was certainly not sent. The driver's error says
// so, and names the servers it has searched for.
func TestNoServer(t *testing.T) {
	t.Parallel()
	away := options.Client().ApplyURI("mongodb://127.0.0.1:1/?directConnection=true").SetServerSelectionTimeout(100 * time.Millisecond)
	client, err := mongo.Connect(away)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	result, err := InsertOne(t.Context(), client.Database("bank").Collection("accounts"), bson.M{"_id": "a"})
	require.Equal(t, protocol.NotSent, result)
	require.ErrorContains(t, err, "server selection error: no fit server among 127.0.0.1:1: connection error: dial tcp")
}
