package simulate

import (
	"encoding/binary"
	"hash/maphash"
	"reflect"
	"slices"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// keyer distinguishes runs by every field that can matter for their future.
// Fences are compared for equality only, so they are numbered in the order in which they
// come up.
// Runs that differ only in the names of their tokens are the same.
type keyer struct {
	seed   maphash.Seed
	buf    []byte
	fences []string
	fields map[reflect.Type][]int // that count
}

func newKeyer() keyer { return keyer{seed: maphash.MakeSeed(), fields: map[reflect.Type][]int{}} }

// keys returns the key of a run, and that of its world alone.
func (k *keyer) keys(r *run) (run, world uint64) {
	k.start(&r.w)
	world = maphash.Bytes(k.seed, k.buf)
	for i := range r.executors {
		e := &r.executors[i]
		k.add(reflect.ValueOf(&e.epoch).Elem())
		k.add(reflect.ValueOf(&e.seen).Elem())
		k.add(reflect.ValueOf(e.x))
		k.add(reflect.ValueOf(e.batch))
	}
	k.buf = binary.AppendVarint(k.buf, int64(r.faults))
	return maphash.Bytes(k.seed, k.buf), world
}

// start begins a key with the world.
// In a search a majority stores everything at once, so there is one version only.
// What never changes is left out.
func (k *keyer) start(w *World) {
	k.buf, k.fences = k.buf[:0], k.fences[:0]
	k.add(reflect.ValueOf(&w.Version).Elem())
	for i := range w.Accounts {
		if leg, is := w.effectOn(i); is && leg.MayBeGone {
			k.fence(string(w.Accounts[i].OriginalFence()))
		}
	}
	k.add(reflect.ValueOf(&w.given).Elem())
	k.add(reflect.ValueOf(&w.told).Elem())
	k.add(reflect.ValueOf(&w.Expired).Elem())
	k.add(reflect.ValueOf(&w.reasons).Elem())
	k.buf = append(k.buf, byte(len(w.flight)))
	for i := range w.flight {
		k.buf = append(k.buf, byte(len(w.flight[i])))
		for j := range w.flight[i] {
			k.message(&w.flight[i][j])
		}
	}
}

func (k *keyer) message(m *Message) {
	k.buf = append(k.buf, byte(m.Transfer), byte(m.Owner), byte(m.Posted))
	k.add(reflect.ValueOf(&m.Op).Elem())
	k.add(reflect.ValueOf(&m.Seen).Elem())
	if m.Op.Kind == protocol.FenceOnly || m.Op.ReplaceFence {
		k.fence(string(m.Token))
	}
}

// add adds a value and everything in it, so a new field of an execution or an operation
// is added without a change here.
// The round in which an operation was asked for is left out, since in a search each batch
// is answered before the next one is asked for.
func (k *keyer) add(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		k.buf = append(k.buf, 1)
		if v.IsNil() {
			k.buf[len(k.buf)-1] = 0
		} else if v.Kind() == reflect.Pointer {
			k.add(v.Elem())
		}
	case reflect.Struct:
		for _, i := range k.fieldsOf(v.Type()) {
			k.add(v.Field(i))
		}
	case reflect.Slice, reflect.Array:
		k.buf = append(k.buf, byte(v.Len()))
		for i := range v.Len() {
			k.add(v.Index(i))
		}
	case reflect.String:
		if v.Type() == reflect.TypeFor[protocol.Fence]() {
			k.fence(v.String())
			return
		}
		k.buf = append(append(k.buf, v.String()...), 0)
	case reflect.Bool:
		k.buf = append(k.buf, 0)
		if v.Bool() {
			k.buf[len(k.buf)-1] = 1
		}
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		k.buf = binary.AppendUvarint(k.buf, v.Uint())
	default:
		// It panics on a kind that is not a number, which a test would show.
		k.buf = binary.AppendVarint(k.buf, v.Int())
	}
}

func (k *keyer) fieldsOf(t reflect.Type) []int {
	fields, known := k.fields[t]
	if !known {
		for i := range t.NumField() {
			if t.Field(i).Name != "round" {
				fields = append(fields, i)
			}
		}
		k.fields[t] = fields
	}
	return fields
}

func (k *keyer) fence(fence string) {
	i := 0
	if fence != "" {
		if i = slices.Index(k.fences, fence) + 1; i == 0 {
			k.fences = append(k.fences, fence)
			i = len(k.fences)
		}
	}
	k.buf = append(k.buf, byte(i))
}
