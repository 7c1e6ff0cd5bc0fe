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
	"github.com/mongotransfer/transfer/internal/fences"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/retention"
	"github.com/mongotransfer/transfer/internal/words"
)

// Defaults and limits.
const (
	defaultAccounts       = "accounts"
	defaultTransfers      = "transfers"
	defaultStallThreshold = 30 * time.Second
	defaultMarkerLimit    = 4096
	// maxMarkerLimit keeps the sum of a balance and all credits of a process in flight
	// below 2^63: 2^62 + 2^13 · 2^48.
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

// Fields are the names of an account's fields.
// The library touches no other field, except metadata, which OpenAccount and
// UpdateAccount write.
type Fields struct {
	// Balance is an int32, an int64 or a Decimal128.
	// Defaults to "balance".
	Balance string
	// Pending is a map from transfers in flight to what they reserve.
	// Defaults to "pending".
	Pending string
	// Fence is a token by which the server refuses late messages.
	// Defaults to "fence".
	Fence string
	// Floor is the least balance that a debit may leave.
	// A missing floor is 0, and MinKey stands for no floor.
	// Defaults to "floor".
	Floor string
	// Currency is a string.
	// An account without it has no currency.
	// Defaults to "currency".
	Currency string
	// Closed is true for a closed account.
	// Defaults to "closed".
	Closed string
	// Frozen is true for a frozen account.
	// Defaults to "frozen".
	Frozen string
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

// WithAccounts sets the collection of accounts of the default ledger.
// Defaults to accounts.
func WithAccounts(c *mongo.Collection) Option { return func(s *settings) { s.accounts = c } }

// WithTransfers sets the collection of transfers.
// All Coordinators that touch a collection of accounts must share one collection of
// transfers: a marker names its transfer by the ID alone.
// Defaults to transfers.
func WithTransfers(c *mongo.Collection) Option { return func(s *settings) { s.transfers = c } }

// WithLedger registers another collection of accounts, in any database or cluster.
// Its name has 1 to 64 bytes and is stored in the transfers.
// What is in flight waits for a process that has the name, and only such a one reverses
// what it has moved: docs/deployment.md says what another name means.
func WithLedger(name string, c *mongo.Collection) Option {
	return func(s *settings) {
		if _, given := s.ledgers[name]; given {
			s.twice = append(s.twice, name)
		}
		s.ledgers[name] = c
	}
}

// WithDocuments registers a collection of documents that effects change, in any database
// or cluster: see [Effect].
// Its name is stored in the transfers and must stay the same for as long as there are
// any.
//
// A collection of accounts is refused: one of this coordinator's with ErrInvalidRequest,
// another's with ErrUnsupportedDeployment, even through another client.
// So where a ledger has a collection of the same name on another server, effects wait
// until that server was reached once.
func WithDocuments(name string, c *mongo.Collection) Option {
	return func(s *settings) {
		if _, given := s.documents[name]; given {
			s.twice = append(s.twice, name)
		}
		s.documents[name] = c
	}
}

// WithFields sets the names of an account's fields, in all ledgers.
// An empty name stands for its default: see [Fields].
func WithFields(f Fields) Option { return func(s *settings) { s.fields = f } }

// WithAccountIDs sets how account IDs are stored, in all ledgers.
// Defaults to StringIDs.
func WithAccountIDs(c IDCodec) Option { return func(s *settings) { s.ids = c } }

// WithOwner sets the name that stored transfers have for the process that runs them.
// A random part is always added.
// The name has 1 to 128 bytes.
// Defaults to host and process ID.
func WithOwner(name string) Option { return func(s *settings) { s.owner = name } }

// WithMarkerLimit bounds how many transfers may be in flight on one account, 1 to 8192.
// A transfer beyond it waits, for half of its context's time and 5 s at most, before it
// is refused with ErrAccountBusy.
// The bound is soft: each process counts its own transfers and those that it has read of,
// once a minute.
// So several processes that use one account at once may each come close to the bound.
// Defaults to 4096.
func WithMarkerLimit(n int) Option { return func(s *settings) { s.markerLimit = n } }

// WithFenceCache bounds the memory, in bytes, in which a Coordinator remembers what it
// has read of accounts: 1 MiB or more.
// A transfer between accounts that it knows costs six commands, and its caller waits for
// the first four.
// Any other transfer begins with a read, and costs seven.
// With 0 nothing is remembered: each transfer begins with a read.
// Defaults to 64 MiB.
//
// An account takes 56 bytes, whatever its ID, so 64 MiB have room for about a million.
// The memory grows as it is needed.
// When it is full, accounts that were not used for long are forgotten.
//
// No money depends on what is remembered: if it is out of date, the transfer's write to
// the account is refused, and the transfer reads and tries again.
// Two kinds of accounts are read again after a minute.
// Accounts with many transfers in flight (a 64th of [WithMarkerLimit]) may have got more
// from other processes.
// Accounts without a fence have not been created by [Coordinator.OpenAccount], which
// writes one.
// A transfer with effects always reads.
func WithFenceCache(bytes int64) Option { return func(s *settings) { s.fenceBytes = bytes } }

// WithStallThreshold sets how long a transfer shows no sign of life before others take it
// over.
// It decides only how soon recovery steps in: even zero is safe, but costs work.
// Where [Coordinator.Run] notices that a process has died it steps in within seconds,
// and does not wait for the threshold.
// Each takeover of a transfer that can't be finished ([Record].Stuck) doubles the time to
// the next one, up to 64 times the threshold.
// For other transfers, so does each takeover after the third.
// A transfer that was modified further ahead than the threshold is taken over as well:
// the server's clock was set back.
// Defaults to 30 s.
func WithStallThreshold(d time.Duration) Option { return func(s *settings) { s.stallThreshold = d } }

// WithStallPolicy sets what becomes of a transfer that stalled before it was committed.
// Defaults to Resume.
func WithStallPolicy(p StallPolicy) Option { return func(s *settings) { s.policy = p } }

// WithRetention lets the server remove transfers some time after they are final, an hour
// at the least.
// It holds for those that this Coordinator finishes from now on.
// What was finished before, or by others, keeps the time that is stored with it
// ([Record].PurgeAt).
// [Coordinator.Setup] creates the index that the server needs for it.
// Without it transfers are kept for good.
//
// A removed transfer's ID is forgotten.
// A call that uses it again, or that is repeated so late because its answer was lost,
// moves the money again.
// So the retention has to be longer than any caller may retry for, and than any process
// may be suspended.
//
// Statements and balances from before that time are refused with ErrHistoryGone.
// The shortest retention counts for this that any Coordinator of these transfers was ever
// given, even when it is given a longer one later: what is gone stays gone, and a process
// with the shorter one may still wake up again.
func WithRetention(d time.Duration) Option {
	return func(s *settings) { s.retention, s.retained = d, true }
}

// ReturnAt says how far a transfer has come when a call for it answers without an error.
// A later point means a longer wait.
type ReturnAt uint8

const (
	// AtSettled answers once the money is there, durably, for every reader: balances, the
	// state (Committed or Success) and statements show it.
	// All that is left is to remove some marks a little later.
	AtSettled ReturnAt = iota
	// AtCommit answers once the outcome is certain.
	// Nothing can take it back.
	// But for some milliseconds the credit can't be spent, effects may not be set yet,
	// others may see the transfer in StatePreparing, and statements don't have it.
	// If the process dies at that moment, that lasts until recovery steps in.
	AtCommit
	// AtSuccess answers once nothing is left to be done.
	AtSuccess
)

// WithReturnAt sets how far a transfer has come when a call for it answers without an
// error: Transfer, TransferMany, Post and Reverse.
// The record of a call that is repeated may show a later state than that of the first
// answer, and never an earlier one, unless that was AtCommit or came with ErrUnsettled.
// A refusal is answered when nothing is left to be done, and so is Wait.
// Defaults to AtSettled.
func WithReturnAt(at ReturnAt) Option { return func(s *settings) { s.returnAt = at } }

// progress returns what an execution waits for.
func (at ReturnAt) progress() protocol.Progress {
	switch at {
	case AtCommit:
		return protocol.Decided
	case AtSuccess:
		return protocol.Complete
	default:
		return protocol.Settled
	}
}

// GroupCommit bounds the group commit, by which one command carries the writes of many
// transfers.
// The writes that gather while a command is on its way go out with the next one.
// No caller waits for a timer, so that a lone transfer is as quick as can be.
// What remains to be done when the answer is sent goes out up to 250 ms later, together
// with that of others, or with the next write to the same account.
// While callers are waiting, it gets at most a quarter of each command.
// The zero value of a field stands for its default, which needs no tuning.
//
// A command carries fewer writes after a time-out, half as many each time, and more again
// with each answer.
// One that takes unusually long may be lost: then another one goes out beside it, but no
// more than MaxInFlight of those are out.
// As many again may be about documents at which the server seems to wait for another
// client's lock, each about one document; where many are locked, up to 32 in all.
// Otherwise there are never more than three times MaxInFlight.
type GroupCommit struct {
	// MaxBatch is the number of writes in one command, 1 to 4096.
	// While others wait, no transfer has more than a quarter of a command.
	// Defaults to 512.
	MaxBatch int
	// MaxInFlight is the number of commands on their way to one cluster, 1 to 64, without
	// those that take too long.
	// Defaults to 2.
	MaxInFlight int
	// MaxPending is the number of transfers under way in this process, 1 to 65536.
	// The other callers wait for a place.
	// One whose deadline comes first is refused early, with [context.DeadlineExceeded]:
	// after an eighth of its time, and up to three quarters where thousands are refused.
	// A transfer keeps its place until its caller has the answer.
	// As many again may be finished in the background.
	// Where there are several clusters, each can have as many places as are free, so that
	// what hangs on one leaves room for the others.
	// Defaults to 2048.
	MaxPending int
}

// WithGroupCommit sets the bounds of the group commit.
// Defaults to the zero value of [GroupCommit].
func WithGroupCommit(g GroupCommit) Option { return func(s *settings) { s.group = g } }

// WithLogger sets where takeovers and troubles are logged.
// Defaults to nowhere.
//
// One transfer can be followed by its ID, which is under the key transfer.
//
// At Debug each call about a transfer, and each transfer that a worker or a sweep has
// worked on, has one line for each stage that it comes to (see [Stage]), and one at its
// end: its ID, the verb, the state, the error and how long it took.
// That one is at Info where a caller is left in doubt, or with a transfer that is not
// settled yet.
// At Info there are takeovers, sweeps that had something to recover, clusters that answer
// again, and events that were not delivered.
// At Warn there is what needs attention.
// Below Debug, at -8, there is each step of the protocol.
//
// The keys are transfer, transfers (the first ten IDs), verb, stage, state, took, cause,
// ledger, account, route, count, found, succeeded, failed, expired, stuck, pause,
// process, for a takeover owner and idle, for an observer function, and for the steps
// operation, claiming, participant and result; for events, event, attempt and stack.
// IDs are cut to 64 bytes.
// No line, and no text of an error, has an amount, a balance, metadata, or what the
// server said about a document.
// Errors have these in fields, and errors.As finds the driver's error.
func WithLogger(l *slog.Logger) Option { return func(s *settings) { s.logger = l } }

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
	returnAt            ReturnAt
	group               GroupCommit
	retention           time.Duration
	retained            bool // the retention was given
	logger              *slog.Logger
	observer            Observer
	events              EventHandler
	eventful            bool // the events were given
}

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
	checks := []func() error{s.checkCollections, s.checkNumbers, s.checkFenceCache, s.group.check, s.fields.check, s.checkEvents}
	for _, check := range checks {
		if err := check(); err != nil {
			return s, err
		}
	}
	s.observer = s.observer.guarded(s.logger)
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
			return invalid("the name of a %s has 1 to %d bytes of UTF-8 without NUL, not %s",
				what, maxNameBytes, words.Quote(name))
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
	case s.returnAt > AtSuccess:
		return invalid("WithReturnAt wants AtCommit, AtSettled or AtSuccess")
	case s.markerLimit < 1 || s.markerLimit > maxMarkerLimit:
		return invalid("a marker limit lies between 1 and %d, and is %d", maxMarkerLimit, s.markerLimit)
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
	if s.fenceBytes != 0 && s.fenceBytes < fences.LeastMemory {
		return invalid("a fence cache has %d bytes or more, or 0 for none, not %d",
			fences.LeastMemory, s.fenceBytes)
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
		{"MaxBatch", g.MaxBatch, maxBatch},
		{"MaxInFlight", g.MaxInFlight, maxInFlight},
		{"MaxPending", g.MaxPending, maxPending},
	} {
		if bound.value < 1 || bound.value > bound.limit {
			return invalid("%s of GroupCommit lies between 1 and %d, and is %d", bound.name, bound.limit, bound.value)
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
		{&f.Floor, "floor"}, {&f.Currency, "currency"}, {&f.Closed, "closed"}, {&f.Frozen, "frozen"},
	} {
		if *field.name == "" {
			*field.name = field.standard
		}
	}
	return f
}

func (f Fields) check() error {
	seen := map[string]bool{"_id": true, "metadata": true}
	for _, name := range []string{f.Balance, f.Pending, f.Fence, f.Floor, f.Currency, f.Closed, f.Frozen} {
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
