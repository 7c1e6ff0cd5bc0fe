package wire

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/mongotest"
)

// Documents are found with as many commands as their IDs need.
// Whatever other programs have stored, such as a marker with a key of a megabyte, no
// command is refused by the server.
func TestManyIDsAreFoundInPortions(t *testing.T) {
	t.Parallel()
	var commands, largest atomic.Int64
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName == "find" {
			commands.Add(1)
			largest.Store(max(largest.Load(), int64(len(e.Command))))
		}
	}}
	accounts := mongotest.Database(t, options.Client().SetMonitor(monitor)).Collection("accounts")
	_, err := accounts.InsertMany(t.Context(), []bson.M{{"_id": "alice"}, {"_id": "bob"}})
	require.NoError(t, err)
	ids := bson.A{"alice"}
	for i := range 40 {
		ids = append(ids, fmt.Sprintf("%03d%s", i, strings.Repeat("x", 1<<20)))
	}
	ids = append(ids, RawValue("bob"))
	found, err := FindByID(t.Context(), accounts, ids, options.Find())
	require.NoError(t, err)
	require.Len(t, found, 2)
	const overhead = 4 << 10 // what the driver adds to a command
	assert.LessOrEqual(t, largest.Load(), int64(MaxCommandBytes+overhead))
	assert.Greater(t, commands.Load(), int64(40<<20/MaxCommandBytes))
}
