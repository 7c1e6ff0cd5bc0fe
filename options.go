package transfer

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/retention"
	"github.com/mongotransfer/transfer/internal/words"
)

// Defaults and limits.
const (
	defaultAccounts       = "accounts"
	defaultTransfers      = "transfers"
	defaultStallThreshold = 30 * time.Second
	defaultMarkerLimit    = 4096
	// maxMarkerLimit keeps the sum of a balance and all credits in flight below 2^63: 2^62 + 2^13 · 2^48.
	maxMarkerLimit = money.MaxInFlight
	// defaultFenceCache is enough for a million accounts.
	defaultFenceCache = 64 << 20
	// The bounds of group commit.
	defaultMaxBatch    = 512
	defaultMaxInFlight = 2
	defaultMaxPending  = 2048
	maxBatch           = 1 << 12
	maxInFlight        = 64
	maxPending         = 1 << 16
	maxOwnerBytes      = 128
	maxNameBytes       = 64
)

// Option changes a default of [NewCoordinator].
type Option func(*settings)

// settings are the options put together.
type settings struct {
	accounts, transfers *mongo.Collection
	ledgers             map[string]*mongo.Collection
	documents           map[string]*mongo.Collection
	twice               []string // ledgers and documents that were given twice
	fields              Fields
	ids                 IDCodec
	owner               string
	markerLimit         int
	fenceBytes          int64
	stallThreshold      time.Duration
	policy              StallPolicy
	returnAt            State
	group               GroupCommit
	retention           time.Duration
	retained            bool // the retention was given
	logger              *slog.Logger
}

// Fields are the names of an account's fields; an empty one stands for the default, which is the name here in lower case. The library
// touches no other field, save metadata, which OpenAccount writes.
type Fields struct {
	Balance  string // int32, int64 or Decimal128
	Pending  string // a map from transfers in flight to what they reserve
	Fence    string // a token that late messages are told by
	Floor    string // the least balance that a debit may leave; none: 0; MinKey: no floor
	Currency string // a string; none: no currency
	Closed   string // true: closed
}

// IDCodec says how account IDs are stored.
type IDCodec uint8

const (
	// StringIDs are strings in the API and in the database.
	StringIDs IDCodec = IDCodec(document.StringIDs)
	// ObjectIDs are 24 hex digits in the API and an ObjectId in the database.
	ObjectIDs IDCodec = IDCodec(document.ObjectIDs)
)

// StallPolicy says what becomes of a transfer that stalled before it was committed.
type StallPolicy uint8

const (
	// Resume goes on with it: it succeeds if it still can.
	Resume StallPolicy = iota + 1
	// RollBack rolls it back, with the failure code stalled.
	RollBack
)

// WithAccounts sets the collection of accounts of the default ledger; default: accounts.
func WithAccounts(c *mongo.Collection) Option { return func(s *settings) { s.accounts = c } }

// WithTransfers sets the collection of transfers; default: transfers. All coordinators that touch a collection of accounts must share
// one collection of transfers: a marker names its transfer by the ID alone.
func WithTransfers(c *mongo.Collection) Option { return func(s *settings) { s.transfers = c } }

// WithLedger registers another collection of accounts, in any database or cluster. Its name is stored in the transfers and must
// stay the same for as long as there are any.
func WithLedger(name string, c *mongo.Collection) Option {
	return func(s *settings) {
		if _, given := s.ledgers[name]; given {
			s.twice = append(s.twice, name)
		}
		s.ledgers[name] = c
	}
}

// WithDocuments registers a collection of documents that effects change, in any database or cluster: see [Effect]. Its name is stored in
// the transfers and must stay the same for as long as there are any. A collection of accounts is refused, also through another client, with
// ErrUnsupportedDeployment: where a ledger has a collection of the same name on another server, effects wait until that was reached once.
func WithDocuments(name string, c *mongo.Collection) Option {
	return func(s *settings) {
		if _, given := s.documents[name]; given {
			s.twice = append(s.twice, name)
		}
		s.documents[name] = c
	}
}

// WithFields sets the names of an account's fields, in all ledgers.
func WithFields(f Fields) Option { return func(s *settings) { s.fields = f } }

// WithAccountIDs sets how account IDs are stored, in all ledgers; default: StringIDs.
func WithAccountIDs(c IDCodec) Option { return func(s *settings) { s.ids = c } }

// WithOwner sets the name by which stored transfers tell who runs them; a random part is always added. Default: host and process ID.
func WithOwner(name string) Option { return func(s *settings) { s.owner = name } }

// WithMarkerLimit bounds how many transfers may be in flight on one account, 1 to 8192; default 4096. A transfer beyond
// it waits, for half of its context's time and 5 s at most, before it is refused with ErrAccountBusy. The bound is soft.
func WithMarkerLimit(n int) Option { return func(s *settings) { s.markerLimit = n } }

// WithFenceCache bounds the memory, in bytes, in which a Coordinator remembers what it has
// read of accounts; 1 MiB or more, default 64 MiB. A transfer between accounts that it knows
// costs five commands; any other one begins with a read, and costs six. An account takes 56
// bytes, whatever its ID, so 64 MiB have room for about a million. The memory grows as it is
// needed; where it is full, accounts that were not used for long make room. With 0 nothing is
// remembered: each transfer begins with a read.
//
// No money depends on what is remembered: where it does not hold any more, the transfer's
// write to the account is refused, and it reads and tries again. Two kinds of accounts are
// read again after a minute: those with many transfers in flight (a 64th of
// [WithMarkerLimit]), to see what other processes have put there, and those without a fence,
// which [Coordinator.OpenAccount] would have written. A transfer with effects always reads.
func WithFenceCache(bytes int64) Option { return func(s *settings) { s.fenceBytes = bytes } }

// WithStallThreshold sets after how long without a sign of life others take a transfer over; default 30 s. It decides only how soon
// recovery steps in: even zero is safe, it costs work. Of a transfer that can't be finished ([Record].Stuck) each takeover doubles the time
// to the next one, up to 64 times the threshold; of others, those after the third do.
// A transfer that was modified further ahead than the threshold is taken over as well: the server's clock
// was set back.
func WithStallThreshold(d time.Duration) Option { return func(s *settings) { s.stallThreshold = d } }

// WithStallPolicy sets what becomes of a transfer that stalled before it was committed: Resume, the default, or RollBack.
func WithStallPolicy(p StallPolicy) Option { return func(s *settings) { s.policy = p } }

// WithRetention lets the server remove transfers some time after they are final, an hour at the least; default: they are kept for good.
// It holds for those that this Coordinator finishes from now on: what was finished before, or by others, keeps the time that is stored
// with it ([Record].PurgeAt). [Coordinator.Setup] creates the index that the server needs for it.
//
// A removed transfer's ID is forgotten. Whoever uses it again, or asks again so late for want of an answer, moves the money again. So the
// retention is longer than any caller may retry for, and than any process may be suspended.
//
// Statements and balances from before that time are refused with ErrHistoryGone. The shortest retention counts for this that any
// Coordinator of these transfers was ever given, also when it is given a longer one later: what is gone stays gone, and nobody can know
// that a process with the shorter one doesn't wake up again.
func WithRetention(d time.Duration) Option {
	return func(s *settings) { s.retention, s.retained = d, true }
}

// WithReturnAt sets when Transfer answers: at StateSuccess, the default, or at StateCommitted, when the outcome is certain and the
// rest is done in the background. Until then a credit can't be spent.
func WithReturnAt(state State) Option { return func(s *settings) { s.returnAt = state } }

// GroupCommit bounds the group commit, by which one command carries the writes of many transfers. What gathers
// while a command is on its way goes out with the next one. Nothing waits for a timer, so that a lone transfer
// is as quick as can be. The zero value of a field stands for its default, which needs no tuning.
//
// A command carries fewer writes after a time-out, half as many each time, and more again with each answer. One
// that takes too long for what is usual may be lost: then another one goes out beside it, but no more than
// MaxInFlight of those are out. As many again may be about documents at which the server seems to wait for a lock
// of somebody else's, each about one document. So there are never more than three times MaxInFlight.
type GroupCommit struct {
	// MaxBatch is the number of writes in one command, 1 to 4096; default 512. No transfer has more than a
	// quarter of a command.
	MaxBatch int
	// MaxInFlight is the number of commands on their way to one cluster, 1 to 64, but for those that take too
	// long; default 2.
	MaxInFlight int
	// MaxPending is the number of transfers under way in this process, 1 to 65536; default 2048. The other
	// callers wait for a place, until their contexts end. A transfer keeps its place until it is final. Where
	// there are several clusters, each can have as many places as there are free, so that what hangs on one
	// leaves room for the others.
	MaxPending int
}

// WithGroupCommit sets the bounds of the group commit.
func WithGroupCommit(g GroupCommit) Option { return func(s *settings) { s.group = g } }

// WithLogger sets where takeovers and troubles are logged; default: nowhere.
//
// At Debug each call about a transfer, and each transfer that a worker or a sweep has worked
// on, has one line at its end: its ID, the verb, the state, the error and how long it took.
// At Info there are sweeps that had something to recover, and clusters that answer again; at
// Warn what somebody should look at. Below Debug, at -8, there is each step of the protocol.
//
// The keys are transfer, transfers (the first ten IDs), verb, state, took, cause, ledger,
// account, route, count, found, succeeded, failed, expired, stuck, pause, and for the steps
// operation, claiming, participant and result. IDs are cut to 64 bytes. No line, and no
// text of an error, has an amount, a balance, metadata, or what the server said of a
// document: errors have these in fields, and the driver's error can be had by errors.As.
func WithLogger(l *slog.Logger) Option { return func(s *settings) { s.logger = l } }

// settingsOf applies options to the defaults and checks them.
func settingsOf(db *mongo.Database, opts []Option) (settings, error) {
	s := settings{
		accounts:       db.Collection(defaultAccounts),
		transfers:      db.Collection(defaultTransfers),
		ledgers:        map[string]*mongo.Collection{},
		documents:      map[string]*mongo.Collection{},
		owner:          defaultOwner(),
		markerLimit:    defaultMarkerLimit,
		fenceBytes:     defaultFenceCache,
		stallThreshold: defaultStallThreshold,
		policy:         Resume,
		returnAt:       StateSuccess,
		logger:         slog.New(slog.DiscardHandler),
	}
	for i, opt := range opts {
		if opt == nil {
			return s, invalid("option %d is nil", i)
		}
		opt(&s)
	}
	s.fields = s.fields.withDefaults()
	s.group = s.group.withDefaults()
	for _, check := range []func() error{s.checkCollections, s.checkNumbers, s.checkFenceCache, s.group.check, s.fields.check} {
		if err := check(); err != nil {
			return s, err
		}
	}
	return s, nil
}

func defaultOwner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%.64s-%d", host, os.Getpid())
}

func (s *settings) checkCollections() error {
	if s.accounts == nil || s.transfers == nil {
		return invalid("WithAccounts and WithTransfers want a collection")
	}
	if len(s.twice) > 0 {
		return invalid("%s is registered twice", words.Quote(s.twice[0]))
	}
	if err := checkNames("ledger", s.ledgers); err != nil {
		return err
	}
	return checkNames("collection of documents", s.documents)
}

func checkNames(what string, registered map[string]*mongo.Collection) error {
	for name, collection := range registered {
		if name == "" || len(name) > maxNameBytes || document.CheckID(name) != nil || strings.Contains(name, "\x00") {
			return invalid("the name of a %s has 1 to %d bytes of UTF-8 without NUL, not %s", what, maxNameBytes, words.Quote(name))
		}
		if collection == nil {
			return invalid("the %s %s wants a collection", what, words.Quote(name))
		}
	}
	return nil
}

func (s *settings) checkNumbers() error {
	switch {
	case s.ids != StringIDs && s.ids != ObjectIDs:
		return invalid("WithAccountIDs wants StringIDs or ObjectIDs")
	case s.policy != Resume && s.policy != RollBack:
		return invalid("WithStallPolicy wants Resume or RollBack")
	case s.returnAt != StateCommitted && s.returnAt != StateSuccess:
		return invalid("WithReturnAt wants StateCommitted or StateSuccess, not %s", words.Quote(string(s.returnAt)))
	case s.markerLimit < 1 || s.markerLimit > maxMarkerLimit:
		return invalid("a marker limit lies between 1 and %d, not at %d", maxMarkerLimit, s.markerLimit)
	case s.retained && s.retention < retention.Shortest:
		return invalid("a retention is %s or longer, not %s", retention.Shortest, s.retention)
	case s.stallThreshold < 0:
		return invalid("a stall threshold is not negative: %s", s.stallThreshold)
	case s.logger == nil:
		return invalid("WithLogger wants a logger")
	}
	return s.checkOwner()
}

func (s *settings) checkOwner() error {
	if len(s.owner) > maxOwnerBytes || document.CheckID(s.owner) != nil || strings.Contains(s.owner, "\x00") {
		return invalid("an owner's name has 1 to %d bytes of UTF-8 without NUL, not %s", maxOwnerBytes, words.Quote(s.owner))
	}
	return nil
}

func (s *settings) checkFenceCache() error {
	if s.fenceBytes != 0 && s.fenceBytes < mongostore.LeastFenceMemory {
		return invalid("a fence cache has %d bytes or more, or 0 for none, not %d", mongostore.LeastFenceMemory, s.fenceBytes)
	}
	return nil
}

func (g GroupCommit) withDefaults() GroupCommit {
	return GroupCommit{
		MaxBatch:    cmp.Or(g.MaxBatch, defaultMaxBatch),
		MaxInFlight: cmp.Or(g.MaxInFlight, defaultMaxInFlight),
		MaxPending:  cmp.Or(g.MaxPending, defaultMaxPending),
	}
}

func (g GroupCommit) check() error {
	for _, bound := range []struct {
		name         string
		value, limit int
	}{
		{"MaxBatch", g.MaxBatch, maxBatch}, {"MaxInFlight", g.MaxInFlight, maxInFlight}, {"MaxPending", g.MaxPending, maxPending},
	} {
		if bound.value < 1 || bound.value > bound.limit {
			return invalid("%s of GroupCommit lies between 1 and %d, not at %d", bound.name, bound.limit, bound.value)
		}
	}
	return nil
}

func (f Fields) withDefaults() Fields {
	for _, field := range []struct {
		name     *string
		standard string
	}{
		{&f.Balance, "balance"}, {&f.Pending, "pending"}, {&f.Fence, "fence"},
		{&f.Floor, "floor"}, {&f.Currency, "currency"}, {&f.Closed, "closed"},
	} {
		if *field.name == "" {
			*field.name = field.standard
		}
	}
	return f
}

func (f Fields) check() error {
	seen := map[string]bool{"_id": true, "metadata": true}
	for _, name := range []string{f.Balance, f.Pending, f.Fence, f.Floor, f.Currency, f.Closed} {
		if strings.ContainsAny(name, ".$\x00") || document.CheckID(name) != nil {
			return invalid("%s can't name a field: a top-level field without dots and dollars is wanted", words.Quote(name))
		}
		if seen[name] {
			return invalid("the field name %s is taken", words.Quote(name))
		}
		seen[name] = true
	}
	return nil
}
