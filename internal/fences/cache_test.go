package fences

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// subject returns the n-th of some participants.
func subject(n int) collections.Subject {
	return collections.Subject{ID: fmt.Sprintf("account-%09d", n)}
}

// token returns the fence of the n-th participant.
func token(n int) protocol.Fence {
	return document.FenceOfToken(bson.ObjectID{1, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// A read of the memory returns what was learned, or nothing.
// If a memory of this size has room for all participants, nearly all of them are known,
// each by its own fence.
func TestFenceMemoryHoldsWhatItShould(t *testing.T) {
	t.Parallel()
	const bytes = 4 << 20
	room := int(bytes / EntryBytes)
	c := New(time.Now, bytes)
	for i := range room * 3 / 4 {
		c.Learn(subject(i), token(i), document.Floor{}, 0)
	}
	known := 0
	for i := range room {
		found, ok := c.Get(subject(i), 100)
		if ok {
			known++
			require.Equal(t, token(i), found.Fence)
		}
	}
	assert.Greater(t, known, room*73/100)
	assert.Equal(t, known, c.Len())
}

// The memory stays within its limits, whatever is learned, and takes no more than it
// needs.
func TestFenceMemoryIsBounded(t *testing.T) {
	t.Parallel()
	for _, bytes := range []int64{LeastMemory, 3<<20 + 12345} {
		c := New(time.Now, bytes)
		assert.Zero(t, c.bytes())
		c.Learn(subject(0), token(0), document.Floor{}, 0)
		assert.LessOrEqual(t, c.bytes(), 4<<10)
		for i := range int(2 * bytes / EntryBytes) {
			c.Learn(subject(i), token(i), document.Floor{}, 0)
		}
		assert.LessOrEqual(t, int64(c.bytes()), bytes)
		assert.Greater(t, int64(c.Len())*EntryBytes, bytes*95/100, "and there is no room left")
	}
}

// bytes returns the size of the entries.
func (c *Cache) bytes() int {
	n := 0
	for i := range c.shards {
		n += cap(c.shards[i].entries) * int(EntryBytes)
	}
	return n
}

// If there is no room for all, the used ones stay, so that a transfer between busy
// accounts doesn't pay for millions of idle ones.
func TestUsedFencesStay(t *testing.T) {
	t.Parallel()
	c := New(time.Now, LeastMemory)
	room := int(LeastMemory / EntryBytes)
	busy := room / 4
	for i := range busy {
		c.Learn(subject(i), token(i), document.Floor{}, 0)
	}
	missed := 0
	for i := range 20 * room { // each is read four times while 20 times the memory's room passes through it
		c.Learn(subject(busy+i), token(i), document.Floor{}, 0)
		if _, ok := c.Get(subject(i%busy), 100); !ok {
			missed++
			c.Learn(subject(i%busy), token(i%busy), document.Floor{}, 0)
		}
	}
	assert.Less(t, missed, 20*room/100)
}

// A forgotten fence is not known. A fence that a write has changed is known as it is
// since.
func TestFenceMemoryFollowsWrites(t *testing.T) {
	t.Parallel()
	var (
		c      = New(time.Now, LeastMemory)
		random = rand.New(rand.NewPCG(1, 2))
		model  = map[int]protocol.Fence{}
	)
	for n := range 20_000 {
		i := random.IntN(200)
		switch random.IntN(4) {
		case 0:
			c.Learn(subject(i), token(n), document.Floor{}, 0)
			model[i] = token(n)
		case 1:
			c.Applied(subject(i), token(n), 0)
			if model[i] != "" {
				model[i] = token(n)
			}
		case 2:
			c.Forget(subject(i))
			delete(model, i)
		default:
			found, ok := c.Get(subject(i), 100)
			require.Equal(t, model[i] != "", ok)
			require.Equal(t, model[i], found.Fence)
		}
	}
}

// Floors of every kind read back as they were stored, because a debit names the floor
// that its bound was computed with.
func TestKnownFloors(t *testing.T) {
	t.Parallel()
	c := New(time.Now, LeastMemory)
	decimal := func(text string) bson.Decimal128 {
		d, err := bson.ParseDecimal128(text)
		require.NoError(t, err)
		return d
	}
	for i, stored := range []any{nil, int32(-7), int64(-1 << 40), decimal("-12.50"), decimal("1E+6"), bson.MinKey{}} {
		raw, err := bson.Marshal(bson.M{"floor": stored})
		require.NoError(t, err)
		want := document.Fields{Floor: "floor"}.View(raw).Floor()
		c.Learn(subject(i), token(i), want, 0)
		found, ok := c.Get(subject(i), 100)
		require.True(t, ok)
		require.True(t, want.Stored.Equal(found.Floor.Stored), "%v", stored)
		require.Equal(t, want.None, found.Floor.None)
		require.Zero(t, want.Amount.Cmp(found.Floor.Amount))
	}
}

// An account with many markers never seems to have few, even with more than the count
// holds.
func TestManyMarkersAreNoFew(t *testing.T) {
	t.Parallel()
	c := New(time.Now, LeastMemory)
	for i, markers := range []int{1 << 15, 1 << 16, 1<<16 + 1, 1 << 20} {
		c.Learn(subject(i), token(i), document.Floor{}, markers)
		_, ok := c.Get(subject(i), 8192)
		require.False(t, ok, markers)
	}
	c.Learn(subject(9), token(9), document.Floor{}, 1<<15-1)
	c.Applied(subject(9), "", 1)
	_, ok := c.Get(subject(9), 8192)
	require.False(t, ok)
}

// BenchmarkFenceMemory measures the memory of a million accounts, and the time to read
// one.
func BenchmarkFenceMemory(b *testing.B) {
	const accounts = 1_000_000
	subjects := make([]collections.Subject, accounts)
	for i := range subjects {
		subjects[i] = subject(i)
	}
	c := New(time.Now, 64<<20)
	before := heap()
	for i, s := range subjects {
		c.Learn(s, token(i), document.Floor{}, 0)
	}
	perAccount := float64(heap()-before) / accounts
	known := float64(c.Len()) / accounts
	b.Run("get", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				c.Get(subjects[rand.IntN(accounts)], 4096)
			}
		})
		b.ReportMetric(perAccount, "bytes/account")
		b.ReportMetric(known, "known")
	})
	runtime.KeepAlive(subjects)
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
