package events

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// errRefused is what a handler returns that does not take an event.
var errRefused = errors.New("not now")

// inbox is a consumer of events.
type inbox struct {
	mu       sync.Mutex
	all      []transfer.Event
	judge    func(context.Context, transfer.Event) error // nil: every event is taken
	arrivals chan struct{}                               // receives a value when an event has arrived
}

func newInbox() *inbox { return &inbox{arrivals: make(chan struct{}, 1)} }

// handle takes an event, or not.
func (i *inbox) handle(ctx context.Context, e transfer.Event) error {
	var err error
	if i.judge != nil {
		err = i.judge(ctx, e)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if err == nil {
		i.all = append(i.all, e)
	}
	select {
	case i.arrivals <- struct{}{}:
	default:
	}
	return err
}

// option is that of a process that delivers into the inbox.
func (i *inbox) option(kinds ...transfer.EventKind) transfer.Option {
	return transfer.WithEvents(transfer.EventHandler{Handle: i.handle, Kinds: kinds})
}

// silent is the option of a process that delivers nothing.
func silent(kinds ...transfer.EventKind) transfer.Option {
	return transfer.WithEvents(transfer.EventHandler{Kinds: kinds})
}

// taken returns the events that were taken, by their IDs.
func (i *inbox) taken() map[string][]transfer.Event {
	i.mu.Lock()
	defer i.mu.Unlock()
	byID := map[string][]transfer.Event{}
	for _, e := range i.all {
		byID[e.ID] = append(byID[e.ID], e)
	}
	return byID
}

// await waits until all of some events have been taken.
func (i *inbox) await(t *testing.T, ids ...string) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		taken, missing := i.taken(), ""
		for _, id := range ids {
			if len(taken[id]) == 0 {
				missing = id
			}
		}
		if missing == "" {
			return
		}
		select {
		case <-i.arrivals:
		case <-deadline.C:
			require.FailNow(t, "an event was not delivered", "%s, of %d; %d are", missing, len(ids), len(taken))
		}
	}
}

// patience is how long a busy machine may take for what must come.
const patience = 5 * time.Minute

// requireDelivered waits until nothing is undelivered, and requires that nothing of an
// outbox is left in any transfer.
func requireDelivered(b *bank.Bank) {
	b.T.Helper()
	require.Eventually(b.T, func() bool {
		n, err := b.Count(b.T.Context(), transfer.Query{Undelivered: true})
		return err == nil && n == 0
	}, patience, 10*time.Millisecond)
	for _, stored := range b.Raw("transfers") {
		require.NotContains(b.T, stored, "outbox", "of %v", stored["_id"])
		require.NotContains(b.T, stored, "keepUntil", "of %v", stored["_id"])
	}
}

// outboxOf returns the outbox of a transfer as it is stored.
func outboxOf(b *bank.Bank, id string) []bson.M {
	b.T.Helper()
	var stored struct{ Outbox []bson.M }
	require.NoError(b.T, b.DB.Collection("transfers").FindOne(b.T.Context(), bson.M{"_id": id}).Decode(&stored))
	return stored.Outbox
}

// eventIDs returns the IDs of events of one kind.
func eventIDs(kind transfer.EventKind, transfers ...string) []string {
	ids := make([]string, len(transfers))
	for i, id := range transfers {
		ids[i] = id + ":" + string(kind)
	}
	return ids
}
