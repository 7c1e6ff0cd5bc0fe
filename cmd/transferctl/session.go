package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/deployment"
	"github.com/mongotransfer/transfer/internal/wire"
)

// closeLimit is how long what was begun may take to end.
const closeLimit = 15 * time.Second

// need is what a command needs of a deployment.
type need uint8

const (
	// needDeployment is the need of a command that works with what is there. Without a
	// note there is nothing: a command that went on would write one, and say in it how
	// the collections are used, which it does not know.
	needDeployment need = iota + 1
	// needDatabase is the need of a command that sets up, or looks at what is missing.
	needDatabase
	// needAdoption is the need of a command that changes on purpose how a deployment is
	// used: the flags may differ from its notes, and name collections that are new. There
	// has to be a deployment, as a name is easily mistyped.
	needAdoption
)

// session is a deployment that a command works with.
type session struct {
	*transfer.Coordinator
	connections

	database  *mongo.Database
	accounts  *mongo.Collection
	transfers *mongo.Collection
	fields    transfer.Fields
	ids       transfer.IDCodec
	kinds     []transfer.EventKind
	options   []transfer.Option
	// registered are the ledgers but for the default one, and the documents.
	registered []registered
	// left are the recorded names that are not registered.
	left []leftOut
}

// open connects to the deployment, configured as its notes and the flags say.
func (p *program) open(ctx context.Context, need need) (*session, error) {
	uri, database, err := p.where()
	if err != nil {
		return nil, err
	}
	if uri == "" {
		return nil, usage("which server? Say --uri, or set MONGODB_URI")
	}
	s := &session{connections: connections{monitor: p.monitor}}
	if err = s.begin(ctx, p, need, uri, database); err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	for _, name := range s.left {
		p.note("%s %s", name, name.Reason)
	}
	return s, nil
}

func (s *session) begin(ctx context.Context, p *program, need need, uri, database string) error {
	client, err := s.connect(uri)
	if err != nil {
		return err
	}
	s.database = client.Database(database)
	s.transfers = s.database.Collection(p.flags.transfers)
	declared, found, err := deployment.ReadDeclared(ctx, s.transfers)
	if err != nil {
		if err = contactError(err); need != needDatabase || !errors.Is(err, transfer.ErrUnauthorized) {
			return err
		}
		// The library names the right that is missing to set up, or to look.
	}
	if err == nil && !found && need != needDatabase {
		return fmt.Errorf("%w in the database %s with transfers in %s: "+
			"see --database and --transfers, or begin with transferctl setup", ErrNoDeployment, database, p.flags.transfers)
	}
	if err := s.configure(ctx, p, need, declared); err != nil {
		return err
	}
	if need != needDatabase {
		if err := s.checkRetention(ctx, p.flags.retention); err != nil {
			return err
		}
	}
	if err := s.checkNotes(ctx, need, p.flags.accounts != ""); err != nil {
		return err
	}
	s.Coordinator, err = transfer.NewCoordinator(s.database, s.options...)
	return err
}

// contactError names the error of a command of transferctl's own.
func contactError(err error) error {
	missing := wire.Denied(err)
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case missing != nil && missing.Code == wire.CodeNoUser:
		return &transfer.UnauthorizedError{}
	case missing != nil:
		return &transfer.UnauthorizedError{Action: missing.Action, Namespace: missing.Namespace}
	case wire.CommandCode(err) == 0:
		return &awayError{err}
	}
	return err
}

// configure collects the options of the coordinator. It refuses flags that differ from
// the note at once, also for a command that only reads.
func (s *session) configure(ctx context.Context, p *program, need need, declared deployment.Declared) error {
	f := &p.flags
	if err := s.chooseAccounts(f.accounts, declared); err != nil {
		return err
	}
	note, found, err := deployment.ReadDeclaredAccounts(ctx, s.accounts)
	if err != nil && wire.Denied(err) == nil {
		return contactError(err)
	}
	if s.fields, err = f.accountFields(transfer.Fields(note.Fields)); err != nil {
		return err
	}
	if s.ids, err = f.accountIDs(note.ObjectIDs); err != nil {
		return err
	}
	if need == needDeployment && found && (s.fields != transfer.Fields(note.Fields) || (s.ids == transfer.ObjectIDs) != note.ObjectIDs) {
		return fmt.Errorf("%w: --field or --ids differs from the deployment's note about %s: leave them out",
			transfer.ErrUnsupportedDeployment, wire.NamespaceOf(s.accounts))
	}
	if s.kinds, err = f.eventKinds(declared.Events); err != nil {
		return err
	}
	policy, err := f.stallPolicy()
	if err != nil {
		return err
	}
	s.options = []transfer.Option{
		transfer.WithAccounts(s.accounts), transfer.WithTransfers(s.transfers), transfer.WithFields(s.fields),
		transfer.WithAccountIDs(s.ids), transfer.WithStallPolicy(policy), transfer.WithStallThreshold(f.stallThreshold),
		transfer.WithOwner("transferctl"), transfer.WithReturnAt(transfer.AtSuccess),
	}
	if len(s.kinds) > 0 {
		s.options = append(s.options, transfer.WithEvents(transfer.EventHandler{Kinds: s.kinds}))
	}
	if f.retention != 0 {
		s.options = append(s.options, transfer.WithRetention(f.retention))
	}
	return s.register(p, declared)
}

// allAccounts returns the collections of accounts and documents.
func (s *session) allAccounts() []*mongo.Collection {
	all := []*mongo.Collection{s.accounts}
	for _, r := range s.registered {
		all = append(all, r.Collection)
	}
	return all
}

// checkNotes refuses collections that no process has used so far, unless the command sets
// up. The first use writes a note, and a mistyped name would become a part of the
// deployment by that. Only a command that adopts takes what a flag names.
//
// It also refuses collections that belong to other transfers by their notes: see
// [session.belongs].
func (s *session) checkNotes(ctx context.Context, need need, named bool) error {
	for _, c := range s.allAccounts() {
		note, found, err := deployment.ReadDeclaredAccounts(ctx, c)
		switch {
		case wire.Denied(err) != nil: // the library names the right
		case err != nil:
			return contactError(err)
		case found && !s.belongs(c, note):
			return s.ofOthers(c, note)
		case !found && need == needDeployment:
			return usage("no process has used the collection %s so far: name another one, or begin with transferctl setup",
				wire.NamespaceOf(c))
		case !found && need == needAdoption && c == s.accounts && !named:
			return usage("which accounts? Say --accounts: no process has used %s so far", wire.NamespaceOf(c))
		}
	}
	return nil
}

// belongs reports whether a collection may be used with these transfers. One in another
// database may be so only if its note names these transfers. The identities don't show
// it, as a copy has those of the original:
//
//  1. A deployment is copied to another database of the same server. The records of the
//     copy name the accounts of the original, and these have the recorded identity.
//  2. Somebody cancels a hold in the copy. The money of the original is given back.
//  3. The original posts its hold. It finds no marker, and takes that as the sign that
//     the money was moved already: Success, and the payee gets nothing.
//
// In the same database a note may name the transfers from before a copy: there the
// accounts were copied with the transfers.
func (s *session) belongs(c *mongo.Collection, note deployment.DeclaredAccounts) bool {
	return c.Database().Name() == s.database.Name() || note.Transfers == wire.NamespaceOf(s.transfers)
}

// ofOthers returns the error of a collection that belongs to other transfers.
func (s *session) ofOthers(c *mongo.Collection, note deployment.DeclaredAccounts) error {
	return fmt.Errorf("%w: %s belongs to the transfers collection %s by its note, and this is another one, %s: "+
		"in a copy of a deployment, name the collections of the copy by --accounts, --with-ledger and --with-documents; "+
		"if the transfers were moved on purpose, call the library's Adopt",
		transfer.ErrUnsupportedDeployment, wire.NamespaceOf(c), note.Transfers, wire.NamespaceOf(s.transfers))
}

// checkRetention refuses a retention that no process has been given so far. The shortest
// one that was ever used counts for all statements, for good: a mistyped flag would take
// their history away.
func (s *session) checkRetention(ctx context.Context, retention time.Duration) error {
	if retention == 0 {
		return nil
	}
	used := wire.ForCommands(collections.RetentionCollection(s.transfers))
	_, err := wire.FindID(ctx, used, retention.Milliseconds())
	switch {
	case wire.NotFound(err):
		return usage("no process keeps transfers for %s so far, and the first one would shorten all statements for good: "+
			"say what the services say, or begin with transferctl setup --retention", retention)
	case err != nil:
		return contactError(err)
	}
	return nil
}

// chooseAccounts chooses the accounts of the default ledger: those that a flag names, or
// the ones that are recorded.
func (s *session) chooseAccounts(given string, declared deployment.Declared) error {
	if given != "" {
		s.accounts = s.database.Collection(given)
		return nil
	}
	s.accounts = s.database.Collection("accounts")
	var here []string
	for _, n := range declared.Names {
		if n.Name != "" || n.Documents || !n.Here {
			continue
		}
		if n.Namespace == s.database.Name()+".accounts" {
			return nil
		}
		here = append(here, n.Namespace)
	}
	switch len(here) {
	case 0:
		return nil
	case 1:
		s.accounts = s.named(here[0])
		return nil
	}
	return usage("which accounts? Say --accounts: these transfers have been used with %s; if one was a mistake, see docs/deployment.md",
		strings.Join(here, " and "))
}

// named returns the collection of a namespace.
func (s *session) named(namespace string) *mongo.Collection {
	database, collection, _ := strings.Cut(namespace, ".")
	return s.database.Client().Database(database).Collection(collection)
}

// serverTime asks the server for its time, by which transfers are stored.
func (s *session) serverTime(ctx context.Context) (time.Time, error) {
	hello, err := collections.Hello(ctx, s.transfers)
	if err != nil {
		return time.Time{}, contactError(err)
	}
	return hello.LocalTime, nil
}

// close ends what was begun.
func (s *session) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
	defer cancel()
	var err error
	if s.Coordinator != nil {
		err = s.Close(ctx)
	}
	return errors.Join(err, s.connections.close(ctx))
}
