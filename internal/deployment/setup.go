package deployment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/inspection"
	"github.com/mongotransfer/transfer/internal/wire"
	"github.com/mongotransfer/transfer/internal/words"
)

// Setup creates the collections, indexes and notes that are missing, raises notes of the
// format before, and refuses what the protocol can't run on. It may be called again:
// where nothing is missing it writes nothing, and needs no right to create.
func (d *Deployment) Setup(ctx context.Context) error {
	ctx = wire.Detached(ctx)
	if err := d.reviewAll(ctx, toRaise); err != nil {
		return err
	}
	if err := d.raiseNotes(ctx); err != nil {
		return err
	}
	if err := d.Connect(ctx, d.catalog.Addresses()...); err != nil {
		return err
	}
	if err := d.recordAll(ctx); err != nil {
		return err
	}
	return d.createMissing(ctx)
}

// Check makes sure of everything that Setup makes sure of, and that what Setup creates
// exists. It writes nothing.
func (d *Deployment) Check(ctx context.Context) error {
	ctx = wire.Detached(ctx)
	if err := d.reviewAll(ctx, toWork); err != nil {
		return err
	}
	if err := d.ConnectToRead(ctx, d.catalog.Addresses()...); err != nil {
		return err
	}
	return d.requireComplete(ctx)
}

// reviewAll inspects everything, known or not, before anything is written anywhere. It
// also finds an index of the user's that excludes one of the library's.
func (d *Deployment) reviewAll(ctx context.Context, to purpose) error {
	if err := d.checkServers(ctx); err != nil {
		return err
	}
	all := d.catalog.All()
	for _, c := range all {
		if err := d.review(ctx, to, c); err != nil {
			return err
		}
	}
	if err := d.inspector.CheckServers(ctx, to == toRaise); err != nil {
		return err
	}
	for _, c := range all {
		if err := d.inspector.CheckValidator(ctx, c); err != nil {
			return err
		}
	}
	_, err := d.inspector.MissingIndexes(ctx)
	return err
}

// checkServers makes sure that the servers of all collections can be used.
func (d *Deployment) checkServers(ctx context.Context) error {
	for _, c := range d.catalog.All() {
		if err := d.catalog.CheckServer(ctx, c.Commands); err != nil {
			return fmt.Errorf("%s: %w", c.Namespace, err)
		}
	}
	return nil
}

// review inspects a collection and reads its note, whatever is known of them. A
// collection that it refuses is refused from now on, though it may have been found fit
// before.
func (d *Deployment) review(ctx context.Context, to purpose, c *collections.Collection) error {
	_, err := d.inspector.CheckCollection(ctx, c)
	if err == nil {
		d.known[c].usable.Store(true)
		err = d.consult(ctx, to, c)
	}
	if errors.Is(err, collections.ErrUnsupported) {
		d.sameClientConnected.Store(false)
		d.known[c].forget()
	}
	return err
}

// createMissing creates the collections and indexes that are missing.
func (d *Deployment) createMissing(ctx context.Context) error {
	for _, c := range d.catalog.All() {
		if err := createUnlessFound(ctx, c.Commands); err != nil {
			return err
		}
	}
	missing, err := d.inspector.MissingIndexes(ctx)
	if err != nil || len(missing) == 0 {
		return err
	}
	transfers := d.catalog.Transfers
	// As long as it takes. A majority is enough, as for every write: by default the build
	// waits for all voting members, and hangs while one of them is down.
	_, err = transfers.Indexes().CreateMany(ctx, missing, options.CreateIndexes().SetCommitQuorumMajority())
	refused := wire.ServerErrorOf(err, "createIndex", wire.NamespaceOf(transfers))
	switch wire.CommandCode(err) {
	case wire.CodeIndexOptions, wire.CodeIndexKeys, wire.CodeCannotIndex:
		return fmt.Errorf("%w: an index of %s stands in the way of one of the library's: drop it: %w",
			collections.ErrUnsupported, wire.NamespaceOf(transfers), refused)
	}
	return refused
}

func createUnlessFound(ctx context.Context, handle *mongo.Collection) error {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	_, found, err := inspection.Describe(ctx, handle)
	if err != nil || found {
		return err
	}
	return create(ctx, handle)
}

// setupAdvice is what to do where something is missing that Setup creates.
const setupAdvice = "run Setup once, with the rights to create"

// requireComplete refuses a deployment that Setup has not completed, and names all that
// is missing.
func (d *Deployment) requireComplete(ctx context.Context) error {
	var lacks []string
	for _, c := range d.catalog.All() {
		limited, cancel := context.WithTimeout(ctx, wire.CommandLimit)
		_, found, err := inspection.Describe(limited, c.Commands)
		cancel()
		switch k := d.known[c]; {
		case err != nil:
			return err
		case !found:
			lacks = append(lacks, "there is no collection "+c.Namespace)
		case !k.noteIs(noteAgrees):
			lacks = append(lacks, fmt.Sprintf("%s has no note of how it is used, in %s", c.Namespace, wire.NamespaceOf(k.notes)))
		case !k.identityIs(identityAgrees):
			lacks = append(lacks, fmt.Sprintf("nothing in %s records which collection %s is that of %s",
				d.recordsNamespace(), c.Namespace, c.Address()))
		}
	}
	switch declared, err := d.retention.IsDeclared(ctx); {
	case err != nil:
		return err
	case !declared:
		lacks = append(lacks, fmt.Sprintf("nothing in %s records that the retention of this process is in use",
			wire.NamespaceOf(collections.RetentionCollection(d.catalog.Transfers))))
	}
	missing, err := d.inspector.MissingIndexes(ctx)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		text, err := d.lacksIndexes(missing)
		if err != nil {
			return err
		}
		lacks = append(lacks, text)
	}
	if len(lacks) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s: %s", collections.ErrUnsupported, strings.Join(lacks, "; "), setupAdvice)
}

// lacksIndexes names the library's indexes that are missing.
func (d *Deployment) lacksIndexes(missing []mongo.IndexModel) (string, error) {
	names, err := inspection.IndexNames(missing)
	noun := "index"
	if len(names) > 1 {
		noun = "indexes"
	}
	return fmt.Sprintf("%s lacks the %s %s", wire.NamespaceOf(d.catalog.Transfers), noun, words.QuoteAll(names)), err
}

// warnOfIndexes logs, once, that indexes are missing. Everything works without them, and
// its searches read all transfers. Where there are none at all, as in many tests, nobody
// has called Setup: that is for Check to say, and at Debug here.
func (d *Deployment) warnOfIndexes(ctx context.Context, missing []mongo.IndexModel) {
	if len(missing) == 0 || !d.warned.CompareAndSwap(false, true) {
		return
	}
	text, err := d.lacksIndexes(missing)
	if err == nil {
		err = errors.New(text)
	}
	level := slog.LevelWarn
	if len(missing) == d.inspector.IndexCount() {
		level = slog.LevelDebug
	}
	d.log.LogAttrs(ctx, level, "indexes of the library are missing, so searches read all transfers: "+setupAdvice,
		slog.Any(words.KeyCause, err))
}
