package protocol

import (
	"encoding/binary"
	"hash/maphash"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// keyer tells runs apart. Fences are compared for equality only, so they are counted in the order in which they come up:
// runs that differ only in how their tokens are called are the same.
type keyer struct {
	seed   maphash.Seed
	buf    []byte
	fences []Fence
}

func (k *keyer) run(r *run) uint64 {
	k.reset()
	k.addWorld(&r.w)
	for i := range r.executors {
		k.execution(r.executors[i].x)
		k.num(int64(len(r.executors[i].batch)))
		for _, op := range r.executors[i].batch {
			k.operation(op)
		}
	}
	k.num(int64(r.faults))
	return maphash.Bytes(k.seed, k.buf)
}

func (k *keyer) world(w *world) uint64 {
	k.reset()
	k.addWorld(w)
	return maphash.Bytes(k.seed, k.buf)
}

func (k *keyer) reset() { k.buf, k.fences = k.buf[:0], k.fences[:0] }

func (k *keyer) addWorld(w *world) {
	for i := range w.accounts {
		d := &w.accounts[i]
		k.num(d.balance, w.given[i])
		k.fence(d.fence)
		k.flags(d.gone, d.closed, d.foreign, d.odd, d.full)
		k.flags(d.markers[:]...)
	}
	for t, r := range w.transfers {
		k.flags(r.found, w.told[t].success, w.told[t].refused)
		k.text(string(r.state))
		k.num(r.epoch, int64(r.owner), int64(w.told[t].unwritten))
		k.refusal(r.refusal)
	}
	k.num(int64(len(w.flight)))
	for _, m := range w.flight {
		k.num(int64(m.transfer), int64(m.owner))
		k.operation(m.op)
		if m.op.Kind == FenceOnly || m.op.ReplaceFence {
			k.fence(m.token)
		}
	}
}

func (k *keyer) execution(x *Execution) {
	k.flags(x.start.Patient, x.dirty, x.mustLook, x.claimSent, x.claimUnsure)
	k.num(int64(x.start.Claiming), int64(x.start.RollBack), int64(x.phase), int64(x.outcome), x.epoch)
	k.text(string(x.state))
	k.text(string(x.decision))
	k.refusal(x.refusal)
	for _, p := range x.participants {
		k.num(int64(p.step), int64(p.reason))
		k.flags(p.pinned, p.sent, p.looked)
		k.fence(p.fence)
	}
}

func (k *keyer) operation(op Operation) {
	k.num(int64(op.Kind), int64(op.Participant), int64(op.Claiming), op.Epoch)
	k.text(string(op.To))
	k.refusal(op.Refusal)
	k.flags(op.Clean, op.ReplaceFence)
	k.fence(op.Fence)
}

func (k *keyer) refusal(r Refusal) { k.num(int64(r.Reason), int64(r.Participant)) }

func (k *keyer) num(numbers ...int64) {
	for _, n := range numbers {
		k.buf = binary.AppendVarint(k.buf, n)
	}
}

func (k *keyer) flags(flags ...bool) {
	bits := byte(0)
	for i, flag := range flags {
		if flag {
			bits |= 1 << i
		}
	}
	k.buf = append(k.buf, bits)
}

func (k *keyer) text(s string) { k.buf = append(append(k.buf, s...), 0) }

func (k *keyer) fence(f Fence) {
	i := 0
	if f != "" {
		if i = slices.Index(k.fences, f) + 1; i == 0 {
			k.fences = append(k.fences, f)
			i = len(k.fences)
		}
	}
	k.buf = append(k.buf, byte(i))
}

// TestKeysTellRunsApart promises that the search doesn't take two different runs for the same: each field of what it walks
// through is in the key. Who adds one adds it there, and counts it here. Two are left out: an execution's error, which ends
// the search, and the round, since each batch is answered before the next one is asked for.
func TestKeysTellRunsApart(t *testing.T) {
	for _, c := range []struct {
		value  any
		fields int
	}{
		{Execution{}, 14}, {participant{}, 6}, {Start{}, 3}, {Operation{}, 10}, {Refusal{}, 2},
		{document{}, 9}, {record{}, 5}, {version{}, 2}, {message{}, 4}, {answerTold{}, 3}, {executor{}, 4},
	} {
		typ := reflect.TypeOf(c.value)
		require.Equal(t, c.fields, typ.NumField(), "fields of %s", typ)
	}
}
