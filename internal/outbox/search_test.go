package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/outbox"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// A worker that finds more than it can hold, and can take none of it in hand because
// somebody has changed it, delivers what comes after that, and asks no more often than
// one that finds nothing.
func TestWhatCannotBeTakenHoldsUpNobody(t *testing.T) {
	t.Parallel()
	b := storetest.New(t, withEvents)
	past := time.Now().Add(-time.Hour)
	var odd []any
	for i := range 600 {
		odd = append(odd, bson.M{"_id": fmt.Sprint("odd", i), "state": "Success", "outbox": bson.M{"due": past}})
	}
	_, err := b.DB.Collection("transfers").InsertMany(t.Context(), odd)
	require.NoError(t, err)
	put(b, "sound", bson.A{event("succeeded", time.Now().Add(-time.Second), nil, 0)}, nil)

	delivered := make(chan outbox.Event, 10)
	o := outbox.New(outbox.Settings{
		Catalog: b.Store.Catalog, Queries: b.Store.Queries, Hand: outbox.NewHand(all(), time.Now),
		Log: slog.New(slog.DiscardHandler), Now: time.Now, MaxAttempts: 20,
		Ready:  func(context.Context) error { return nil },
		Handle: func(_ context.Context, e outbox.Event) error { delivered <- e; return nil },
	})
	err = o.Beside(t.Context(), func(context.Context) error {
		limit := time.NewTimer(20 * time.Second)
		defer limit.Stop()
		select {
		case e := <-delivered:
			assert.Equal(t, "sound", e.Transfer.ID)
		case <-limit.C:
			assert.Fail(t, "what comes after it is not delivered")
			return nil
		}
		b.Log.Take()
		const span = 3 * time.Second
		timer := time.NewTimer(span)
		<-timer.C
		assert.LessOrEqual(t, len(b.Log.Take()), 40, "three pages a second, each with a find, an update and a look")
		return nil
	})
	require.NoError(t, err)
	require.Empty(t, delivered)
	require.NotContains(t, stored(b, "sound"), "outbox")
}

// A worker that can't search, because of a right that is missing, say, asks again only
// after some seconds.
func TestTroubleIsNotRushed(t *testing.T) {
	t.Parallel()
	b := storetest.New(t, withEvents)
	var asked atomic.Int64
	o := outbox.New(outbox.Settings{
		Catalog: b.Store.Catalog, Queries: b.Store.Queries, Hand: outbox.NewHand(all(), time.Now),
		Log: slog.New(slog.DiscardHandler), Now: time.Now, MaxAttempts: 20,
		Ready:  func(context.Context) error { asked.Add(1); return errors.New("a right is missing") },
		Handle: func(context.Context, outbox.Event) error { return nil },
	})
	require.NoError(t, o.Beside(t.Context(), func(context.Context) error {
		timer := time.NewTimer(3 * time.Second)
		<-timer.C
		return nil
	}))
	require.EqualValues(t, 1, asked.Load())
}
