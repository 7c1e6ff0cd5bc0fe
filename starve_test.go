package transfer_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
)

// soon is how long a transfer may take that touches no cluster which hangs, whatever waits for
// those that do.
const soon = 2 * time.Second

// abroad are ledgers, each on a cluster of its own as far as a coordinator can tell, whose
// networks can fall silent.
type abroad struct {
	*bank
	net  *silence
	near *transfer.Coordinator // which reaches all of them
	n    int
}

func newAbroad(t *testing.T, n int) *abroad {
	t.Helper()
	a := &abroad{bank: newBank(t, 1_000_000, 0), net: &silence{}, n: n}
	var opts []transfer.Option
	for i := range n {
		a.insert(a.ledger(i), bson.M{"_id": "z", "balance": int64(0)})
		opts = append(opts, transfer.WithLedger(a.ledger(i), a.db.Collection(a.ledger(i))))
	}
	a.near = a.coordinator(a.db, opts...)
	return a
}

func (a *abroad) ledger(i int) string { return fmt.Sprint("abroad", i) }

// far returns a coordinator that reaches each ledger through a network which may be silent.
func (a *abroad) far(opts ...transfer.Option) *transfer.Coordinator {
	a.t.Helper()
	for i := range a.n {
		db := a.through(options.Client().SetDialer(a.net))
		opts = append(opts, transfer.WithLedger(a.ledger(i), db.Collection(a.ledger(i))))
	}
	return a.coordinator(a.db, opts...)
}

// to moves a unit from account a to a ledger abroad.
func (a *abroad) to(i int, id string) transfer.Request {
	return transfer.Request{ID: id, Legs: []transfer.Leg{
		{Account: "a", Amount: transfer.Units(-1)}, {Ledger: a.ledger(i), Account: "z", Amount: transfer.Units(1)},
	}}
}

// queue submits so many transfers to each ledger abroad: one as anybody would, and copies of it.
func (a *abroad) queue(each int) {
	a.t.Helper()
	for i := range a.n {
		id := fmt.Sprint("queued", i)
		_, err := a.near.Submit(a.t.Context(), a.to(i, id))
		require.NoError(a.t, err)
		a.copies(id, each-1, nil)
	}
}

// stall leaves so many transfers to each ledger abroad behind whose process has died.
func (a *abroad) stall(each int, changes bson.M) {
	a.t.Helper()
	for i := range a.n {
		id := fmt.Sprint("stalled", i)
		_, err := a.near.Hold(a.t.Context(), a.to(i, id), time.Hour)
		require.NoError(a.t, err)
		a.copies(id, each, changes)
	}
}

// copies stores copies of a transfer, changed.
func (a *abroad) copies(id string, n int, changes bson.M) {
	a.t.Helper()
	var document bson.M
	require.NoError(a.t, a.db.Collection("transfers").FindOne(a.t.Context(), bson.M{"_id": id}).Decode(&document))
	for field, value := range changes {
		document[field] = value
	}
	var all []any
	for i := range n {
		copied := bson.M{}
		for field, value := range document {
			copied[field] = value
		}
		copied["_id"] = fmt.Sprint(id, "-", i)
		if all = append(all, copied); len(all) == 10_000 || i == n-1 {
			a.insert("transfers", all...)
			all = nil
		}
	}
}

// submitted submits a transfer at home and returns how long it takes to be final.
func (a *abroad) submitted(c *transfer.Coordinator, id string) time.Duration {
	a.t.Helper()
	begun := time.Now()
	_, err := c.Submit(a.t.Context(), move(id, "a", "b", 1))
	require.NoError(a.t, err)
	ctx, cancel := context.WithTimeout(a.t.Context(), 90*time.Second)
	defer cancel()
	_, err = c.Wait(ctx, id)
	require.NoError(a.t, err)
	return time.Since(begun)
}

// warm makes a coordinator meet each ledger abroad.
func (a *abroad) warm(c *transfer.Coordinator) {
	a.t.Helper()
	for i := range a.n {
		_, err := c.Transfer(a.t.Context(), a.to(i, fmt.Sprint("warm", i)))
		require.NoError(a.t, err)
	}
}

// What is submitted for clusters that are away, be it thousands, holds up nothing else: neither
// when a process has never met them, nor when they fall silent while it works.
func TestSubmittedForTheDead(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		dead, queued int
		met          bool
	}{
		"one, never met":   {1, 3000, false},
		"one, met before":  {1, 3000, true},
		"four, never met":  {4, 1000, false},
		"four, met before": {4, 1000, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAbroad(t, row.dead)
			c := a.far()
			if row.met {
				a.warm(c)
			}
			end := inBackground(t, c)
			usual := a.submitted(c, "before")
			a.net.set(true)
			a.queue(row.queued)
			for i := range 3 {
				took := a.submitted(a.near, fmt.Sprint("meanwhile", i))
				t.Log("usually ", usual, ", then ", took)
				require.Less(t, took, soon+4*usual)
			}
			kill(c)
			end()
		})
	}
}
