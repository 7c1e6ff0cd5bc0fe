package conformance

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/simulate"
)

// documents is everything that is stored, in the model's terms.
type documents struct {
	Accounts  [simulate.MaxAccounts]account
	Transfers [simulate.MaxTransfers]transfer
}

// String returns a line for each document.
func (d documents) String() string {
	var text strings.Builder
	for i, a := range d.Accounts {
		fmt.Fprintf(&text, "account %d: %+v\n", i, a)
	}
	for i, t := range d.Transfers {
		fmt.Fprintf(&text, "transfer %d: %+v\n", i, t)
	}
	return text.String()
}

// account is an account as it is stored.
type account struct {
	There    bool
	Balance  string // its kind and its value
	Pending  string
	Fence    protocol.Fence
	Closed   bool
	Frozen   bool
	Rest     string // of the fields
	Reversed string // of an original: what it counts
}

// transfer is a transfer as it is stored.
type transfer struct {
	There              bool
	State              protocol.State
	Open               bool
	Epoch              int64
	Owner              string
	Failure            string
	Clean, Held        bool
	Posted             string
	Expired            bool
	Attempts, Verified int64
	Committed          bool   // it has the time of its decision
	Touched            bool   // lastModified is new
	Others             string // "": the other fields are as they should be
}

// number describes an exact number by kind and value, and anything else by type and
// value.
func number(stored bson.RawValue) string {
	if amount, err := money.FromBSON(stored); err == nil {
		return amount.Canonical()
	}
	return stored.String()
}

// stored returns what is stored according to the model.
func (m *model) stored() documents {
	var d documents
	for i := range m.scene.accounts {
		d.Accounts[i] = m.storedAccount(i)
	}
	for i := range m.scene.plans {
		d.Transfers[i] = m.storedTransfer(i)
	}
	return d
}

func (m *model) storedAccount(i int) account {
	if m.scene.accounts[i].paper != nil {
		return m.storedPaper()
	}
	a, c := &m.Accounts[i], m.scene.coin
	if a.Missing {
		return account{}
	}
	document := encode(m.scene.accounts[i].document(i, c))
	stored := account{
		There: true, Balance: number(raw(c.stored(a.Balance, m.dress[i]))), Fence: a.Fence,
		Closed: a.Closed, Frozen: a.Frozen, Rest: rest(document),
	}
	if m.dress[i] == markerList {
		stored.Pending = raw(bson.A{}).String()
		return stored
	}
	if m.dress[i] == wrapped {
		stored.Pending = raw(bson.A{m.garble.map0[i]}).String()
		return stored
	}
	var markers []string
	for t, legs := range m.Plans {
		for _, leg := range legs {
			if leg.Account == i && a.Traces[t] != protocol.NoTrace {
				markers = append(markers, traceKey(t, a.Traces[t])+": "+c.amount(leg.Amount).Canonical())
			}
		}
	}
	stored.Pending = inOrder(markers)
	return stored
}

// traceKey returns the key of a transfer's trace.
func traceKey(transfer int, trace protocol.Trace) string {
	if trace == protocol.Done {
		return markerKeys()[transfer] + "%"
	}
	return markerKeys()[transfer]
}

func inOrder(list []string) string {
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// rest returns the fields of an account that no operation changes.
func rest(document bson.Raw) string {
	var fields []string
	elements, _ := document.Elements()
	for _, e := range elements {
		switch e.Key() {
		case "balance", "pending", "fence", "closed", "frozen", "reversed":
		default:
			fields = append(fields, e.String())
		}
	}
	return inOrder(fields)
}

func (m *model) storedTransfer(i int) transfer {
	t, k := &m.Transfers[i], &m.kept[i]
	if !t.Stored {
		return transfer{}
	}
	stored := transfer{
		There: true, State: t.State, Open: !t.State.Final(), Epoch: t.Epoch,
		Clean: t.Clean, Held: t.Held, Expired: m.Expired[i], Attempts: k.attempts, Verified: k.verified, Touched: k.touched,
		Committed: t.State == protocol.Committed || t.State == protocol.Success,
	}
	if t.Owner != 0 {
		stored.Owner = m.scene.ownerName(t.Owner)
	}
	if t.Posted != 0 {
		stored.Posted = m.scene.coin.amount(t.Posted).Canonical()
	}
	if t.State == protocol.Rollback || t.State == protocol.Fail {
		where := "the whole"
		if p := t.Refusal.Participant; p != protocol.NoParticipant {
			where = m.scene.place(m.Plans[i][p].Account)
		}
		stored.Failure = fmt.Sprintf("%s, %s, %s", t.Refusal.Reason, where, describe(t.Refusal))
	}
	return stored
}

// stored reads all documents.
// Fences get the names that the model has for them.
// A new fence is taken for the model's new one.
func (b *bank) stored(model documents) documents {
	var d documents
	for _, document := range b.all() {
		i := b.accountOf(document)
		if i >= 0 {
			d.Accounts[i] = b.readAccount(document, model.Accounts[i].Fence)
		} else {
			i = slices.Index(transferIDs(), document.Lookup("_id").StringValue())
			d.Transfers[i] = b.readTransfer(document, i)
		}
	}
	return d
}

// accountOf returns which participant a document is, -1 if it is a transfer.
func (b *bank) accountOf(document bson.Raw) int {
	if _, is := document.Lookup("note").StringValueOK(); !is {
		return -1
	}
	id, _ := document.Lookup("_id").StringValueOK()
	if i := slices.Index(accountIDs(), id); i >= 0 {
		return i
	}
	return paperAt
}

// all reads all documents at once.
func (b *bank) all() []bson.Raw {
	cursor, err := b.transfers().Aggregate(b.t.Context(), bson.A{
		bson.D{{Key: "$unionWith", Value: "accounts"}}, bson.D{{Key: "$unionWith", Value: "accounts_eu"}},
		bson.D{{Key: "$unionWith", Value: orders}},
	})
	require.NoError(b.t, err)
	var documents []bson.Raw
	require.NoError(b.t, cursor.All(b.t.Context(), &documents))
	return documents
}

func (b *bank) readAccount(document bson.Raw, expected protocol.Fence) account {
	fence := fenceOf(document.Lookup("fence"))
	b.names.meet(expected, fence)
	a := account{There: true, Balance: number(document.Lookup("balance")), Fence: b.names.toModel(fence), Rest: rest(document)}
	a.Closed, _ = document.Lookup("closed").BooleanOK()
	a.Frozen, _ = document.Lookup("frozen").BooleanOK()
	a.Pending, a.Reversed = pendingOf(document), countedNow(document.Lookup("reversed").Value)
	return a
}

// pendingOf describes a document's markers; "" if there are none.
func pendingOf(document bson.Raw) string {
	pending := document.Lookup("pending")
	markers, ok := pending.DocumentOK()
	if !ok {
		if pending.Type == 0 {
			return ""
		}
		return pending.String()
	}
	var list []string
	elements, _ := markers.Elements()
	for _, e := range elements {
		list = append(list, e.Key()+": "+number(e.Value()))
	}
	return inOrder(list)
}

// storedFields are the fields of a transfer.
type storedFields struct {
	State        protocol.State
	Open         bool
	Epoch        int64
	Owner        string
	Failure      *document.Failure
	Clean        bool
	Hold, Held   bool
	Posted       *money.Amount
	ExpiresAt    time.Time `bson:"expiresAt"`
	Effects      bson.RawValue
	Reverses     string
	Part         bool
	Attempts     int64
	Verified     int64
	LastModified time.Time `bson:"lastModified"`
	CreatedAt    time.Time `bson:"createdAt"`
	CommittedAt  time.Time `bson:"committedAt"`
	ID           string    `bson:"_id"`
	Currency     string
	Digest       document.Digest
	Legs         bson.RawValue
	Outbox       bson.RawValue
	Others       bson.M `bson:",inline"`
}

func (b *bank) readTransfer(document bson.Raw, i int) transfer {
	var f storedFields
	require.NoError(b.t, bson.Unmarshal(document, &f))
	t := transfer{
		There: true, State: f.State, Open: f.Open, Epoch: f.Epoch, Owner: f.Owner, Clean: f.Clean, Held: f.Held,
		Expired: f.Hold && f.ExpiresAt.Before(time.Now()), Attempts: f.Attempts,
		Verified: f.Verified, Committed: !f.CommittedAt.IsZero(), Touched: !f.LastModified.Equal(longAgo()),
	}
	if f.Posted != nil {
		t.Posted = f.Posted.Canonical()
	}
	if f.Failure != nil {
		where := "the whole"
		if f.Failure.Account != "" {
			where = f.Failure.Ledger + "/" + f.Failure.Account
		}
		t.Failure = fmt.Sprintf("%s, %s, %s", f.Failure.Code, where, f.Failure.Message)
	}
	if !f.suit(b.transfer(i)) || !slices.Equal(f.events(), f.leftEvents(b.events)) {
		t.Others = document.String()
	}
	return t
}

// suit reports whether the stored fields are right: unchanging fields have the requested
// values, the times are possible, and there are no other fields.
func (f storedFields) suit(asked document.Transfer) bool {
	return f.Currency == asked.Currency &&
		f.Digest.Format == asked.Digest.Format && f.Digest.Same(asked.Digest) &&
		(f.Legs.Equal(raw(asked.Legs)) || len(asked.Legs) == 0 && f.Legs.Equal(raw(bson.A{}))) &&
		(f.Effects.Equal(raw(asked.Effects)) || len(asked.Effects) == 0 && f.Effects.Type == 0) &&
		f.Reverses == asked.Reverses && f.Part == asked.Part &&
		f.Hold == asked.Hold &&
		(f.Hold == recent(f.ExpiresAt)) &&
		recent(f.CreatedAt) &&
		(recent(f.LastModified) || f.LastModified.Equal(longAgo())) &&
		(recent(f.CommittedAt) || f.CommittedAt.IsZero()) &&
		len(f.Others) == 0
}

// events returns the kinds of the events that are stored.
func (f storedFields) events() (kinds []document.EventKind) {
	for _, e := range (document.Transfer{Outbox: f.Outbox}).Undelivered() {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// leftEvents returns the kinds of the events that have to be stored, as nobody delivers
// them: each with its state, and none without it.
func (f storedFields) leftEvents(of document.Events) (kinds []document.EventKind) {
	if !of.Any() {
		return nil
	}
	if f.Held {
		kinds = append(kinds, document.EventHeld)
	}
	switch f.State {
	case protocol.Success:
		kinds = append(kinds, document.EventSucceeded)
	case protocol.Fail:
		kinds = append(kinds, document.EventFailed)
	default:
	}
	return kinds
}

// recent reports whether a time is in the present, as far as the clocks of different
// machines may differ.
func recent(t time.Time) bool { return time.Since(t).Abs() < 2*time.Hour }
