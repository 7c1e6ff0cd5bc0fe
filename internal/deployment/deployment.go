// Package deployment makes sure, before a collection is used for the first time, that it
// can be used, and that every process uses it in the same way.
//
// [Deployment.Connect] asks in this order, and asks each question once per process:
//
//  1. Can the server be used? No other answer can be relied on before.
//  2. Can the collection be used? This and the next question are its survey. The
//     transfers come first, then the collections that the caller names: package
//     inspection judges what the server says of each.
//  3. Does the collection's note agree? The note lies beside the collection and says how
//     all processes use it. That of the transfers has the identity that all others name.
//     And is it the collection that is recorded under its name? See identity.go.
//  4. Are the collections distinct? Two addresses may lead to one collection, through two
//     clients. UUIDs show it, so collections that are missing are created now, and not
//     where anything above was refused.
//  5. Are all notes and records there? The missing ones are written, the note of the
//     transfers first.
//     Before a collection's first note, what is in flight there must have been begun
//     under the names that the note will say: see firstnote.go.
//  6. Is the retention declared? Last, because from then on transfers are purged.
//
// What is connected may become another collection later: see confirm.go.
//
// [Deployment.ConnectToRead] asks the first, third and fourth question, and writes
// nothing. [Deployment.Setup] asks everything again, creates what is missing, and is for
// an operator, like [Deployment.Check], which creates nothing, and [Deployment.Adopt],
// which replaces notes.
//
// A [document.Address] is the name under which a collection is registered, a
// [collections.Collection] is what is registered there, and a note is about one of these.
package deployment

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/inspection"
	"github.com/mongotransfer/transfer/internal/retention"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Deployment makes sure that the collections of a catalog can be used, and that every
// process uses them in the same way. It is safe for many goroutines.
type Deployment struct {
	catalog   *collections.Catalog
	inspector *inspection.Inspector
	retention *retention.Retention
	log       *slog.Logger

	// identity is that of the transfers, nil while they have no note.
	identity atomic.Pointer[string]
	// sameClientConnected says that ConnectSameClient has found nothing wrong.
	sameClientConnected atomic.Bool
	// warned says that missing indexes were logged.
	warned atomic.Bool
	// known is what is known of each collection.
	known map[*collections.Collection]*knowledge
	// distinct has the pairs of handles of one name that are not one collection.
	distinct sync.Map
}

// New returns the deployment of a catalog and of the retention that its transfers have.
func New(catalog *collections.Catalog, kept *retention.Retention, log *slog.Logger) *Deployment {
	d := &Deployment{
		catalog:   catalog,
		inspector: inspection.New(catalog),
		retention: kept,
		log:       log,
		known:     map[*collections.Collection]*knowledge{},
	}
	for _, c := range catalog.All() {
		d.known[c] = &knowledge{
			notes:     wire.ForCommands(collections.NoteCollection(c.Commands)),
			surveying: collections.NewSharedCheck(),
		}
		c.Confirm = func(ctx context.Context) error { return d.confirm(ctx, c) }
	}
	return d
}

// knowledge is what is known of a collection.
type knowledge struct {
	// notes is the collection of its note.
	notes *mongo.Collection
	// surveying lets a few callers survey it at once.
	surveying *collections.SharedCheck
	// usable says that an inspection has found nothing wrong with it.
	usable atomic.Bool
	// note is a noteState.
	note atomic.Uint32
	// identity is an identityState.
	identity atomic.Uint32
	// found is the identity that lay beside it when it was last read, "" if there was
	// none.
	found atomic.Pointer[string]
	// sign is what it is known again by.
	sign sign
	// connected says that Connect has found nothing wrong with it by itself.
	connected atomic.Bool
}

// noteState is what is known of a collection's note.
type noteState uint32

const (
	// noteUnread is the state of a note that has to be read.
	noteUnread noteState = iota
	// noteAbsent means that there was no note when it was read. A process that needs one
	// writes it, and learns by that which note stands.
	noteAbsent
	// noteAgrees means that the note says what this process would write.
	noteAgrees
	// noteEarlier means that the note would agree if it were not in the format before.
	// Only Setup can go on with it.
	noteEarlier
)

func (k *knowledge) noteState() noteState         { return noteState(k.note.Load()) }
func (k *knowledge) setNote(to noteState)         { k.note.Store(uint32(to)) }
func (k *knowledge) noteIs(wanted noteState) bool { return k.noteState() == wanted }

// forget makes a collection one that is refused from now on, though it was found fit.
func (k *knowledge) forget() {
	k.connected.Store(false)
	k.usable.Store(false)
	k.note.CompareAndSwap(uint32(noteAgrees), uint32(noteUnread))
}
