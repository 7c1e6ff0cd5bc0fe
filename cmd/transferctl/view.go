package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
)

// recordView is a transfer for programs. Times are in RFC 3339, amounts as the library
// writes them: units as numbers, decimals as texts.
type recordView struct {
	ID              string            `json:"id"`
	State           transfer.State    `json:"state"`
	Legs            []legView         `json:"legs"`
	Effects         []effectView      `json:"effects,omitempty"`
	Currency        string            `json:"currency,omitempty"`
	Metadata        json.RawMessage   `json:"metadata,omitempty"`
	Epoch           int64             `json:"epoch"`
	Owner           string            `json:"owner,omitempty"`
	CreatedAt       time.Time         `json:"createdAt,omitzero"`
	LastModified    time.Time         `json:"lastModified,omitzero"`
	CommittedAt     time.Time         `json:"committedAt,omitzero"`
	Failure         *failureView      `json:"failure,omitempty"`
	Stuck           *failureView      `json:"stuck,omitempty"`
	Attempts        int               `json:"attempts,omitempty"`
	NotBefore       time.Time         `json:"notBefore,omitzero"`
	AwaitFundsUntil time.Time         `json:"awaitFundsUntil,omitzero"`
	Waiting         *failureView      `json:"waiting,omitempty"`
	NextTry         time.Time         `json:"nextTry,omitzero"`
	Postponed       int               `json:"postponed,omitempty"`
	PurgeAt         time.Time         `json:"purgeAt,omitzero"`
	Reverses        string            `json:"reverses,omitempty"`
	ReversedBy      string            `json:"reversedBy,omitempty"`
	Reversed        *transfer.Amount  `json:"reversed,omitempty"`
	ReversedLegs    []legView         `json:"reversedLegs,omitempty"`
	Hold            bool              `json:"hold,omitempty"`
	Held            bool              `json:"held,omitempty"`
	ExpiresAt       time.Time         `json:"expiresAt,omitzero"`
	Posted          *transfer.Amount  `json:"posted,omitempty"`
	Undelivered     []undeliveredView `json:"undelivered,omitempty"`
}

type legView struct {
	Ledger   string          `json:"ledger,omitempty"`
	Account  string          `json:"account"`
	Amount   transfer.Amount `json:"amount"`
	Currency string          `json:"currency,omitempty"`
}

type effectView struct {
	Documents string          `json:"documents"`
	ID        json.RawMessage `json:"id"`
	Require   json.RawMessage `json:"require,omitempty"`
	Set       json.RawMessage `json:"set,omitempty"`
}

type failureView struct {
	Code    string `json:"code"`
	Ledger  string `json:"ledger,omitempty"`
	Account string `json:"account,omitempty"`
	Message string `json:"message"`
	Detail  string `json:"detail,omitempty"`
	Others  int    `json:"others,omitempty"`
}

type undeliveredView struct {
	Kind     transfer.EventKind `json:"kind"`
	At       time.Time          `json:"at"`
	Attempts int                `json:"attempts"`
	GivenUp  bool               `json:"givenUp,omitempty"`
}

// viewOf returns a transfer for programs.
func viewOf(r transfer.Record) recordView {
	v := recordView{
		ID: r.ID, State: r.State, Legs: []legView{}, Currency: r.Currency, Epoch: r.Epoch, Owner: r.Owner,
		CreatedAt: r.CreatedAt, LastModified: r.LastModified, CommittedAt: r.CommittedAt,
		Failure: failureOf(r.Failure), Stuck: failureOf(r.Stuck), Attempts: r.Attempts,
		NotBefore: r.NotBefore, AwaitFundsUntil: r.AwaitFundsUntil, Waiting: failureOf(r.Waiting), NextTry: r.NextTry,
		Postponed: r.Postponed, PurgeAt: r.PurgeAt, Reverses: r.Reverses, ReversedBy: r.ReversedBy,
		Hold: r.Hold, Held: r.Held, ExpiresAt: r.ExpiresAt, Posted: r.Posted,
	}
	for _, leg := range r.Legs {
		v.Legs = append(v.Legs, legView(leg))
	}
	for _, e := range r.Effects {
		v.Effects = append(v.Effects, effectView{
			Documents: e.Documents, ID: extended(e.ID), Require: documentOf(e.Require), Set: documentOf(e.Set),
		})
	}
	if len(r.Metadata) > 0 {
		v.Metadata = metadataOf(r.Metadata)
	}
	if !r.Reversed.IsZero() {
		v.Reversed = &r.Reversed
	}
	for _, leg := range r.ReversedLegs {
		v.ReversedLegs = append(v.ReversedLegs, legView(leg))
	}
	for _, u := range r.Undelivered {
		v.Undelivered = append(v.Undelivered, undeliveredView(u))
	}
	return v
}

func failureOf(f *transfer.Failure) *failureView {
	if f == nil {
		return nil
	}
	v := failureView(*f)
	return &v
}

func documentOf(d bson.D) json.RawMessage {
	if len(d) == 0 {
		return nil
	}
	return extended(d)
}

// metadataOf returns metadata in the order of its keys.
func metadataOf(m map[string]any) json.RawMessage {
	sorted := bson.D{}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		sorted = append(sorted, bson.E{Key: key, Value: m[key]})
	}
	return extended(sorted)
}

// extended returns a value of the database as MongoDB's relaxed extended JSON, or null.
func extended(value any) json.RawMessage {
	text, err := bson.MarshalExtJSON(bson.D{{Key: "v", Value: value}}, false, false)
	if err != nil {
		return nil
	}
	var wrapped struct{ V json.RawMessage }
	if json.Unmarshal(text, &wrapped) != nil {
		return nil
	}
	return wrapped.V
}

// accountView is an account for programs.
type accountView struct {
	ID        string          `json:"id"`
	Ledger    string          `json:"ledger,omitempty"`
	Balance   transfer.Amount `json:"balance"`
	Available transfer.Amount `json:"available"`
	Posted    transfer.Amount `json:"posted"`
	Incoming  transfer.Amount `json:"incoming"`
	Floor     transfer.Amount `json:"floor"`
	NoFloor   bool            `json:"noFloor,omitempty"`
	Currency  string          `json:"currency,omitempty"`
	Frozen    bool            `json:"frozen,omitempty"`
	Closed    bool            `json:"closed,omitempty"`
	Metadata  json.RawMessage `json:"metadata,omitempty"`
	// Error says why the document is no account.
	Error string `json:"error,omitempty"`
}

func viewOfAccount(a transfer.Account) accountView {
	v := accountView{
		ID: a.ID, Ledger: a.Ledger, Balance: a.Balance, Available: a.Available, Posted: a.Posted, Incoming: a.Incoming,
		Floor: a.Floor, NoFloor: a.NoFloor, Currency: a.Currency, Frozen: a.Frozen, Closed: a.Closed,
	}
	if len(a.Metadata) > 0 {
		v.Metadata = metadataOf(a.Metadata)
	}
	return v
}

// row returns a transfer as a row of a table.
func row(r transfer.Record) []string {
	return []string{clean(r.ID), stateOf(r), timeText(r.CreatedAt), movesText(r.Legs), remark(r)}
}

// rowHeader heads the table of rows.
func rowHeader() []string { return []string{"ID", "STATE", "CREATED", "MOVES", "REMARK"} }

// stateOf names a state, and whether a hold is held.
func stateOf(r transfer.Record) string {
	if r.Held {
		return clean(string(r.State)) + " (held)"
	}
	return clean(string(r.State))
}

// movesText returns the legs of a transfer, as text.
func movesText(legs []transfer.Leg) string {
	var moves []string
	for _, leg := range legs {
		text := clean(leg.Account) + " " + leg.Amount.String()
		if leg.Amount.Sign() > 0 {
			text = clean(leg.Account) + " +" + leg.Amount.String()
		}
		if leg.Ledger != "" {
			text = clean(leg.Ledger) + "/" + text
		}
		if leg.Currency != "" {
			text += " " + clean(leg.Currency)
		}
		moves = append(moves, text)
	}
	return strings.Join(moves, ", ")
}

// remark returns what else there is to say of a transfer: the most urgent alone, and
// which event is undelivered.
func remark(r transfer.Record) string {
	var remarks []string
	if urgent := urgentRemark(r); urgent != "" {
		remarks = append(remarks, urgent)
	}
	for _, u := range r.Undelivered {
		text := "undelivered: " + clean(string(u.Kind))
		if u.GivenUp {
			text += " (given up)"
		}
		remarks = append(remarks, text)
	}
	return strings.Join(remarks, "; ")
}

func urgentRemark(r transfer.Record) string {
	switch {
	case r.Stuck != nil:
		return "stuck: " + because(r.Stuck)
	case r.Failure != nil:
		return because(r.Failure)
	case r.Held:
		return "expires " + timeText(r.ExpiresAt)
	case r.Waiting != nil:
		return "waits: " + because(r.Waiting)
	case r.State == transfer.StateInitiated && !r.NotBefore.IsZero():
		return "not before " + timeText(r.NotBefore)
	case r.Posted != nil:
		return "posted " + r.Posted.String()
	case r.Reverses != "":
		return "reverses " + clean(r.Reverses)
	}
	return ""
}

// because returns the code of a failure, and the account or document that is the cause.
func because(f *transfer.Failure) string { return strings.TrimSpace(clean(f.Code + " " + f.Account)) }

// timeText writes a time for people; the zero time is "-".
func timeText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// asCommands puts commands in the place of the library's calls.
func asCommands(advice string) string {
	return strings.NewReplacer(
		"RepairMarker with KeepBalance", "transferctl repair marker --decision keep-balance",
		"RepairMarker", "transferctl repair marker",
		"RepairPending", "transferctl repair pending",
		"RepairOpen", "transferctl repair open",
		"Recover with a threshold of zero", "transferctl recover --stall-threshold 0s",
		"Recover of a Coordinator with WithStallThreshold(0)", "transferctl recover --stall-threshold 0s",
		"call Redeliver.", "run transferctl redeliver.",
		"Reverse takes its money back", "transferctl reverse takes its money back",
		"see Coordinator.Adopt", "see transferctl adopt",
		"and Cancel takes it back", "and transferctl cancel takes it back",
		"Post takes the money, and Void gives it back.", "The service may post it, and transferctl cancel gives it back.",
	).Replace(advice)
}
