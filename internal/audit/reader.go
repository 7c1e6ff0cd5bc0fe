package audit

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

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/deployment"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Place is a collection whose documents take part in transfers.
type Place struct {
	Name      string // of a ledger, or of documents that effects change
	Accounts  bool   // it is a ledger
	Home      bool   // a snapshot of it shows the transfers too
	Namespace string
	ledger    *collections.Collection
}

// String names the place.
func (p *Place) String() string {
	switch {
	case !p.Accounts:
		return "collection " + p.Namespace
	case p.Name == "":
		return "the default ledger"
	}
	return fmt.Sprintf("ledger %q", p.Name)
}

func (p *Place) client() *mongo.Client { return p.ledger.Majority.Database().Client() }

// Reader knows all places of a store.
type Reader struct {
	store     *deployment.Deployment
	Transfers *Place   // reversals change them
	Places    []*Place // all others: ledgers, then documents, each by name
}

// NewReader returns all places of a catalog.
func NewReader(s *deployment.Deployment) *Reader {
	place := func(l *collections.Collection) *Place {
		return &Place{Name: l.Name, Home: l.SameClient, Namespace: l.Namespace, ledger: l}
	}
	a := &Reader{store: s, Transfers: place(s.Originals)}
	for _, name := range slices.Sorted(maps.Keys(s.Ledgers)) {
		p := place(s.Ledgers[name])
		p.Accounts = true
		a.Places = append(a.Places, p)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Documents)) {
		a.Places = append(a.Places, place(s.Documents[name]))
	}
	return a
}

// Away returns the places that a snapshot of the transfers doesn't show, those of one cluster together.
func (a *Reader) Away() [][]*Place {
	var (
		clusters [][]*Place
		index    = map[*mongo.Client]int{}
	)
	for _, p := range a.Places {
		if p.Home {
			continue
		}
		if _, known := index[p.client()]; !known {
			index[p.client()] = len(clusters)
			clusters = append(clusters, nil)
		}
		clusters[index[p.client()]] = append(clusters[index[p.client()]], p)
	}
	return clusters
}

// Participant is one participant of a transfer.
type Participant struct {
	Place     *Place        // nil: it is not registered here
	Namespace string        // as the transfer names it
	Key       string        // its _id, comparable
	ID        string        // as the API tells it
	Name      string        // for people
	Amount    *money.Amount // of a leg; nil for an effect
	Spare     bool          // nothing is owed to it when it is gone
	id        bson.RawValue
}

// Participants returns the participants of a transfer: its legs, its effects, and the transfer that it reverses.
func (a *Reader) Participants(t document.Transfer) []Participant {
	parts := make([]Participant, 0, len(t.Legs)+len(t.Effects)+1)
	for _, leg := range t.Legs {
		name := fmt.Sprintf("account %q of ledger %q (%s)", leg.Account, leg.Ledger, leg.Namespace)
		p := Participant{Namespace: leg.Namespace, ID: leg.Account, Amount: &leg.Amount, Name: name}
		if id, err := a.store.IDs.Encode(leg.Account); err == nil {
			p.id, p.Key = id, keyOf(id)
			p.Place = a.place(leg.Ledger, leg.Namespace, true)
		}
		parts = append(parts, p)
	}
	for _, e := range t.Effects {
		parts = append(parts, Participant{
			Place: a.place(e.Documents, e.Namespace, false), Namespace: e.Namespace, ID: document.IDText(e.ID), Key: keyOf(e.ID), id: e.ID,
			Name: fmt.Sprintf("document %q of %q (%s)", document.IDText(e.ID), e.Documents, e.Namespace),
		})
	}
	if t.Reverses != "" {
		id := wire.RawValue(t.Reverses)
		parts = append(parts, Participant{
			Place: a.Transfers, Namespace: a.Transfers.Namespace, ID: t.Reverses, Key: keyOf(id), id: id, Spare: true,
			Name: fmt.Sprintf("transfer %q", t.Reverses),
		})
	}
	return parts
}

func (a *Reader) place(name, namespace string, accounts bool) *Place {
	for _, p := range a.Places {
		if p.Name == name && p.Namespace == namespace && p.Accounts == accounts {
			return p
		}
	}
	return nil
}

// keyOf makes a stored _id comparable. The server takes some for equal that are stored in different ways.
func keyOf(id bson.RawValue) string {
	id = document.Canonical(id)
	return string(byte(id.Type)) + string(id.Value)
}

// Detached returns a context without the caller's session, for reads that are not part of what goes on in it.
func Detached(ctx context.Context) context.Context { return wire.Detached(ctx) }

// ErrSnapshotGone is returned where a server has not kept what it had stored at the snapshot's time for long enough.
var ErrSnapshotGone = errors.New("the server keeps no snapshot for as long as this takes")

// codeSnapshotTooOld is the server's code for it.
const codeSnapshotTooOld = 239

// InSnapshot performs reads on what a place's cluster has stored at one moment: that of the first read. Nothing waits for it; the server
// keeps older versions of documents for it, some minutes long.
func (p *Place) InSnapshot(ctx context.Context, reads func(context.Context) error) error {
	session, err := p.client().StartSession(options.Session().SetSnapshot(true))
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

// CommittedSince reports whether a transfer that touches this ledger was committed since then.
func (a *Reader) CommittedSince(ctx context.Context, since time.Time, ledger string) (bool, error) {
	filter := bson.D{
		{Key: "committedAt", Value: bson.D{{Key: "$gte", Value: since}}},
		document.WithLeg(bson.D{{Key: "ledger", Value: ledger}}),
	}
	_, err := wire.FindOne(wire.Detached(ctx), a.store.Majority, filter)
	if wire.NotFound(err) {
		return false, nil
	}
	return err == nil, err
}
