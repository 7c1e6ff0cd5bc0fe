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
	"github.com/mongotransfer/transfer/internal/retention"
	"github.com/mongotransfer/transfer/internal/words"
)

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
	checks := []func() error{s.checkCollections, s.checkNumbers, s.checkFenceCache, s.group.check, s.fields.check}
	for _, check := range checks {
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
