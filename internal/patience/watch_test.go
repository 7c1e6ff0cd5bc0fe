package patience

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// putOff stores a transfer that has waited for long, and puts it off: for 45 s at least.
func (d *desk) putOff(id string, legs ...document.Leg) document.Transfer {
	d.T.Helper()
	d.submitted(id, time.Now().Add(time.Hour), legs...)
	d.Change("transfers", id, bson.M{"$set": bson.M{"postponed": int64(9)}})
	d.requireAdmitted(false, d.read(id))
	t := d.read(id)
	require.Greater(d.T, time.Until(t.NotBefore), 30*time.Second)
	return t
}

// Money that comes in is noticed in each ledger, before a long pause ends.
func TestWatch(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.Put(storetest.Account("alice", nil), storetest.Account("bob", nil))
	d.PutIn("accounts_eu", storetest.Account("alice", nil))
	here := d.putOff("here", d.Leg("alice", -150), d.Leg("bob", 150))
	abroad := d.putOff("abroad", d.LegIn("eu", "alice", d.Leg("", -150).Amount), d.Leg("bob", 150))
	ctx, stop := context.WithCancel(t.Context())
	var (
		found atomic.Int64
		watch sync.WaitGroup
	)
	watch.Go(func() { d.patience.Watch(ctx, func() { found.Add(1) }) })
	for _, collection := range []string{"accounts", "accounts_eu"} {
		d.Change(collection, "alice", bson.M{"$set": bson.M{"balance": int64(150)}})
	}
	require.Eventually(t, func() bool { return found.Load() == 2 }, time.Minute, 10*time.Millisecond)
	stop()
	watch.Wait()
	require.True(t, d.read("here").NotBefore.Before(here.NotBefore))
	require.True(t, d.read("abroad").NotBefore.Before(abroad.NotBefore))
}

// As many transfers become due as an account can pay above its floor.
// The others, and those who wait for other money, go on waiting.
func TestWhatCanBePaidBecomesDue(t *testing.T) {
	t.Parallel()
	w := newDesk(t)
	w.Put(storetest.Account("alice", nil), storetest.Account("bob", nil), storetest.Account("carol", nil))
	w.PutIn("accounts_eu", storetest.Account("alice", nil))
	var before []document.Transfer
	for i := range 3 {
		before = append(before, w.putOff(fmt.Sprint("t", i), w.Leg("alice", -150), w.Leg("bob", 150)))
	}
	carols := w.putOff("carols", w.Leg("carol", -150), w.Leg("bob", 150))
	abroad := w.putOff("abroad", w.LegIn("eu", "alice", w.Leg("", -150).Amount), w.Leg("bob", 150))
	w.Change("accounts", "alice", bson.M{"$set": bson.M{"balance": int64(450), "floor": int64(1)}})
	require.True(t, w.patience.hasten(t.Context(), ""))
	for i := range 2 {
		got := w.read(before[i].ID)
		require.False(t, got.NotBefore.After(time.Now().Add(time.Second)), "it is due")
		require.EqualValues(t, 10, got.Postponed)
		require.Equal(t, protocol.Initiated, got.State)
		require.Equal(t, before[i].Waiting, got.Waiting)
		require.True(t, got.LastModified.After(before[i].LastModified))
		w.requireAdmitted(true, got)
	}
	for _, other := range []document.Transfer{before[2], carols, abroad} {
		require.Equal(t, other, w.read(other.ID), "nobody has touched it")
	}
	require.False(t, w.patience.hasten(t.Context(), "eu"))
	require.Equal(t, abroad, w.read("abroad"))
}

// A pause is ended only as it was made: not that of a transfer that was claimed,
// cancelled, put off again, or is another one of the same ID.
func TestOnlyWhatWasPutOffIsHastened(t *testing.T) {
	t.Parallel()
	w := newDesk(t)
	w.Put(storetest.Account("alice", nil), storetest.Account("bob", nil))
	now := time.Now().UTC().Truncate(time.Millisecond)
	stored := map[string]bson.Raw{}
	for name, change := range map[string]bson.M{
		"claimed":             {"state": "Preparing"},
		"final":               {"state": "Fail"},
		"another payload":     {"digest": bson.Binary{Subtype: 0x80, Data: []byte{1, 43}}},
		"another deadline":    {"fundsUntil": now.Add(2 * time.Hour)},
		"one that won't wait": {"fundsUntil": nil},
		"another time":        {"notBefore": now.Add(time.Hour)},
		"put off again":       {"postponed": int64(11)},
	} {
		w.putOff(name, w.Leg("alice", -101), w.Leg("bob", 101))
		w.Change("transfers", name, bson.M{"$set": change})
		stored[name] = w.Raw("transfers", name)
	}
	last := w.putOff("as it was", w.Leg("alice", -101), w.Leg("bob", 101))
	w.Change("accounts", "alice", bson.M{"$set": bson.M{"balance": int64(1000)}})
	require.True(t, w.patience.hasten(t.Context(), ""))
	require.NotEqual(t, last.NotBefore, w.read(last.ID).NotBefore)
	for name, before := range stored {
		require.Equal(t, before, w.Raw("transfers", name), name)
	}
}

// While nothing waits, nothing is sent.
// While something does, a look is one read, and one that fails is repeated.
func TestWatchCostsLittle(t *testing.T) {
	d := newDesk(t)
	d.Put(storetest.Account("alice", nil), storetest.Account("bob", nil))
	d.Log.Take()
	require.False(t, d.patience.hasten(t.Context(), ""))
	require.Empty(t, d.Log.Take())
	put := d.putOff("t", d.Leg("alice", -101), d.Leg("bob", 101))
	before := d.Raw("transfers", "t")
	d.Log.Take()
	require.False(t, d.patience.hasten(t.Context(), ""))
	sent := d.Log.Take()
	require.Len(t, sent, 1)
	require.Equal(t, "find", sent[0].Name)
	d.Change("accounts", "alice", bson.M{"$set": bson.M{"balance": int64(1000)}})
	for _, command := range []string{"find", "update"} {
		stop := d.Failing(10, []string{command}, bson.M{"errorCode": 96})
		require.False(t, d.patience.hasten(t.Context(), ""), command)
		require.Equal(t, before, d.Raw("transfers", "t"))
		stop()
	}
	require.True(t, d.patience.hasten(t.Context(), ""))
	require.NotEqual(t, put.NotBefore, d.read("t").NotBefore)
	d.Log.Take()
	require.False(t, d.patience.hasten(t.Context(), ""))
	require.Empty(t, d.Log.Take(), "it is made due once")
}
