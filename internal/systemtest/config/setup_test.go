package config

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// changing collects the commands of a client that change something, or could.
type changing struct {
	mu   sync.Mutex
	seen []string
}

func (c *changing) options() *options.ClientOptions {
	return options.Client().SetMonitor(&event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch e.CommandName {
		case "insert", "findAndModify", "delete", "create", "createIndexes", "collMod", "drop", "dropIndexes":
			c.seen = append(c.seen, e.CommandName)
		case "update":
			if n, _ := e.Reply.Lookup("n").AsInt64OK(); n > 0 {
				c.seen = append(c.seen, "update")
			}
		}
	}})
}

func (c *changing) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.seen
	c.seen = nil
	return seen
}

// Setup of a complete deployment writes nothing, so it needs no right to create.
// Check writes nothing on any deployment, and neither do reads.
// On an empty one, Check says what to do.
func TestSetupOfACompleteDeploymentWritesNothing(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	var log changing
	db := b.Through(log.options())
	opts := append(bank.Orders(db), transfer.WithRetention(time.Hour))
	c := b.NewCoordinator(db, opts...)
	for name, err := range map[string]error{"Check": c.Check(t.Context()), "Audit": bank.ErrorOf(c.Audit(t.Context()))} {
		require.Empty(t, log.take(), name)
		if name == "Check" {
			require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
			require.ErrorContains(t, err, "run Setup once")
		}
	}
	require.NoError(t, c.Setup(t.Context()))
	require.Contains(t, log.take(), "createIndexes")
	for range 2 {
		require.NoError(t, c.Setup(t.Context()))
		require.NoError(t, c.Check(t.Context()))
		require.Empty(t, log.take())
		c = b.NewCoordinator(db, opts...)
	}
	b.OpenAccounts([]int64{1, 0})
	b.MustMove("t", 1)
	require.NoError(t, c.Setup(t.Context()))
	require.NoError(t, c.Check(t.Context()))
	require.NoError(t, bank.ErrorOf(c.Audit(t.Context())))
	require.NoError(t, bank.ErrorOf(c.BalanceAt(t.Context(), "a", time.Now())))
	require.Empty(t, log.take())
	b.CheckBooks(bank.Balances(1, 0))
}

// newest returns the keys of the library's index for lists.
func newest() bson.D { return bson.D{{Key: "createdAt", Value: -1}, {Key: "_id", Value: -1}} }

// Check reports each missing thing that Setup makes, and Setup makes it again.
func TestCheckMissesWhatSetupMakes(t *testing.T) {
	t.Parallel()
	b := bank.New(t).WithIndexes()
	remove := func(from string, filter bson.M) func() error {
		return func() error { return bank.ErrorOf(b.DB.Collection(from).DeleteOne(t.Context(), filter)) }
	}
	for name, remove := range map[string]func() error{
		"the note of accounts":     remove("accounts.transfer", bson.M{"_id": "deployment"}),
		"the record":               remove("transfers.transfer", bson.M{"_id.ledger": ""}),
		"accounts":                 func() error { return b.DB.Collection("accounts").Drop(t.Context()) },
		"transfers":                func() error { return b.DB.Collection("transfers").Drop(t.Context()) },
		"the index of holds":       func() error { return b.DB.Collection("transfers").Indexes().DropOne(t.Context(), "holds") },
		"the index of the purge":   func() error { return b.DB.Collection("transfers").Indexes().DropOne(t.Context(), "purge") },
		"the index of statements":  func() error { return b.DB.Collection("transfers").Indexes().DropOne(t.Context(), "committed") },
		"the index of what's left": func() error { return b.DB.Collection("transfers").Indexes().DropOne(t.Context(), "unfinished") },
	} {
		require.NoError(t, b.Check(t.Context()))
		require.NoError(t, remove())
		err := b.Check(t.Context())
		require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment, name)
		require.ErrorContains(t, err, "run Setup once", name)
		require.ErrorIs(t, b.NewCoordinator(b.DB).Check(t.Context()), transfer.ErrUnsupportedDeployment, name)
		require.NoError(t, b.Setup(t.Context()), name)
	}
}

// Check misses the record of a retention that no process has been given so far.
// A service may lack the right to write it.
func TestCheckMissesTheRetention(t *testing.T) {
	t.Parallel()
	b := bank.New(t).WithIndexes()
	kept := b.NewCoordinator(b.DB, transfer.WithRetention(2*time.Hour))
	err := kept.Check(t.Context())
	require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
	require.ErrorContains(t, err, "transfers.retention")
	require.ErrorContains(t, err, "run Setup once")
	require.NoError(t, b.Check(t.Context()))
	require.NoError(t, kept.Setup(t.Context()))
	require.NoError(t, b.NewCoordinator(b.DB, transfer.WithRetention(2*time.Hour)).Check(t.Context()))
}

// An index of the user's with the name of one of the library's is reported by that name.
// An equal index under another name serves as well.
func TestIndexesOfTheUsers(t *testing.T) {
	t.Parallel()
	exists := bson.D{{Key: "$exists", Value: true}}
	for name, row := range map[string]struct {
		plant func(*testing.T, *mongo.Database)
		says  string
	}{
		"the same name":   {indexed("transfers", key("other"), options.Index().SetName("unfinished")), `"unfinished"`},
		"hidden":          {indexed("transfers", newest(), options.Index().SetName("created").SetHidden(true)), `"created"`},
		"other condition": {indexed("transfers", key("purgeAt"), options.Index().SetName("purge").SetExpireAfterSeconds(0)), `"purge"`},
		"another name":    {indexed("transfers", newest(), options.Index().SetName("mine")), ""},
		"a purge of another name": {indexed("transfers", key("purgeAt"),
			options.Index().SetName("mine").SetExpireAfterSeconds(0).SetPartialFilterExpression(bson.D{{Key: "purgeAt", Value: exists}})), ""},
		"other conditions, another name": {indexed("transfers", key("purgeAt"), options.Index().SetName("mine").SetExpireAfterSeconds(0)), ""},
		"numbers of another kind": {indexed("transfers",
			bson.D{{Key: "createdAt", Value: -1.0}, {Key: "_id", Value: int64(-1)}}, options.Index().SetName("created")), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.NewBare(t)
			row.plant(t, b.DB)
			err := b.Setup(t.Context())
			if row.says == "" {
				require.NoError(t, err)
				require.NoError(t, b.Check(t.Context()))
				return
			}
			for _, err := range []error{err, b.Check(t.Context())} {
				require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
				require.ErrorContains(t, err, row.says)
			}
			require.Zero(t, notes(b), "nothing is written before it is known that all can be")
		})
	}
}

// oneOf is a validator that requires one of a few values.
func oneOf(field string, values ...any) bson.D {
	return bson.D{{Key: field, Value: bson.D{{Key: "$in", Value: bson.A(values)}}}}
}

// noDoneMarks is a validator that refuses keys that end in a percent sign.
func noDoneMarks() bson.D {
	never := bson.D{{Key: "%$", Value: bson.D{{Key: "not", Value: bson.D{}}}}}
	pending := bson.D{{Key: "pending", Value: bson.D{{Key: "patternProperties", Value: never}}}}
	return bson.D{{Key: "$jsonSchema", Value: bson.D{{Key: "properties", Value: pending}}}}
}

// A validator that refuses the library's fields is found without a write, by its text or
// by the documents that it accepts.
// One that only warns, or leaves room for the fields, is fine.
func TestStrictValidators(t *testing.T) {
	t.Parallel()
	closed := func(properties bson.D, more ...bson.E) bson.D {
		schema := append(bson.D{{Key: "additionalProperties", Value: false}, {Key: "properties", Value: properties}}, more...)
		return bson.D{{Key: "$jsonSchema", Value: schema}}
	}
	is := func(kinds ...string) bson.D { return bson.D{{Key: "bsonType", Value: kinds}} }
	plain := bson.D{{Key: "_id", Value: bson.D{}}, {Key: "balance", Value: bson.D{}}, {Key: "owner", Value: bson.D{}}}
	ours := append(slices.Clone(plain), bson.E{Key: "pending", Value: is("object")}, bson.E{Key: "fence", Value: is("objectId", "timestamp")})
	patterns := bson.E{Key: "patternProperties", Value: bson.D{{Key: "^(pending|fence)$", Value: bson.D{}}}}
	kindsOf := func(field string, kinds ...string) bson.D {
		return bson.D{{Key: "$jsonSchema", Value: bson.D{{Key: "properties", Value: bson.D{{Key: field, Value: is(kinds...)}}}}}}
	}
	size := bson.D{{Key: "$size", Value: bson.D{{Key: "$objectToArray", Value: "$$ROOT"}}}}
	three := bson.D{{Key: "$expr", Value: bson.D{{Key: "$lte", Value: bson.A{size, 3}}}}}
	for name, row := range map[string]struct {
		validator bson.D
		how       bson.D
		accounts  bool
		says      []string // nil: it is fine
	}{
		"closed, no account":         {closed(plain), nil, false, []string{`"pending"`, `"fence"`}},
		"closed, accounts":           {closed(plain), nil, true, []string{`"pending"`, `"fence"`}},
		"closed, within another":     {bson.D{{Key: "$and", Value: bson.A{closed(plain)}}}, nil, false, []string{`"pending"`, `"fence"`}},
		"room for them":              {closed(ours), nil, true, nil},
		"room for them, no account":  {closed(ours), nil, false, nil},
		"room by a pattern":          {closed(plain, patterns), nil, false, nil},
		"fences of one kind":         {kindsOf("fence", "objectId"), nil, true, []string{`"fence"`, "an ObjectId or a timestamp"}},
		"a fence of another kind":    {oneOf("fence", nil, "x"), nil, true, []string{`"fence"`}},
		"no markers":                 {oneOf("pending", nil, bson.D{}), nil, true, []string{`"pending"`}},
		"no done marks":              {noDoneMarks(), nil, true, []string{`"pending"`}},
		"balances of 32 bits":        {kindsOf("balance", "int"), nil, true, []string{`"balance"`}},
		"balances of either size":    {kindsOf("balance", "int", "long"), nil, true, nil},
		"by an expression":           {three, nil, true, []string{`"pending"`, `"fence"`}},
		"it only warns":              {closed(plain), bson.D{{Key: "validationAction", Value: "warn"}}, true, nil},
		"it is off":                  {closed(plain), bson.D{{Key: "validationLevel", Value: "off"}}, true, nil},
		"it asks for fields of them": {bson.D{{Key: "owner", Value: bson.D{{Key: "$exists", Value: true}}}}, nil, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.NewBare(t)
			created("accounts", append(bson.D{{Key: "validator", Value: row.validator}}, row.how...))(t, b.DB)
			if row.accounts {
				b.Insert("accounts", bson.D{{Key: "_id", Value: "a"}, {Key: "balance", Value: int32(100)}, {Key: "owner", Value: "ann"}})
			}
			before := b.Contents()
			for verb, err := range map[string]error{"Check": b.Check(t.Context()), "Setup": b.Setup(t.Context())} {
				if row.says == nil {
					if verb == "Setup" {
						require.NoError(t, err)
					}
					continue
				}
				require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment, verb)
				for _, field := range row.says {
					require.ErrorContains(t, err, field, verb)
				}
				require.ErrorContains(t, err, "validator", verb)
				require.Equal(t, before, b.Contents(), verb)
			}
		})
	}
}

// So is one of documents, where a fence is written as in accounts.
func TestStrictValidatorOfDocuments(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	none, drawn := bson.M{"fence": nil}, bson.M{"fence": bson.M{"$type": "objectId"}}
	created("orders", bson.D{{Key: "validator", Value: bson.M{"$or": bson.A{none, drawn}}}})(t, b.DB)
	b.Insert("orders", bank.Order("o"))
	c := b.NewCoordinator(b.DB, bank.Orders(b.DB)...)
	for verb, err := range map[string]error{"Check": c.Check(t.Context()), "Setup": c.Setup(t.Context())} {
		require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment, verb)
		require.ErrorContains(t, err, `orders refuses what is written there: let it allow the fields "fence"; `, verb)
	}
}

// A closed schema of the transfers that names what Setup asks for refuses nothing that is
// ever written there.
func TestValidatorOfTransfers(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	properties := bson.D{{Key: "_id", Value: bson.D{}}}
	closed := func() bson.E {
		schema := bson.D{{Key: "additionalProperties", Value: false}, {Key: "properties", Value: properties}}
		return bson.E{Key: "validator", Value: bson.D{{Key: "$jsonSchema", Value: schema}}}
	}
	created("transfers", bson.D{closed()})(t, b.DB)
	err := b.Setup(t.Context())
	require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
	_, advice, found := strings.Cut(err.Error(), "let it allow the fields ")
	require.True(t, found, err)
	fields, _, _ := strings.Cut(advice, ";")
	for field := range strings.SplitSeq(fields, ", ") {
		properties = append(properties, bson.E{Key: strings.Trim(field, `"`), Value: bson.D{}})
	}
	require.NoError(t, b.DB.RunCommand(t.Context(), bson.D{{Key: "collMod", Value: "transfers"}, closed()}).Err())

	events := transfer.WithEvents(transfer.EventHandler{Kinds: []transfer.EventKind{transfer.EventSucceeded, transfer.EventFailed}})
	opts := []transfer.Option{events, transfer.WithRetention(time.Hour), transfer.WithStallThreshold(0)}
	b.Coordinator = b.NewCoordinator(b.DB, opts...)
	require.NoError(t, b.Setup(t.Context()))
	b.OpenAccounts([]int64{100, 0})
	b.MustMove("o", 60)
	b.Dying(bank.Prepares, bank.Lost, func(ctx context.Context, c *transfer.Coordinator) error {
		_, err := c.Reverse(ctx, transfer.Reversal{ID: "rest", Of: "o", All: true})
		return err
	}, func(*mongo.Database) []transfer.Option { return opts })
	_, err = b.Reverse(t.Context(), transfer.Reversal{ID: "part", Of: "o", Amount: transfer.Units(25)})
	require.NoError(t, err)
	b.RecoverBy(b.Coordinator) // plans the rest anew
	for _, field := range []string{"fence", "keepUntil", "outbox", "part", "plan", "reversed", "verified", "whole"} {
		n, err := b.DB.Collection("transfers").CountDocuments(t.Context(), bson.M{field: bson.M{"$exists": true}})
		require.NoError(t, err)
		require.NotZero(t, n, field)
	}
	b.CheckBooks(bank.Balances(100, 0))
	require.Empty(t, b.MustAudit().Findings)
}
