package fences

import (
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
)

const (
	// windowSize is how many places an entry may have in its table. Where all are taken,
	// the entry that was used least recently is given up.
	windowSize = 16
	// firstEntries is how large a table is at first.
	firstEntries = 2 * windowSize
)

// fingerprint stands for a participant, whose ID may be longer than all that is known of
// it. No participant has zero. Of a million participants two have the same one with a
// chance of less than 1 in 10^25. Each would get the other's fence, and the server would
// refuse its prepares.
type fingerprint [2]uint64

// entry is what is known of one participant, without pointers: the garbage collector
// doesn't look into a million of these.
type entry struct {
	key       fingerprint // zero: the place is free
	floor     [16]byte    // as it is stored
	token     [12]byte
	read      uint32    // when it was read, in seconds
	used      uint32    // when it was last asked for, as its table counts
	markers   int16     // seen by the last read, and the changes to it made here since
	tokenKind bson.Type // of the token; 0: there is no fence yet
	kind      bson.Type // of the floor
}

// setFence packs a fence, and reports false where this library would not write it.
func (e *entry) setFence(fence protocol.Fence) bool {
	e.tokenKind = 0
	if fence == "" {
		return true
	}
	stored := document.StoredFence(fence)
	e.tokenKind = stored.Type
	size := tokenBytes(e.tokenKind)
	return size > 0 && copy(e.token[:size], stored.Value) == size
}

// setFloor packs a floor, and reports false where this library would not write it.
func (e *entry) setFloor(f document.Floor) bool {
	e.kind = f.Stored.Type
	return !f.Odd && copy(e.floor[:], f.Stored.Value) == len(f.Stored.Value)
}

// known unpacks the entry.
func (e *entry) known() Known {
	var known Known
	if e.hasToken() {
		known.Fence = document.FenceOf(bson.RawValue{Type: e.tokenKind, Value: e.token[:tokenBytes(e.tokenKind)]})
	}
	if size := floorBytes(e.kind); e.kind != 0 {
		known.Floor = document.FloorOf(bson.RawValue{Type: e.kind, Value: append([]byte(nil), e.floor[:size]...)})
	}
	return known
}

// hasToken reports whether there is a fence.
func (e *entry) hasToken() bool { return e.tokenKind != 0 }

// tokenBytes returns the length of a fence, of one that was sent or that the server has
// drawn. It is zero for a type that this library does not write.
func tokenBytes(kind bson.Type) int {
	switch kind {
	case bson.TypeObjectID:
		return 12
	case bson.TypeTimestamp:
		return 8
	default:
		return 0
	}
}

// floorBytes returns the length of a floor that is not odd.
func floorBytes(kind bson.Type) int {
	switch kind {
	case bson.TypeInt32:
		return 4
	case bson.TypeInt64:
		return 8
	case bson.TypeDecimal128:
		return 16
	default: // MinKey
		return 0
	}
}

// shard is a hash table of entries. It grows up to a size, and then gives up the
// entries that were not used for long.
type shard struct {
	mu      sync.Mutex
	entries []entry
	uses    uint32 // counted; it may wrap round
}

// use notes that an entry was used.
func (s *shard) use(e *entry) {
	s.uses++
	e.used = s.uses
}

// window returns the places that an entry may have.
func (s *shard) window(key fingerprint) []entry {
	if len(s.entries) == 0 {
		return nil
	}
	at := key[1] / 2 % uint64(len(s.entries)-windowSize+1)
	return s.entries[at : at+windowSize]
}

// find returns a participant's entry, nil if it has none.
func (s *shard) find(key fingerprint) *entry {
	window := s.window(key)
	for i := range window {
		if window[i].key == key {
			return &window[i]
		}
	}
	return nil
}

// forget frees a participant's place.
func (s *shard) forget(key fingerprint) {
	if e := s.find(key); e != nil {
		*e = entry{}
	}
}

// place returns a place for an entry that has none yet: a free one, or, where the table
// has its full size, that of another one.
func (s *shard) place(key fingerprint, maxEntries int) *entry {
	for {
		e := s.vacancy(key)
		if e != nil && e.key == (fingerprint{}) || len(s.entries) >= maxEntries {
			return e
		}
		s.grow(min(max(2*len(s.entries), firstEntries), maxEntries))
	}
}

// vacancy returns a free place of an entry's window, or else the place of the entry that
// was used least recently there.
func (s *shard) vacancy(key fingerprint) *entry {
	var oldest *entry
	window := s.window(key)
	for i := range window {
		e := &window[i]
		if e.key == (fingerprint{}) {
			return e
		}
		if oldest == nil || s.uses-e.used > s.uses-oldest.used {
			oldest = e
		}
	}
	return oldest
}

// grow moves the entries to a larger table.
func (s *shard) grow(size int) {
	before := s.entries
	s.entries = make([]entry, size)
	for i := range before {
		if before[i].key != (fingerprint{}) {
			*s.vacancy(before[i].key) = before[i]
		}
	}
}
