package history_test

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongotransfer/transfer/internal/history"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/storetest"
)

func TestMain(m *testing.M) { os.Exit(mongotest.Main(m)) }

// bank is a bank whose history is made up by the test.
type bank struct{ *storetest.Bank }

func newBank(t *testing.T, changes ...func(*storetest.Config)) *bank {
	t.Helper()
	return &bank{storetest.New(t, changes...)}
}

// history returns the history of an account in the default ledger.
func (b *bank) history(id string) *history.History {
	b.T.Helper()
	h, err := b.Store.History("", id)
	require.NoError(b.T, err)
	return h
}

// flush keeps the journal flushed until the test ends. Otherwise each linearizable read
// waits for the next flush, up to 100 ms.
func (b *bank) flush() {
	var flushing sync.WaitGroup
	durable := b.DB.Collection("flushed", options.Collection().SetWriteConcern(writeconcern.Majority()))
	flushing.Go(func() {
		for n := 0; b.T.Context().Err() == nil; n++ {
			_, _ = durable.InsertOne(b.T.Context(), bson.M{})
		}
	})
	b.T.Cleanup(flushing.Wait)
}

// moment returns the nth millisecond of the history that these tests make up.
func moment(n int) time.Time { return time.UnixMilli(1_700_000_000_000 + int64(n)).UTC() }

// past returns a committed transfer as it is stored. It has legs on alice, on an account
// of that name in another ledger, and on bob.
func past(id string, at time.Time, units int64) bson.M {
	leg := func(ledger, account string, units int64) bson.M {
		return bson.M{"ledger": ledger, "ns": "x.y", "account": account, "amount": units}
	}
	return bson.M{"_id": id, "state": "Success", "createdAt": at, "committedAt": at, "legs": bson.A{
		leg("eu", "alice", -2*units), leg("", "alice", units), leg("", "bob", units),
	}}
}

// undecided returns a transfer that is prepared and not decided, with a credit of 50 to
// alice.
func undecided(id string) bson.M {
	transfer := past(id, moment(0), 50)
	transfer["state"] = "Preparing"
	delete(transfer, "committedAt")
	return transfer
}

// operationTime returns a Timestamp of the server as a number, 0 if there is none.
func operationTime(value bson.RawValue) uint64 {
	seconds, number, ok := value.TimestampOK()
	if !ok {
		return 0
	}
	return uint64(seconds)<<32 | uint64(number)
}
