package mongostore

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
	// fenceAge is how long a fence is believed without a read where the participant is
	// not quiet, or has no fence yet. The number of transfers in flight that others have
	// put on it is learned by reading alone.
	fenceAge = time.Minute
	// quietShare says below which part of the marker limit a participant is quiet. What
	// is known of a quiet one does not get old: an old fence is safe, and costs no more
	// than a refused prepare; and however long ago it was read, one process puts no more
	// than this part of the limit on it before it reads again. So it takes 64 processes,
	// each with just that many transfers in flight on one account, to fill it before any
	// of them looks.
	quietShare = 64
)

const (
	// FenceBytes is what one participant takes up in the memory of fences.
	FenceBytes = int64(unsafe.Sizeof(fenceEntry{}))
	// LeastFenceMemory is the smallest memory of fences, but for none.
	LeastFenceMemory = 1 << 20
	// fenceShards is the number of parts of the memory, each with a lock of its own. It
	// grows part by part: nobody waits for more than one of them to be moved.
	fenceShards = 64
)

// knownFence is what is known of a participant. Only what a majority has stored gets in:
// from a read of that, or from an acknowledged write. 1. A sends a new fence; it is
// stored by a primary alone. 2. B learns it and pins it. 3. The primary falls, the fence
// is rolled back, and A's repeat of it arrives later: B's prepares fit again.
type knownFence struct {
	fence protocol.Fence
	floor document.Floor
}

// fenceCache remembers the fences of participants, so that a transfer between known ones
// needs no read. It is bounded in bytes, and takes no more than it needs.
type fenceCache struct {
	now    func() time.Time
	start  time.Time // that its times count from
	seeds  [2]maphash.Seed
	shards []fenceShard // none: nothing is remembered
	most   int          // entries of a shard
}

// newFenceCache returns a memory of so many bytes at the most; of 0, one that remembers
// nothing.
func newFenceCache(now func() time.Time, bytes int64) *fenceCache {
	c := &fenceCache{now: now, start: now(), seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	if bytes > 0 {
		c.shards = make([]fenceShard, fenceShards)
		c.most = max(int(bytes/fenceShards/FenceBytes), fenceWindow)
	}
	return c
}

// get returns what is known, unless it is old or there may be too many transfers in
// flight.
func (c *fenceCache) get(participant collections.Subject, markerLimit int) (knownFence, bool) {
	s, key := c.shard(participant)
	if s == nil {
		return knownFence{}, false
	}
	now := c.seconds()
	s.mu.Lock()
	e := s.find(key)
	if e == nil || !e.believed(now, markerLimit) {
		s.mu.Unlock()
		return knownFence{}, false
	}
	s.use(e)
	found := *e
	s.mu.Unlock()
	return found.known(), true
}

// believed reports whether what is known of a participant is not old, and there is room
// on it for one more transfer.
//
// What has no fence yet gets old, however quiet it is. 1. An account without a fence is
// remembered, and an hour later deleted. 2. A credit is sent to it, under no fence, and
// hangs in the network; the transfer fails. 3. The account is put back, without a fence,
// and the message arrives: it leaves a marker for ever. So nothing is sent to what isn't
// there, and only a read tells that it isn't.
func (e *fenceEntry) believed(now uint32, markerLimit int) bool {
	markers := int(e.markers)
	quiet := e.hasToken() && markers*quietShare < markerLimit
	return markers < markerLimit && (quiet || now-e.read < uint32(fenceAge/time.Second))
}

// learn takes in what a majority read has shown. A fence or a floor that this library
// would not write is not remembered.
func (c *fenceCache) learn(participant collections.Subject, fence protocol.Fence, f document.Floor, markers int) {
	s, key := c.shard(participant)
	if s == nil {
		return
	}
	learned := fenceEntry{key: key, read: c.seconds(), markers: int16(min(markers, math.MaxInt16))}
	sound := learned.setFence(fence) && learned.setFloor(f)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !sound {
		s.forget(key)
		return
	}
	e := s.find(key)
	if e == nil {
		e = s.place(key, c.most)
	}
	*e = learned
	s.use(e)
}

// applied takes in an acknowledged write: a new fence, if it set one, and the number of
// markers added. Of those that it removes some were put there by others since the last
// read.
func (c *fenceCache) applied(participant collections.Subject, fence protocol.Fence, markers int) {
	s, key := c.shard(participant)
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

func (c *fenceCache) forget(participant collections.Subject) {
	if s, key := c.shard(participant); s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forget(key)
	}
}

// shard returns where a participant belongs, nil if nothing is remembered.
func (c *fenceCache) shard(participant collections.Subject) (*fenceShard, fingerprint) {
	if len(c.shards) == 0 {
		return nil, fingerprint{}
	}
	key := fingerprint{maphash.Comparable(c.seeds[0], participant), maphash.Comparable(c.seeds[1], participant) | 1}
	return &c.shards[key[0]%fenceShards], key
}

// seconds returns the time. Entries are older by up to a second than they seem.
func (c *fenceCache) seconds() uint32 { return uint32(c.now().Sub(c.start) / time.Second) }
