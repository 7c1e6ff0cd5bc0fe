package config

import (
	"context"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// codecs returns registries with codecs that store a service's own values in other forms.
func codecs() map[string]*bson.Registry {
	encoder := func(of any, write func(w bson.ValueWriter, v reflect.Value) error) *bson.Registry {
		r := bson.NewRegistry()
		r.RegisterTypeEncoder(reflect.TypeOf(of), bson.ValueEncoderFunc(
			func(_ bson.EncodeContext, w bson.ValueWriter, v reflect.Value) error { return write(w, v) }))
		return r
	}
	ownTexts := bson.NewRegistry()
	type text string
	ownTexts.RegisterTypeMapEntry(bson.TypeString, reflect.TypeOf(text("")))
	return map[string]*bson.Registry{
		"times as texts": encoder(time.Time{}, func(w bson.ValueWriter, v reflect.Value) error {
			return w.WriteString(v.Interface().(time.Time).Format(time.RFC3339Nano))
		}),
		"times in seconds": encoder(time.Time{}, func(w bson.ValueWriter, v reflect.Value) error {
			return w.WriteDateTime(v.Interface().(time.Time).Unix() * 1000)
		}),
		"texts trimmed": encoder("", func(w bson.ValueWriter, v reflect.Value) error {
			return w.WriteString(strings.TrimSpace(v.String()))
		}),
		"texts in lower case": encoder("", func(w bson.ValueWriter, v reflect.Value) error {
			return w.WriteString(strings.ToLower(v.String()))
		}),
		"whole numbers as texts": encoder(int64(0), func(w bson.ValueWriter, _ reflect.Value) error {
			return w.WriteString("n")
		}),
		"texts of a type": ownTexts,
	}
}

// handed is an event handler that keeps the IDs of the transfers that it was told of.
type handed struct {
	mu  sync.Mutex
	ids map[string]bool
}

func (h *handed) handle(_ context.Context, e transfer.Event) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ids[e.Record.ID] = true
	return nil
}

func (h *handed) has(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ids[id]
}

// Whatever codecs the client has, the library reads what it has written, and each verb
// finds the transfer that it was asked about.
func TestCodecsOfTheClientDontCount(t *testing.T) {
	t.Parallel()
	for name, registry := range codecs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			box := &handed{ids: map[string]bool{}}
			events := transfer.WithEvents(transfer.EventHandler{Handle: box.handle})
			b := bank.NewWith(t, []transfer.Option{events}, 100, 0)
			b.MustHold("h", 1, time.Hour)
			b.MustHold("H", 2, time.Hour)
			b.MustHold("h ", 4, time.Hour)
			first, second := movedApart(t, b)

			c := b.NewCoordinator(b.Through(options.Client().SetRegistry(registry)), events)
			require.NoError(t, c.Setup(t.Context()))
			before, err := c.BalanceAt(t.Context(), "a", second.CommittedAt.Add(-time.Millisecond))
			require.NoError(t, err)
			require.Equal(t, transfer.Units(90), before)
			var entries, page []string
			for e, err := range c.Statement(t.Context(), "a", transfer.StatementQuery{}) {
				require.NoError(t, err)
				entries = append(entries, e.TransferID)
			}
			require.Equal(t, []string{first.ID, second.ID}, entries)
			for rec, err := range c.List(t.Context(), transfer.Query{Beyond: first.ID}) {
				require.NoError(t, err)
				page = append(page, rec.ID)
			}
			require.Equal(t, []string{"h ", "H", "h"}, page)
			for _, id := range []string{"h ", "H"} {
				posted, err := c.Post(t.Context(), id)
				require.NoError(t, err)
				require.Equal(t, id, posted.ID)
			}
			_, err = c.Transfer(t.Context(), bank.Move("third", "a", "b", 20))
			require.NoError(t, err)
			held, err := b.Get(t.Context(), "h")
			require.NoError(t, err)
			require.True(t, held.Held)
			_, err = c.Void(t.Context(), "h")
			require.NoError(t, err)
			b.CheckBooks(map[string]int64{"a": 100, "b": 0})

			running, stop := context.WithCancel(t.Context())
			var all sync.WaitGroup
			all.Go(func() { _ = c.Run(running) })
			require.Eventually(t, func() bool { return box.has(second.ID) }, time.Minute, 10*time.Millisecond)
			stop()
			all.Wait()
		})
	}
}

// movedApart returns two transfers from a to b, of 10 and 1, that were committed about a
// second apart, so that a codec that leaves out fractions changes which is earlier.
func movedApart(t *testing.T, b *bank.Bank) (first, second transfer.Record) {
	t.Helper()
	move := func(id string, units int64) transfer.Record {
		b.MustMove(id, units)
		rec, err := b.Get(t.Context(), id)
		require.NoError(t, err)
		return rec
	}
	first = move("first", 10)
	require.Eventually(t, func() bool {
		return time.Since(first.CommittedAt) > time.Second
	}, time.Minute, time.Millisecond)
	return first, move("second", 1)
}

// A worker goes on although the session of its context has ended, and leaves one that is
// in a transaction alone.
func TestWorkersUseNoSession(t *testing.T) {
	t.Parallel()
	for _, ended := range []bool{false, true} {
		box := &handed{ids: map[string]bool{}}
		events := transfer.WithEvents(transfer.EventHandler{Handle: box.handle})
		b := bank.NewWith(t, []transfer.Option{events}, 100, 0)
		b.MustMove("another's", 1)
		c := b.NewCoordinator(b.DB, events)
		session, err := b.DB.Client().StartSession()
		require.NoError(t, err)
		require.NoError(t, session.StartTransaction())
		inside := mongo.NewSessionContext(t.Context(), session)
		if ended {
			session.EndSession(inside)
		}
		running, stop := context.WithCancel(inside)
		var all sync.WaitGroup
		all.Go(func() { _ = c.Run(running) })
		require.Eventually(t, func() bool { return box.has("another's") }, time.Minute, 10*time.Millisecond)
		if !ended {
			_, err := b.DB.Collection("notes").InsertOne(inside, bson.M{"_id": 1})
			require.NoError(t, err)
			require.NoError(t, session.CommitTransaction(inside))
			session.EndSession(inside)
		}
		stop()
		all.Wait()
		b.CheckBooks(map[string]int64{"a": 100, "b": 0})
	}
}
