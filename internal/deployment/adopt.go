package deployment

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// Adopt replaces the notes by what this store would write, where nothing is in flight. It is
// the one way to change a note. It refuses what Setup refuses, but for what a note says.
func (s *Deployment) Adopt(ctx context.Context) error {
	ctx = wire.Detached(ctx)
	for _, l := range s.All() {
		if err := s.CheckServer(ctx, l.Commands); err != nil {
			return fmt.Errorf("%s: %w", l.Namespace, err)
		}
	}
	stored := make([]adoption, 0, len(s.All()))
	for _, l := range s.All() {
		a, err := s.adoptable(ctx, l)
		if err != nil {
			return err
		}
		stored = append(stored, a)
	}
	if err := s.requireAllDistinct(ctx, toWork, s.Addresses()); err != nil {
		return err
	}
	if err := s.idle(ctx, stored); err != nil {
		return err
	}
	for _, a := range stored { // that of the transfers first
		if err := s.adopt(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// adoption is a collection whose note is to be replaced.
type adoption struct {
	l      *collections.Collection
	stored deploymentNote
	found  bool
}

func (s *Deployment) adoptable(ctx context.Context, l *collections.Collection) (adoption, error) {
	if err := s.inspect(ctx, l); err != nil {
		return adoption{}, err
	}
	stored, found, err := s.readNote(ctx, l)
	if err != nil {
		return adoption{}, err
	}
	if found && (stored.format != storedFormat || len(stored.unknown) > 0) {
		return adoption{}, s.wanted(l).agrees(stored, l)
	}
	return adoption{l, stored, found}, nil
}

// idle refuses a change while money is on its way: whoever goes on with it would look for
// its markers in other fields, or for its transfers in another collection.
func (s *Deployment) idle(ctx context.Context, all []adoption) error {
	open, err := s.some(ctx, bson.D{{Key: "open", Value: true}})
	if err != nil {
		return err
	}
	if len(open) > 0 {
		return fmt.Errorf("%w: transfer %s of %s is unfinished: let all come to their end first", collections.ErrUnsupported,
			words.Quote(open[0].ID), wire.NamespaceOf(s.Transfers))
	}
	for _, a := range all {
		names := []string{a.l.Fields.Pending}
		if old := a.stored.field("pending"); old != "" && old != names[0] {
			names = append(names, old)
		}
		for _, pending := range names {
			if err := unmarked(ctx, a.l, pending); err != nil {
				return err
			}
		}
	}
	return nil
}

// unmarked refuses a collection in which a document carries a marker. It looks through all.
func unmarked(ctx context.Context, l *collections.Collection, pending string) error {
	marked := bson.D{{Key: pending, Value: bson.D{{Key: "$nin", Value: bson.A{nil, bson.D{}}}}}}
	documents, err := listed(ctx, l.Majority, marked, 1)
	if err != nil || len(documents) == 0 {
		return err
	}
	return fmt.Errorf("%w: a transfer is in flight on %s of %s, in the field %s: let all come to their end first", collections.ErrUnsupported,
		words.Clip(document.IDText(documents[0].Lookup("_id"))), l.Namespace, words.Quote(pending))
}

// adopt replaces a note, unless it was changed since it was read.
func (s *Deployment) adopt(ctx context.Context, a adoption) error {
	wanted := s.wanted(a.l)
	wanted.deployment = s.identity()
	if a.l == s.Originals {
		wanted.deployment = a.stored.deployment
	}
	if a.l == s.Originals && wanted.deployment == "" {
		wanted.deployment = bson.NewObjectID().Hex()
	}
	if a.found && a.stored.equals(wanted) {
		return s.accept(wanted, a.l)
	}
	if !a.found {
		return s.writeNote(ctx, a.l)
	}
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	update := bson.D{{Key: "$set", Value: wanted.document()}, {Key: "$inc", Value: bson.D{{Key: "changes", Value: int64(1)}}}}
	if wanted.ids == "" {
		update = append(update, bson.E{Key: "$unset", Value: bson.D{{Key: "ids", Value: ""}}})
	}
	filter := bson.D{{Key: "_id", Value: noteID}, {Key: "changes", Value: a.stored.changes}}
	after, result, err := wire.FindAndModify(ctx, s.of(a.l).notes, filter, update)
	if result == protocol.Applied {
		return s.accept(decodeNote(after), a.l)
	}
	if result == protocol.NotMatched {
		return fmt.Errorf("%w: the note about %s was changed by somebody else: ask again", collections.ErrUnsupported, a.l.Namespace)
	}
	return wire.ServerErrorOf(err, "update", wire.NamespaceOf(s.of(a.l).notes))
}

// equals reports whether two notes say the same.
func (n deploymentNote) equals(other deploymentNote) bool {
	return n.of == other.of && n.deployment == other.deployment && n.transfers == other.transfers && n.ids == other.ids &&
		slices.Equal(n.fields, other.fields)
}
