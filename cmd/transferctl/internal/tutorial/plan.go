package tutorial

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Action is what is done about a transaction.
type Action string

// The actions.
const (
	// Ask leaves a transaction that had not begun to the library.
	Ask Action = "ask"
	// Cancel cancels a transaction that had not begun.
	Cancel Action = "cancel"
	// Finish changes the accounts that have not been changed, and ends in done.
	Finish Action = "finish"
	// Unmark removes the marks that are left, and ends in done.
	Unmark Action = "unmark"
	// Undo changes the accounts back that are changed, and ends in canceled.
	Undo Action = "undo"
)

// portion is how many documents one command looks for by their names.
const portion = 1000

// maxProblems bounds how many problems a plan has.
const maxProblems = 1000

// Plan is what there is to do.
type Plan struct {
	// Steps are the transactions that are unfinished, in the order of their IDs.
	Steps []Step
	// WholeAccounts and WholeTransactions count the doubles that become whole numbers.
	WholeAccounts, WholeTransactions int64
	// Arrays counts the accounts that have an array of marks.
	Arrays int64
	// InFlight is what the steps add to the sum of all balances, by currency: money that
	// has left one account and is on no other yet, or is on two.
	InFlight map[string]transfer.Amount
	// Problems are what somebody has to decide first.
	Problems []Problem
}

// Step is one unfinished transaction.
type Step struct {
	// ID, Source and Destination are texts for people.
	ID, Source, Destination string
	// State is the tutorial's.
	State string
	// Amount is what it moves.
	Amount transfer.Amount
	// Action is what is done about it.
	Action Action
	// As is the ID of the transfer that it becomes, of an Ask.
	As string
	// SourceMarked and DestinationMarked say which account has a mark.
	SourceMarked, DestinationMarked bool

	stored   transaction
	from, to string // as the library has the accounts
	currency string
}

// Problem is something that this package does not decide.
type Problem struct {
	// About is the collection and the ID of a document.
	About string
	// Detail says what is wrong.
	Detail string
	// Advice says what to do.
	Advice string
}

// planner collects a plan.
type planner struct {
	*Books

	plan     Plan
	accounts map[string]account // those of unfinished transactions
	steps    map[string]int     // by the transaction's key
	asked    map[string]string  // by the transfer's ID
	twice    map[string]bool    // accounts whose key another one has as well
}

// Plan reads what there is to do. With cancel, what had not begun is not asked for.
func (b *Books) Plan(ctx context.Context, cancel bool) (Plan, error) {
	p := &planner{
		Books: b, plan: Plan{InFlight: map[string]transfer.Amount{}},
		accounts: map[string]account{}, steps: map[string]int{}, asked: map[string]string{}, twice: map[string]bool{},
	}
	all, err := b.readTransactions(ctx)
	if err != nil {
		return p.plan, fmt.Errorf("read the transactions: %w", err)
	}
	if err := p.readParticipants(ctx, all); err != nil {
		return p.plan, fmt.Errorf("read the accounts: %w", err)
	}
	for _, t := range all {
		p.add(t, cancel)
	}
	if err := p.inspectPlaces(ctx); err != nil {
		return p.plan, fmt.Errorf("look for the collections: %w", err)
	}
	if err := p.inspectIDs(ctx); err != nil {
		return p.plan, fmt.Errorf("look for transfers of the same IDs: %w", err)
	}
	if err := p.inspectAccounts(ctx); err != nil {
		return p.plan, fmt.Errorf("read the accounts: %w", err)
	}
	return p.plan, nil
}

// inspectPlaces looks whether there is anything. A mistyped name has nothing to convert,
// and would be reported as converted.
func (p *planner) inspectPlaces(ctx context.Context) error {
	for _, place := range []struct {
		c    *mongo.Collection
		flag string
	}{{p.Transactions, "--transactions, or say --balances-only if there are none"}, {p.Accounts, "--accounts"}} {
		if p.BalancesOnly && place.c == p.Transactions {
			continue
		}
		err := place.c.FindOne(ctx, bson.D{}).Err()
		if errors.Is(err, mongo.ErrNoDocuments) {
			p.problem(place.c.Name(), "See --database and "+place.flag+".", "there is nothing in %s.%s",
				place.c.Database().Name(), place.c.Name())
			continue
		}
		if err != nil {
			return wire.ServerErrorOf(err, wire.RightFind, wire.NamespaceOf(place.c))
		}
	}
	return nil
}

// inspectIDs looks for transfers that have the ID of one that would be asked for first
// now. The library would refuse it, or take it for done, for good.
func (p *planner) inspectIDs(ctx context.Context) error {
	var first bson.A
	for _, s := range p.plan.Steps {
		if s.Action == Ask && s.State == initial {
			first = append(first, s.As)
		}
	}
	for ids := range slices.Chunk(first, portion) {
		filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}
		rows, err := p.Transfers.Find(ctx, filter, options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}))
		if err != nil {
			return err
		}
		var found []struct {
			ID string `bson:"_id"`
		}
		if err := rows.All(ctx, &found); err != nil {
			return err
		}
		for _, f := range found {
			p.problem(p.asked[f.ID], "Say another --prefix.", "there is a transfer %s already", f.ID)
		}
	}
	return nil
}

// readParticipants reads the accounts of transactions.
func (p *planner) readParticipants(ctx context.Context, all []transaction) error {
	for len(all) > 0 {
		n := min(len(all), portion)
		ids := bson.A{}
		for _, t := range all[:n] {
			for _, id := range []bson.RawValue{t.Source, t.Destination} {
				if id.Type != 0 {
					ids = append(ids, id)
				}
			}
		}
		all = all[n:]
		filter := bson.D{{Key: p.Key, Value: bson.D{{Key: "$in", Value: ids}}}}
		err := p.readAccounts(ctx, filter, func(a account, _ bson.Raw) {
			if other, known := p.accounts[key(a.key)]; known && key(other.id) != key(a.id) {
				p.twice[key(a.key)] = true
			}
			p.accounts[key(a.key)] = a
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// problem notes a problem.
func (p *planner) problem(about, advice, format string, args ...any) {
	if len(p.plan.Problems) < maxProblems {
		p.plan.Problems = append(p.plan.Problems, Problem{about, fmt.Sprintf(format, args...), advice})
	}
}

// add plans what is done about a transaction.
func (p *planner) add(t transaction, cancel bool) {
	id, plain := textOf(t.ID)
	about := p.Transactions.Name() + " " + id
	s := Step{ID: id, State: t.State, stored: t}
	s.Source, _ = textOf(t.Source)
	s.Destination, _ = textOf(t.Destination)
	var ok bool
	if s.Action, ok = actionOf(t, cancel); !ok {
		p.problem(about, "Find out what it means, and set the state that it should have.", "its state is %q", t.State)
		return
	}
	if s.Amount, ok = amountOf(t.Value); !ok || s.Amount.Sign() <= 0 {
		p.problem(about, "Set the value right, as docs/migrating.md shows for fractions.", "its value is no positive whole number or decimal")
		return
	}
	if !p.fits(&s, about) {
		return
	}
	switch s.Action {
	case Ask:
		if !plain {
			p.problem(about, "Cancel it, and ask the library for it under an ID of yours.", "its _id makes no text")
			return
		}
		p.asAsked(&s, about)
	case Finish, Undo, Unmark, Cancel:
	}
	p.steps[key(t.ID)] = len(p.plan.Steps)
	p.plan.Steps = append(p.plan.Steps, s)
	p.count(s)
}

// actionOf returns what is done about a transaction, by its state.
func actionOf(t transaction, cancel bool) (Action, bool) {
	switch t.State {
	case initial:
		if cancel {
			return Cancel, true
		}
		return Ask, true
	case pending:
		return Finish, true
	case applied, committed:
		return Unmark, true
	case canceling:
		return Undo, true
	case canceled:
		return Ask, t.TakenOver != nil && !t.TakenOver.Settled
	}
	return "", false
}

// fits checks the accounts of a transaction.
func (p *planner) fits(s *Step, about string) bool {
	t := s.stored
	if t.Source.Type == 0 || t.Destination.Type == 0 || key(t.Source) == key(t.Destination) {
		p.problem(about, "Find out what it has moved, and set it right by hand.", "it has no two accounts")
		return false
	}
	from, okFrom := p.accounts[key(t.Source)]
	to, okTo := p.accounts[key(t.Destination)]
	for _, side := range []struct {
		a       account
		there   bool
		name    string
		library *string
	}{{from, okFrom, s.Source, &s.from}, {to, okTo, s.Destination, &s.to}} {
		var isID bool
		*side.library, isID = p.accountID(side.a.id)
		switch {
		case !side.there:
			p.problem(about, "See docs/migrating.md: set it to canceling if it is pending, and give it an empty account of that ID.",
				"there is no account %s", side.name)
			return false
		case p.twice[key(side.a.key)]:
			p.problem(about, "Give one of them another name, and set its transactions right.", "two accounts are named %s", side.name)
			return false
		case isDecimal(side.a.balance) != isDecimal(t.Value):
			p.problem(about, "Make all amounts of a currency units, or all decimals.",
				"its value and the balance of %s are of two kinds", side.name)
			return false
		case s.Action == Ask && isID && document.CheckID(*side.library) != nil:
			p.problem(about, "Cancel it. The library can't have such an account.", "the account %s: %v", side.name, document.CheckID(*side.library))
			return false
		case s.Action == Ask && !isID:
			p.problem(about, "Say --ids objectid if account IDs are ObjectIds. Accounts with other IDs can't take part.",
				"the _id of %s is no ID of an account", side.name)
			return false
		case side.a.marked(t.ID) > 1:
			p.problem(about, "Find out how often it was applied, and set it right by hand.", "%s has its mark twice", side.name)
			return false
		}
	}
	s.SourceMarked, s.DestinationMarked = from.marked(t.ID) == 1, to.marked(t.ID) == 1
	s.currency = from.currency
	return true
}

// asAsked gives a step the ID of its transfer.
func (p *planner) asAsked(s *Step, about string) {
	s.As = p.Prefix + s.ID
	if over := s.stored.TakenOver; over != nil && s.State == canceled {
		s.As = over.As
	}
	if err := document.CheckID(s.As); err != nil {
		p.problem(about, "Cancel it, and ask the library for it under an ID of yours.", "its _id makes no ID of a transfer: %v", err)
	}
	if other, taken := p.asked[s.As]; taken {
		p.problem(about, "Cancel one of them, and ask the library for it under an ID of yours.",
			"the transfer would have the same ID as that of %s", other)
	}
	p.asked[s.As] = about
}

// count adds what a step adds to the sum of all balances.
func (p *planner) count(s Step) {
	var err error
	from, to := p.accounts[key(s.stored.Source)], p.accounts[key(s.stored.Destination)]
	add := func(currency string, a transfer.Amount) {
		if err == nil {
			p.plan.InFlight[currency], err = p.plan.InFlight[currency].Add(a)
		}
	}
	switch {
	case s.Action == Finish && !s.SourceMarked:
		add(from.currency, s.Amount.Neg())
	case s.Action == Undo && s.SourceMarked:
		add(from.currency, s.Amount)
	}
	switch {
	case s.Action == Finish && !s.DestinationMarked:
		add(to.currency, s.Amount)
	case s.Action == Undo && s.DestinationMarked:
		add(to.currency, s.Amount.Neg())
	}
	if err != nil {
		p.problem(p.Transactions.Name()+" "+s.ID, "Make all amounts of a currency units, or all decimals.",
			"the amounts of its currency can't be added up: %v", err)
	}
}
