package deployment

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
)

// confirmEvery is for how long a collection is taken for the one that was connected
// before its next use asks again.
const confirmEvery = 10 * time.Second

// sign is what a collection is known again by, once it was connected: the transfers by
// the identity that their note has, every other collection by its own.
type sign struct {
	identity atomic.Pointer[string]
	seen     atomic.Int64 // when it was seen last, in nanoseconds of the process's clock
}

// set remembers the identity of a collection that was found fit.
func (s *sign) set(identity string, now time.Time) {
	s.identity.Store(&identity)
	s.seen.Store(now.UnixNano())
}

// due reports whether nobody has asked for a while.
func (s *sign) due(now time.Time) bool {
	age := now.UnixNano() - s.seen.Load()
	return s.identity.Load() != nil && (age < 0 || age >= int64(confirmEvery))
}

// take reports whether it is due, and this caller's turn to ask.
func (s *sign) take(now time.Time) bool {
	seen := s.seen.Load()
	return s.due(now) && s.seen.CompareAndSwap(seen, now.UnixNano())
}

// confirm makes sure that the collection which answers at an address is the one that was
// connected:
//
//  1. A transfer to the ledger eu is committed, and the answer of its pay is lost.
//  2. From now on the address of eu leads to another server, where a collection of the
//     same name is: by another entry in the DNS, or because a volume was not mounted.
//  3. The process looks, finds no marker, and takes that as the sign that the money was
//     moved already: Success, and the money is gone.
//
// So each look that concludes something from a missing trace is made between two
// confirmations: see [collections.Collection.Confirmed].
//
// What is found to be another collection is not connected any more: its next use asks all
// that the first one does. It asks whether the transfers are the same, too: a database
// that was made anew has other transfers and other accounts.
func (d *Deployment) confirm(ctx context.Context, c *collections.Collection) error {
	k := d.known[c]
	was := k.sign.identity.Load()
	if was == nil {
		return nil
	}
	stored, err := d.readBeside(ctx, c)
	if err != nil {
		return err
	}
	is := stored.identity
	if c == d.catalog.Originals {
		is = stored.note.deployment
	}
	if is == *was {
		k.sign.seen.Store(d.catalog.Clock.Now().UnixNano())
		if c == d.catalog.Originals && is != d.transfersIdentity() { // they were others meanwhile
			d.forget(c)
		}
		return nil
	}
	d.forget(c)
	d.known[d.catalog.Originals].sign.seen.Store(0)
	return fmt.Errorf("%w: this %s is not the collection that this process has used so far, by what lies beside it in %s: "+
		"its address leads to another server, or it was replaced",
		collections.ErrUnsupported, c.Namespace, wire.NamespaceOf(k.notes))
}

// agreed remembers the transfers once a collection of participants agrees with them.
func (d *Deployment) agreed() {
	s := &d.known[d.catalog.Originals].sign
	is := d.transfersIdentity()
	if was := s.identity.Load(); is != "" && (was == nil || *was != is) {
		s.set(is, d.catalog.Clock.Now())
	}
}

// forget has the next use of a collection ask all that the first one does. Without its
// transfers nothing is known of any.
func (d *Deployment) forget(c *collections.Collection) {
	all := []*collections.Collection{c}
	if c == d.catalog.Originals {
		all = d.catalog.All()
	}
	d.sameClientConnected.Store(false)
	for _, each := range all {
		d.known[each].forget()
		d.known[each].setIdentity(identityUnread)
	}
}

// ConfirmAll confirms all collections that were connected, and returns the error of one
// that is another one by now. What can't be read says nothing.
func (d *Deployment) ConfirmAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(wire.Detached(ctx), wire.CommandLimit)
	defer cancel()
	for _, c := range d.catalog.All() {
		if err := d.confirm(ctx, c); errors.Is(err, collections.ErrUnsupported) {
			return err
		}
	}
	return nil
}

// confirmDue confirms the transfers and the collections at the given addresses, if nobody
// has for a while. One of those who ask at once does it. A server that does not answer
// says nothing, and what is another collection by now is asked everything anew.
func (d *Deployment) confirmDue(ctx context.Context, addresses []document.Address) {
	now := d.catalog.Clock.Now()
	all := []*collections.Collection{d.catalog.Originals}
	for _, a := range addresses {
		all = append(all, d.catalog.At(a))
	}
	for _, c := range all {
		if d.known[c].sign.take(now) {
			_ = d.confirm(ctx, c)
		}
	}
}
