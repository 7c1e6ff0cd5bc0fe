package config

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
)

// Setup refuses an imitation of MongoDB, by the name of what it lacks, and before
// anything is stored on it.
// Check refuses it as far as reads can show the lack.
func TestImitationsAreRefused(t *testing.T) {
	t.Parallel()
	level := func(command bson.Raw, want string) bool {
		level, _ := command.Lookup("readConcern", "level").StringValueOK()
		return level == want
	}
	name := func(command bson.Raw) string {
		first, err := command.IndexErr(0)
		if err != nil {
			return ""
		}
		return first.Key()
	}
	now := func(command bson.Raw) bool { return bytes.Contains(command, []byte("$$NOW\x00")) }
	for what, row := range map[string]struct {
		refuses func(bson.Raw) bool
		without string
		check   bool // Check finds it too
	}{
		"linearizable read":                {refuses: func(c bson.Raw) bool { return level(c, "linearizable") }, check: true},
		"$$NOW":                            {refuses: now, check: true},
		"$$NOW in an update's filter":      {refuses: func(c bson.Raw) bool { return name(c) == "update" && now(c) }},
		"no write concern majority":        {refuses: func(c bson.Raw) bool { return name(c) == "update" }},
		"operationTime in the answer":      {without: "operationTime"},
		"opTime in the answer":             {without: "opTime"},
		"nothing: it is as good as can be": {},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			reply := bson.D{}
			for _, e := range imitation() {
				if e.Key != row.without {
					reply = append(reply, e)
				}
			}
			server := newFakeServer(t, reply)
			server.refuses = row.refuses
			for verb, call := range map[string]func(*transfer.Coordinator, context.Context) error{
				"Setup": (*transfer.Coordinator).Setup, "Check": (*transfer.Coordinator).Check,
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
				err := call(server.coordinator(t), ctx)
				cancel()
				if row.refuses == nil && row.without == "" {
					require.NotContains(t, err.Error(), "the server of", verb)
					continue
				}
				if verb == "Setup" || row.check {
					require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment, verb)
					require.ErrorContains(t, err, what, verb)
				}
			}
			if row.refuses == nil && row.without == "" {
				return
			}
			server.mu.Lock()
			defer server.mu.Unlock()
			for _, command := range server.asked {
				require.NotContains(t, []string{"findAndModify", "insert", "create", "createIndexes"}, command)
			}
		})
	}
}

// imitation is the fake server's answer to every command: hello, an empty cursor, or no
// matched document, with all the times that MongoDB reports.
func imitation() bson.D {
	at := bson.Timestamp{T: 1_700_000_000, I: 1}
	return bson.D{
		{Key: "maxWireVersion", Value: 17}, {Key: "minWireVersion", Value: 0}, {Key: "setName", Value: "rs0"},
		{Key: "hosts", Value: bson.A{"127.0.0.1:27017"}},
		{Key: "helloOk", Value: true}, {Key: "ismaster", Value: true}, {Key: "isWritablePrimary", Value: true},
		{Key: "maxBsonObjectSize", Value: 16 << 20}, {Key: "maxMessageSizeBytes", Value: 48_000_000},
		{Key: "maxWriteBatchSize", Value: 100_000},
		{Key: "cursor", Value: bson.D{{Key: "id", Value: int64(0)}, {Key: "ns", Value: "bank.x"}, {Key: "firstBatch", Value: bson.A{}}}},
		{Key: "n", Value: 0},
		{Key: "operationTime", Value: at}, {Key: "opTime", Value: bson.D{{Key: "ts", Value: at}, {Key: "t", Value: int64(1)}}},
	}
}
