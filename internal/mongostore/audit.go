package mongostore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/money"
)

// Place is a collection whose documents take part in transfers.
type Place struct {
	Ledger    string // its name, if its documents are accounts
	Accounts  bool
	Home      bool // a snapshot of it shows the transfers too
	Namespace string

	client       *mongo.Client
	majority     *mongo.Collection
	linearizable *mongo.Collection
}

// String names the place.
func (p *Place) String() string {
	switch {
	case !p.Accounts:
		return "collection " + p.Namespace
	case p.Ledger == "":
		return "the default ledger"
	}
	return fmt.Sprintf("ledger %q", p.Ledger)
}

// Atlas knows all places of a store.
type Atlas struct {
	store     *Store
	Transfers *Place // its documents can be changed in step with money, too
	Ledgers   []*Place
}

// Atlas returns all places, the ledgers by name.
func (s *Store) Atlas() *Atlas {
	home := s.transfers.Database().Client()
	place := func(majority, linearizable *mongo.Collection) *Place {
		client := majority.Database().Client()
		return &Place{
			Home: client == home, Namespace: namespaceOf(majority),
			client: client, majority: majority, linearizable: linearizable,
		}
	}
	a := &Atlas{store: s, Transfers: place(s.majority, s.linearizable)}
	for _, name := range slices.Sorted(maps.Keys(s.ledgers)) {
		l := place(s.ledgers[name].majority, s.ledgers[name].linearizable)
		l.Ledger, l.Accounts = name, true
		a.Ledgers = append(a.Ledgers, l)
	}
	return a
}

// Away returns the places that a snapshot of the transfers doesn't show, those of one cluster together.
func (a *Atlas) Away() [][]*Place {
	var (
		clusters [][]*Place
		index    = map[*mongo.Client]int{}
	)
	for _, p := range a.Ledgers {
		if p.Home {
			continue
		}
		if _, known := index[p.client]; !known {
			index[p.client] = len(clusters)
			clusters = append(clusters, nil)
		}
		clusters[index[p.client]] = append(clusters[index[p.client]], p)
	}
	return clusters
}

// Part is one participant of a transfer.
type Part struct {
	Place  *Place        // nil: it is not registered here
	Key    string        // its _id as it is stored, and comparable
	ID     string        // as the API tells it
	Name   string        // for people
	Amount *money.Amount // of a leg; nil for an effect
	id     bson.RawValue
}

// Parts returns the participants of a transfer.
func (a *Atlas) Parts(t Transfer) []Part {
	parts := make([]Part, 0, len(t.Legs)+len(t.Effects))
	for _, leg := range t.Legs {
		name := fmt.Sprintf("account %q of ledger %q (%s)", leg.Account, leg.Ledger, leg.Namespace)
		p := Part{ID: leg.Account, Amount: &leg.Amount, Name: name}
		if id, err := a.store.ids.Encode(leg.Account); err == nil {
			p.id, p.Key = id, keyOf(id)
			p.Place = a.ledger(leg.Ledger, leg.Namespace)
		}
		parts = append(parts, p)
	}
	for _, effect := range t.Effects {
		name := fmt.Sprintf("document %s of %s", effect.ID, effect.Namespace)
		p := Part{ID: textOf(effect.ID), Name: name, id: effect.ID, Key: keyOf(effect.ID)}
		if effect.Namespace == a.Transfers.Namespace {
			p.Place = a.Transfers
		}
		parts = append(parts, p)
	}
	return parts
}

func (a *Atlas) ledger(name, namespace string) *Place {
	for _, p := range a.Ledgers {
		if p.Ledger == name && p.Namespace == namespace {
			return p
		}
	}
	return nil
}

// keyOf makes a stored _id comparable.
func keyOf(id bson.RawValue) string { return string(byte(id.Type)) + string(id.Value) }

// textOf writes an _id for people.
func textOf(id bson.RawValue) string {
	if text, ok := id.StringValueOK(); ok {
		return text
	}
	if oid, ok := id.ObjectIDOK(); ok {
		return oid.Hex()
	}
	return id.String()
}

// Detached returns a context without the caller's session, for reads that are not part of what goes on in it.
func Detached(ctx context.Context) context.Context { return detached(ctx) }

// ErrSnapshotGone is returned where a server has not kept what it had stored at the snapshot's time for long enough.
var ErrSnapshotGone = errors.New("the server keeps no snapshot for as long as this takes")

// codeSnapshotTooOld is the server's code for it.
const codeSnapshotTooOld = 239

// InSnapshot performs reads on what a place's cluster has stored at one moment: that of the first read. Nothing waits for it; the server
// keeps older versions of documents for it, some minutes long.
func (p *Place) InSnapshot(ctx context.Context, reads func(context.Context) error) error {
	session, err := p.client.StartSession(options.Session().SetSnapshot(true))
	if err != nil {
		return err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	err = reads(mongo.NewSessionContext(ctx, session))
	if refused := mongo.ServerError(nil); errors.As(err, &refused) && refused.HasErrorCode(codeSnapshotTooOld) {
		return fmt.Errorf("%w: %w", ErrSnapshotGone, err)
	}
	return err
}

// ServerTime returns what the clock of the transfers' server shows.
func (s *Store) ServerTime(ctx context.Context) (time.Time, error) {
	answer, err := hello(detached(ctx), s.transfers)
	return answer.LocalTime, err
}

// CommittedSince reports whether a transfer that touches one of these ledgers was committed since then.
func (s *Store) CommittedSince(ctx context.Context, since time.Time, ledgers []string) (bool, error) {
	filter := bson.D{
		{Key: "committedAt", Value: bson.D{{Key: "$gte", Value: since}}},
		withLeg(bson.D{{Key: "ledger", Value: bson.D{{Key: "$in", Value: ledgers}}}}),
	}
	_, err := s.majority.FindOne(detached(ctx), filter).Raw()
	if missing(err) {
		return false, nil
	}
	return err == nil, err
}
