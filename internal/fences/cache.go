// Package fences remembers the fences of participants, so that a transfer between known
// ones needs no read before it is claimed. It knows no server: what a majority has stored
// is handed in.
package fences

import (
	"hash/maphash"
	"math"
	"time"
	"unsafe"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
)

const (
	// maxAge is how long a fence is believed without a read where the participant is
	// not quiet, or has no fence yet. Only a read shows how many transfers other
	// processes have in flight on it.
	maxAge = time.Minute
	// QuietShare says below which part of the marker limit a participant is quiet. What
	// is known of a quiet one does not get old. An old fence is safe: it costs no more
	// than a refused prepare. And one process puts no more than this part of the limit
	// on the participant before it reads again. Then it believes what it has read for
	// as long as maxAge: of several processes each may come close to the limit by itself.
	QuietShare = 64
)

const (
	// EntryBytes is the memory that the fence of one participant takes.
	EntryBytes = int64(unsafe.Sizeof(entry{}))
	// LeastMemory is the smallest memory of fences, other than none.
	LeastMemory = 1 << 20
	// shardCount is the number of parts of the memory, each with a lock of its own. The
	// memory grows part by part: a caller waits for one of them to be moved at most.
	shardCount = 64
)

// Known is what is known of a participant. Only what a majority has stored gets in, from
// a majority read or an acknowledged write.
//
//  1. A sends a new fence, which a primary alone stores.
//  2. B learns it and pins it.
//  3. The primary fails, the fence is rolled back, and A's repeat of it arrives later:
//     B's late prepares match again.
type Known struct {
	// Fence is the fence, as it was read or set.
	Fence protocol.Fence
	// Floor is the floor, as it was read.
	Floor document.Floor
}

// Cache remembers the fences of participants, so that a transfer between known ones
// needs no read. It is bounded in bytes, and takes no more than it needs.
type Cache struct {
	now    func() time.Time
	start  time.Time // that its times count from
	seeds  [2]maphash.Seed
	shards []shard // none: nothing is remembered

	maxEntries int // of a shard
}

// New returns a cache that takes at most the given memory. With 0 bytes it
// remembers nothing.
func New(now func() time.Time, bytes int64) *Cache {
	c := &Cache{now: now, start: now(), seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	if bytes > 0 {
		c.shards = make([]shard, shardCount)
		c.maxEntries = max(int(bytes/shardCount/EntryBytes), windowSize)
	}
	return c
}

// Len returns how many participants are known.
func (c *Cache) Len() int {
	n := 0
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for j := range s.entries {
			if s.entries[j].key != (fingerprint{}) {
				n++
			}
		}
		s.mu.Unlock()
	}
	return n
}

// Get returns what is known, unless it is old or too many transfers may be in flight.
func (c *Cache) Get(subject collections.Subject, markerLimit int) (Known, bool) {
	s, key := c.shard(subject)
	if s == nil {
		return Known{}, false
	}
	now := c.seconds()
	s.mu.Lock()
	e := s.find(key)
	if e == nil || !e.believed(now, markerLimit) {
		s.mu.Unlock()
		return Known{}, false
	}
	s.use(e)
	found := *e
	s.mu.Unlock()
	return found.known(), true
}

// believed reports whether what is known of a participant is not old, and the marker
// limit leaves room for one more transfer.
//
// A participant without a fence gets old, however quiet it is.
//
//  1. An account without a fence is remembered, and deleted an hour later.
//  2. A credit is sent to it, under no fence, and hangs in the network; the transfer
//     fails.
//  3. The account is put back, without a fence, and the message arrives: it leaves a
//     marker for ever.
//
// So nothing is sent to a document that does not exist, and only a read shows that it
// does not.
func (e *entry) believed(now uint32, markerLimit int) bool {
	markers := int(e.markers)
	quiet := e.hasToken() && markers*QuietShare < markerLimit
	return markers < markerLimit && (quiet || now-e.read < uint32(maxAge/time.Second))
}

// Learn remembers what a majority read has shown. It does not remember a fence or a floor
// that this library would not write.
func (c *Cache) Learn(subject collections.Subject, fence protocol.Fence, f document.Floor, markers int) {
	s, key := c.shard(subject)
	if s == nil {
		return
	}
	learned := entry{key: key, read: c.seconds(), markers: int16(min(markers, math.MaxInt16))}
	sound := learned.setFence(fence) && learned.setFloor(f)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !sound {
		s.forget(key)
		return
	}
	e := s.find(key)
	if e == nil {
		e = s.place(key, c.maxEntries)
	}
	*e = learned
	s.use(e)
}

// Applied remembers an acknowledged write: the new fence, if it set one, and the number
// of markers that it added. It may remove markers that others have set since the last
// read.
func (c *Cache) Applied(subject collections.Subject, fence protocol.Fence, markers int) {
	s, key := c.shard(subject)
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(key)
	if e == nil {
		return
	}
	if fence != "" && !e.setFence(fence) {
		s.forget(key)
		return
	}
	e.markers = int16(min(max(int(e.markers)+markers, 0), math.MaxInt16))
}

// Forget removes what is known of a participant.
func (c *Cache) Forget(subject collections.Subject) {
	if s, key := c.shard(subject); s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forget(key)
	}
}

// shard returns the part that a participant belongs to, nil if nothing is remembered.
func (c *Cache) shard(subject collections.Subject) (*shard, fingerprint) {
	if len(c.shards) == 0 {
		return nil, fingerprint{}
	}
	key := fingerprint{maphash.Comparable(c.seeds[0], subject), maphash.Comparable(c.seeds[1], subject) | 1}
	return &c.shards[key[0]%shardCount], key
}

// seconds returns the time in seconds. Entries may be up to a second older than they
// seem.
func (c *Cache) seconds() uint32 { return uint32(c.now().Sub(c.start) / time.Second) }
