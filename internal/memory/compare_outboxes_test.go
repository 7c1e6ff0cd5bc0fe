package memory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/transition"
)

// outbox draws the outbox of a transfer, as it is stored or as somebody has changed it.
func (r random) outbox(leases []bson.ObjectID) any {
	past, future := bson.DateTime(0), bson.DateTime(1)<<45
	if r.IntN(8) == 0 {
		return []any{nil, 1, "text", bson.D{}, bson.D{{Key: "due", Value: past}}, bson.A{}, bson.A{1, nil}}[r.IntN(7)]
	}
	entries := bson.A{}
	for range 1 + r.IntN(2) {
		e := bson.D{
			{Key: "kind", Value: document.EventKinds()[r.IntN(3)]}, {Key: "at", Value: past},
			{Key: "due", Value: []any{past, past, future, bson.MaxKey{}, "never"}[r.IntN(5)]},
		}
		if r.IntN(2) == 0 {
			e = append(e, bson.E{Key: "by", Value: leases[r.IntN(len(leases))]})
		}
		if attempts := []any{nil, int32(1), int64(2), 3.0, int64(70), "three"}[r.IntN(6)]; attempts != nil {
			e = append(e, bson.E{Key: "attempts", Value: attempts})
		}
		entries = append(entries, e)
	}
	return entries
}

// ofOutbox draws what becomes of an event, or the end that leaves one.
func (r random) ofOutbox(leases []bson.ObjectID) (filter bson.D, update bson.A) {
	if r.IntN(6) == 0 {
		events := document.Events{Failed: r.IntN(2) == 0, Held: r.IntN(2) == 0, Succeeded: r.IntN(2) == 0}
		return transition.FinishByServerTime("t", protocol.Success, time.Hour, events)
	}
	return r.delivery(leases).Update()
}

func (r random) delivery(leases []bson.ObjectID) transition.Delivery {
	ids, kind, most := []string{"t"}, document.EventKinds()[r.IntN(3)], 1+r.IntN(80)
	some := leases[:1+r.IntN(len(leases))]
	switch r.IntN(5) {
	case 0:
		return transition.Delivered(ids, kind, some)
	case 1:
		return transition.Failed(ids, kind, some, most)
	case 2:
		return transition.Undone(ids, kind, some)
	case 3:
		return transition.Redeliver("t")
	}
	return transition.Take(ids, leases[0], most)
}

// What becomes of an event is stored as on a real server.
func TestDeliveriesAreThoseOfAServer(t *testing.T) {
	t.Parallel()
	p, r := newPair(t), newRandom(t)
	leases := []bson.ObjectID{bson.NewObjectID(), bson.NewObjectID()}
	changed := 0
	for n := range 600 {
		stored := bson.D{{Key: "_id", Value: "t"}, {Key: "state", Value: "Committed"}, {Key: "outbox", Value: r.outbox(leases)}}
		for _, name := range []string{"keepUntil", "purgeAt"} {
			if r.IntN(2) == 0 {
				stored = append(stored, bson.E{Key: name, Value: r.date()})
			}
		}
		p.both(func(c *mongo.Collection) (any, error) { return c.InsertOne(t.Context(), stored) })
		filter, update := r.ofOutbox(leases)
		about := fmt.Sprintf("delivery %d of %s: %s", n, text(stored), text(one("u", update)))
		want, got, refused := p.both(func(c *mongo.Collection) (any, error) {
			result, err := c.UpdateOne(t.Context(), filter, update)
			if err != nil {
				return nil, err
			}
			return []int64{result.MatchedCount, result.ModifiedCount}, nil
		})
		require.False(t, refused, about)
		require.Equal(t, want, got, about)
		if want.([]int64)[1] > 0 {
			changed++
		}
		want, got, _ = p.find(bson.D{})
		requireSame(t, withoutNow(t, want), withoutNow(t, got), about)
		p.both(func(c *mongo.Collection) (any, error) { return c.DeleteMany(t.Context(), bson.D{}) })
	}
	require.Greater(t, changed, 150)
}

// withoutNow replaces times of today, which the two servers have read one after the
// other.
func withoutNow(t *testing.T, texts any) []string {
	t.Helper()
	var all []string
	for _, text := range texts.([]string) {
		var d bson.D
		require.NoError(t, bson.UnmarshalExtJSON([]byte(text), true, &d))
		outbox, _ := field(d, "outbox").(bson.A)
		for _, entry := range append(outbox, d) {
			e, _ := entry.(bson.D)
			for i := range e {
				if at, is := e[i].Value.(bson.DateTime); is && time.Until(at.Time()).Abs() < 24*time.Hour {
					e[i].Value = "today"
				}
			}
		}
		data, err := bson.MarshalExtJSON(d, true, false)
		require.NoError(t, err)
		all = append(all, string(data))
	}
	return all
}

func field(d bson.D, name string) any {
	for _, e := range d {
		if e.Key == name {
			return e.Value
		}
	}
	return nil
}
