package deployment

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// noteTries is how often a note is written that two processes write at once. The server
// refuses one of them if neither finds the other's; the next try finds it.
const noteTries = 3

// survey makes sure, once, that a collection can be used, and that its note, if there is
// one, says what this store would say. That of the transfers is looked at first.
func (s *Deployment) survey(ctx context.Context, to purpose, l *collections.Collection) error {
	if s.of(l).seen(to) {
		return nil
	}
	if err := s.of(l).surveying.Turns.Acquire(ctx); err != nil {
		return err
	}
	defer s.of(l).surveying.Turns.Release()
	if s.of(l).seen(to) {
		return nil
	}
	if err := s.of(l).surveying.Failures.Recent(s.Clock.Now()); err != nil {
		return err
	}
	err := s.surveyOnce(ctx, to, l)
	var answered *wire.ServerError
	if err != nil && ctx.Err() == nil && errors.As(err, &answered) && answered.Code == 0 {
		s.of(l).surveying.Failures.Record(s.Clock.Now(), err) // who has waited meanwhile need not ask again
	}
	return err
}

// seen reports whether nothing is left to be looked at. That there is no note is known from
// one look, too: who needs one writes it, and learns by that what stands.
func (i *inspection) seen(to purpose) bool {
	return (i.noted.Load() || i.unnoted.Load()) && (to == toRead || i.surveyed.Load())
}

func (s *Deployment) surveyOnce(ctx context.Context, to purpose, l *collections.Collection) error {
	if to == toWork && !s.of(l).surveyed.Load() {
		if err := s.inspect(ctx, l); err != nil {
			return err
		}
		s.of(l).surveyed.Store(true)
	}
	if s.of(l).noted.Load() || s.of(l).unnoted.Load() {
		return nil
	}
	return s.consult(ctx, l)
}

// consult reads a collection's note, and refuses one that differs.
func (s *Deployment) consult(ctx context.Context, l *collections.Collection) error {
	stored, found, err := s.readNote(ctx, l)
	if err != nil {
		return err
	}
	if !found {
		s.of(l).noted.Store(false)
		s.of(l).unnoted.Store(true)
		if l == s.Originals {
			s.identity_.Store(nil)
		}
		return nil
	}
	if l != s.Originals && s.identity() == "" { // that of the transfers is written first: it may be there by now
		if err := s.consult(ctx, s.Originals); err != nil {
			return err
		}
	}
	return s.accept(stored, l)
}

// readNote reads what a majority has stored. It is enough: who finds no note writes one, and
// learns by that what stands. Who finds one that was replaced a moment ago is no worse off
// than a process that has begun a moment before.
func (s *Deployment) readNote(ctx context.Context, l *collections.Collection) (deploymentNote, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	document, err := wire.FindID(ctx, s.of(l).notes, noteID)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return deploymentNote{}, false, nil
	}
	if wire.CommandCode(err) == wire.CodeInvalidNamespace {
		return deploymentNote{}, false, s.unnamable(l)
	}
	if err != nil {
		return deploymentNote{}, false, wire.ServerErrorOf(err, "find", wire.NamespaceOf(s.of(l).notes))
	}
	return decodeNote(document), true, nil
}

// unnamable is the error of a collection whose name leaves no room for the note's, or that
// the server allows no collection of.
func (s *Deployment) unnamable(l *collections.Collection) error {
	return fmt.Errorf("%w: the server allows no collection for the note about %s, in %s: "+
		"give the database or the collection a shorter or plainer name",
		collections.ErrUnsupported, words.Clip(l.Namespace), words.Clip(wire.NamespaceOf(s.of(l).notes)))
}

// accept takes a stored deploymentNote in, or refuses it.
func (s *Deployment) accept(stored deploymentNote, l *collections.Collection) error {
	wanted := s.wanted(l)
	if l != s.Originals {
		wanted.deployment = s.identity()
	}
	if err := wanted.agrees(stored, l); err != nil {
		return err
	}
	if l == s.Originals {
		s.identity_.Store(&stored.deployment)
	}
	s.of(l).noted.Store(true)
	s.of(l).unnoted.Store(false)
	return nil
}

// identity returns that of the transfers, "" while they have no note. A note of accounts
// names one always: it is written later.
func (s *Deployment) identity() string {
	if known := s.identity_.Load(); known != nil {
		return *known
	}
	return ""
}

// introduce writes the notes that are missing of places, that of the transfers first. All
// the others were found to agree. Without places nothing is written: it would not be known
// what for.
func (s *Deployment) introduce(ctx context.Context, places []document.Address) error {
	var missing []*collections.Collection
	for _, p := range places {
		if l := s.At(p); !s.of(l).noted.Load() {
			missing = append(missing, l)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if err := s.inFlight(ctx, missing); err != nil {
		return err
	}
	if !s.of(s.Originals).noted.Load() {
		missing = append([]*collections.Collection{s.Originals}, missing...)
	}
	for _, l := range missing {
		if err := s.writeNote(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

// writeNote writes a collection's note unless there is one, and takes in what stands then.
// Of two processes that begin at once the first one's stands. The write counts, because one
// that changes nothing is acknowledged without asking anybody: a cut-off old primary might
// answer with a note that nobody else has.
func (s *Deployment) writeNote(ctx context.Context, l *collections.Collection) error {
	wanted := s.wanted(l)
	wanted.deployment = s.identity()
	if l == s.Originals {
		wanted.deployment = bson.NewObjectID().Hex()
	}
	update := bson.D{
		{Key: "$setOnInsert", Value: wanted.document()},
		{Key: "$inc", Value: bson.D{{Key: "changes", Value: int64(1)}}},
	}
	var err error
	for range noteTries {
		var after bson.Raw
		var result protocol.Result
		limited, cancel := context.WithTimeout(ctx, wire.CommandLimit)
		after, result, err = wire.Upsert(limited, s.of(l).notes, bson.D{{Key: "_id", Value: noteID}}, update)
		cancel()
		switch {
		case result == protocol.Applied:
			return s.accept(decodeNote(after), l)
		case wire.CommandCode(err) == wire.CodeInvalidNamespace:
			return s.unnamable(l)
		case result == protocol.Failed && wire.CommandCode(err) != wire.CodeDuplicateKey:
			return fmt.Errorf("%w: the note about %s can't be stored: %w", collections.ErrUnsupported, l.Namespace, wire.ServerErrorOf(err, "insert", wire.NamespaceOf(s.of(l).notes)))
		case result == protocol.NotMatched: // an upsert always matches
			return fmt.Errorf("%w: the server has not stored the note about %s", collections.ErrUnsupported, l.Namespace)
		case result != protocol.Failed:
			return wire.ServerErrorOf(err, "insert", wire.NamespaceOf(s.of(l).notes))
		}
	}
	return wire.ServerErrorOf(err, "insert", wire.NamespaceOf(s.of(l).notes))
}
