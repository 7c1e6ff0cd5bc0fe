package texts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// The values that must stay secret: an amount, the stored balances, a value of the
// metadata.
const (
	telltaleAmount  = 987654321
	telltaleBalance = 1234567890
	telltaleValue   = "secret-7c1e"
)

// telltales are texts that must not appear: values, and parts of a command, a reply or a
// document that the server or the driver echoes.
func telltales() []string {
	return []string{
		"987654321", "1234567890", "246913569", "secret-", "signature", "$db", "lsid", "$clusterTime", "dup key", "E11000",
		"failingDocument", "consideredValue", "specifiedAs", "writeErrors", "{", "}",
	}
}

// requireDiscreet requires that a text reveals no value, names an ID once, is short, and
// repeats nothing.
func requireDiscreet(t *testing.T, text, id string) {
	t.Helper()
	for _, part := range telltales() {
		assert.NotContains(t, text, part)
	}
	assert.LessOrEqual(t, len(text), 300, text)
	assert.NotContains(t, text, "\n")
	if id != "" {
		assert.Equal(t, 1, strings.Count(text, `"`+id+`"`), "the ID is told once: %s", text)
	}
	said := map[string]bool{}
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(":;()", r) }) {
		if part = strings.TrimSpace(part); strings.Contains(part, " ") {
			assert.False(t, said[part], "%q is said twice: %s", part, text)
		}
		said[part] = true
	}
}

// telltale returns a request whose values would be noticed in a text.
func telltale(id, from, to string) transfer.Request {
	req := bank.Move(id, from, to, telltaleAmount)
	req.Metadata = map[string]any{"order": telltaleValue + id}
	return req
}

// talker is a bank whose accounts, balances and transfers would be noticed in a text.
// Its log is recorded.
type talker struct {
	*bank.Bank
	log *recorder
	c   *transfer.Coordinator // it logs
}

func newTalker(t *testing.T, opts ...transfer.Option) talker {
	t.Helper()
	b := bank.New(t, telltaleBalance, telltaleBalance, 0)
	log := &recorder{}
	return talker{b, log, b.NewCoordinator(b.DB, append(opts, transfer.WithLogger(slog.New(log)))...)}
}

// over returns a coordinator of the talker over another client.
func (k talker) over(opts *options.ClientOptions, more ...transfer.Option) *transfer.Coordinator {
	return k.NewCoordinator(k.Through(opts), append(more, transfer.WithLogger(slog.New(k.log)))...)
}

// validate makes the server refuse accounts that break a rule.
func (k talker) validate(rule bson.M) {
	k.T.Helper()
	command := bson.D{{Key: "collMod", Value: "accounts"}, {Key: "validator", Value: rule}}
	require.NoError(k.T, k.DB.RunCommand(k.T.Context(), command).Err())
}

// unique makes a field unique in a collection.
func (k talker) unique(collection, field, name string) {
	k.T.Helper()
	index := mongo.IndexModel{Keys: bson.D{{Key: field, Value: 1}}, Options: options.Index().SetUnique(true).SetSparse(true).SetName(name)}
	_, err := k.DB.Collection(collection).Indexes().CreateOne(k.T.Context(), index)
	require.NoError(k.T, err)
}

// failure is a call and the error it returns.
type failure struct {
	want error
	says string // a part of its text: what to do, or which rule it was
	do   func(k talker) error
}

// refused are transfers that are refused, or can't be stored.
func refused() map[string]failure {
	return map[string]failure{
		"too little money": {transfer.ErrInsufficientFunds, "another try needs a new ID", func(k talker) error {
			_, err := k.c.Transfer(k.T.Context(), telltale("t", "c", "a"))
			var refused *transfer.RefusedError
			require.ErrorAs(k.T, err, &refused)
			require.NotNil(k.T, refused.Balance, "the balance is in a field")
			return err
		}},
		"no account": {transfer.ErrAccountNotFound, `account "nobody"`, func(k talker) error {
			_, err := k.c.Transfer(k.T.Context(), telltale("t", "a", "nobody"))
			return err
		}},
		"another payload": {transfer.ErrIDConflict, "see its record", func(k talker) error {
			_, err := k.c.Transfer(k.T.Context(), telltale("t", "a", "b"))
			require.NoError(k.T, err)
			_, err = k.c.Transfer(k.T.Context(), telltale("t", "b", "a"))
			return err
		}},
		"a validator, by a schema": {transfer.ErrUnwritable, "", func(k talker) error {
			k.validate(bson.M{"$jsonSchema": bson.M{"properties": bson.M{"balance": bson.M{"minimum": telltaleBalance}}}})
			_, err := k.c.Transfer(k.T.Context(), telltale("t", "a", "b"))
			return err
		}},
		"a unique index of transfers": {nil, `the index "one_order" on metadata.order`, func(k talker) error {
			k.unique("transfers", "metadata.order", "one_order")
			first, second := telltale("t", "a", "b"), telltale("u", "a", "b")
			first.Metadata = second.Metadata
			_, err := k.c.Transfer(k.T.Context(), second)
			require.NoError(k.T, err)
			_, err = k.c.Transfer(k.T.Context(), first)
			require.Error(k.T, err)
			return err
		}},
		"the same, submitted": {nil, `the index "one_order" on metadata.order`, func(k talker) error {
			k.unique("transfers", "metadata.order", "one_order")
			first, second := telltale("t", "a", "b"), telltale("u", "a", "b")
			first.Metadata = second.Metadata
			_, err := k.c.Submit(k.T.Context(), second)
			require.NoError(k.T, err)
			_, err = k.c.Submit(k.T.Context(), first)
			require.Error(k.T, err)
			_, cancelled := k.c.Cancel(k.T.Context(), "u", "")
			require.NoError(k.T, cancelled)
			return err
		}},
	}
}

// late are verbs that come too late, or for the wrong transfer.
func late() map[string]failure {
	return map[string]failure{
		"cancelled": {transfer.ErrCancelled, `"no longer wanted"`, func(k talker) error {
			_, err := k.c.Submit(k.T.Context(), telltale("t", "a", "b"))
			require.NoError(k.T, err)
			_, err = k.c.Cancel(k.T.Context(), "t", "no longer wanted")
			require.NoError(k.T, err)
			_, err = k.c.Transfer(k.T.Context(), telltale("t", "a", "b"))
			return err
		}},
		"expired": {transfer.ErrExpired, "", func(k talker) error {
			_, err := k.c.Hold(k.T.Context(), telltale("t", "a", "b"), time.Hour)
			require.NoError(k.T, err)
			k.ExpireAll()
			_, err = k.c.Post(k.T.Context(), "t")
			return err
		}},
		"too much of a hold": {transfer.ErrInvalidRequest, "no more than is held", func(k talker) error {
			_, err := k.c.Hold(k.T.Context(), bank.Move("t", "a", "b", 5), time.Hour)
			require.NoError(k.T, err)
			_, err = k.c.Post(k.T.Context(), "t", transfer.PostAmount(transfer.Units(telltaleAmount)))
			_, voided := k.c.Void(k.T.Context(), "t")
			require.NoError(k.T, voided)
			return err
		}},
		"not there": {transfer.ErrTransferNotFound, "", func(k talker) error {
			_, err := k.c.Post(k.T.Context(), "t")
			return err
		}},
		"reversed by another": {transfer.ErrAlreadyReversed, `by "u"`, func(k talker) error {
			_, err := k.c.Transfer(k.T.Context(), telltale("t", "a", "b"))
			require.NoError(k.T, err)
			_, err = k.c.Reverse(k.T.Context(), transfer.Reversal{ID: "u", Of: "t", All: true})
			require.NoError(k.T, err)
			_, err = k.c.Reverse(k.T.Context(), transfer.Reversal{ID: "v", Of: "t", All: true})
			return err
		}},
	}
}

// unanswered are calls that can't get an answer.
func unanswered() map[string]failure {
	return map[string]failure{
		"a server that is away": {nil, "no fit server among 127.0.0.1:1", func(k talker) error {
			client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1").SetServerSelectionTimeout(time.Second))
			require.NoError(k.T, err)
			defer func() { _ = client.Disconnect(context.Background()) }()
			c := k.NewCoordinator(client.Database("bank"), transfer.WithLogger(slog.New(k.log)))
			ctx, cancel := context.WithTimeout(k.T.Context(), 3*time.Second)
			defer cancel()
			_, err = c.Transfer(ctx, telltale("t", "a", "b"))
			require.ErrorIs(k.T, err, context.DeadlineExceeded)
			return about("t", err)
		}},
		"a transfer that can't be read": {nil, `see its field "legs.0.amount"`, func(k talker) error {
			_, err := k.Transfer(k.T.Context(), telltale("t", "a", "b"))
			require.NoError(k.T, err)
			k.SetField("transfers", "t", "legs.0.amount", telltaleValue)
			_, err = k.c.Get(k.T.Context(), "t")
			for _, again := range k.list() {
				requireDiscreet(k.T, again.Error(), "t")
			}
			k.SetField("transfers", "t", "legs.0.amount", int64(-telltaleAmount))
			require.Error(k.T, err)
			return err
		}},
		"an account that can't be read": {transfer.ErrAmountKind, "store an int32, an int64 or a Decimal128", func(k talker) error {
			k.SetField("accounts", "a", "balance", telltaleValue)
			_, err := k.c.GetAccount(k.T.Context(), "a")
			k.SetField("accounts", "a", "balance", int64(telltaleBalance))
			return about("t", err)
		}},
		"a decimal on units": {transfer.ErrAmountKind, "", func(k talker) error {
			amount, err := transfer.ParseDecimal("987654321.5")
			require.NoError(k.T, err)
			_, err = k.c.Transfer(k.T.Context(), transfer.Request{ID: "t", From: "a", To: "b", Amount: amount})
			return err
		}},
		"closed": {transfer.ErrClosed, "", func(k talker) error {
			require.NoError(k.T, k.c.Close(k.T.Context()))
			_, err := k.c.Transfer(k.T.Context(), telltale("t", "a", "b"))
			return err
		}},
	}
}

// Every error that a caller gets names its transfer once, is short, and has no value of
// the user's: no amount, no balance, no metadata, and nothing that the server echoes.
// The same holds for every line of the log, and for stored texts.
func TestErrorsAreDiscreet(t *testing.T) {
	t.Parallel()
	rows := refused()
	maps.Copy(rows, late())
	maps.Copy(rows, unanswered())
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newTalker(t)
			err := row.do(k)
			require.ErrorIs(t, err, cmpError(row.want, err))
			require.ErrorContains(t, err, row.says)
			id := "t"
			if errors.Is(err, transfer.ErrClosed) || errors.Is(err, transfer.ErrInvalidRequest) {
				id = "" // it may name no ID
			}
			requireDiscreet(t, err.Error(), id)
			k.requireDiscreetLog()
			k.requireDiscreetRecords()
			k.validate(bson.M{})
			k.CheckBooks(bank.Balances(telltaleBalance, telltaleBalance, 0))
		})
	}
}

// about adds the ID to an error that has no reason to name it.
func about(id string, err error) error { return fmt.Errorf("%q: %w", id, err) }

// list returns the errors of a list of all transfers.
func (k talker) list() (failures []error) {
	k.T.Helper()
	for _, err := range k.c.List(k.T.Context(), transfer.Query{}) {
		if err != nil {
			failures = append(failures, err)
		}
	}
	require.NotEmpty(k.T, failures)
	return failures
}

func cmpError(want, otherwise error) error {
	if want == nil {
		return otherwise
	}
	return want
}

// requireDiscreetRecords requires that stored texts have none of the values.
func (k talker) requireDiscreetRecords() {
	k.T.Helper()
	for rec, err := range k.List(k.T.Context(), transfer.Query{}) {
		require.NoError(k.T, err)
		for _, told := range []*transfer.Failure{rec.Failure, rec.Stuck} {
			if told != nil {
				requireDiscreet(k.T, told.Message, "")
			}
		}
	}
}

// The rule that keeps a committed transfer from being settled is reported: the paths and
// operators of a validator, the name and fields of an index.
// The values that break it are not reported, logged or stored.
func TestStuckIsDiscreet(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		spoil func(k talker)
		says  string
	}{
		"a schema": {func(k talker) {
			k.validate(bson.M{"$jsonSchema": bson.M{"properties": bson.M{"balance": bson.M{"maximum": telltaleBalance}}}})
		}, "server error 121 DocumentValidationFailure: validator: balance maximum"},
		"a condition": {func(k talker) {
			k.validate(bson.M{"balance": bson.M{"$lte": telltaleBalance}})
		}, "server error 121 DocumentValidationFailure: validator: balance $lte"},
		"an expression": {func(k talker) {
			k.validate(bson.M{"$expr": bson.M{"$lte": bson.A{"$balance", telltaleBalance}}})
		}, "server error 121 DocumentValidationFailure: validator: $expr"},
		"one of two conditions": {func(k talker) {
			k.validate(bson.M{"$and": bson.A{bson.M{"balance": bson.M{"$type": "number"}}, bson.M{"balance": bson.M{"$lte": telltaleBalance}}}})
		}, "server error 121 DocumentValidationFailure: validator: balance $lte"},
		"what is missing": {func(k talker) {
			k.validate(bson.M{"$jsonSchema": bson.M{"required": bson.A{"name"}, "properties": bson.M{"_id": bson.M{"enum": bson.A{"a", "b"}}}}})
		}, "name is missing"},
		"a unique index": {func(k talker) {
			k.Insert("accounts", bson.M{"_id": "d", "balance": int64(telltaleBalance + telltaleAmount)})
			k.unique("accounts", "balance", "one_balance")
		}, `server error 11000 DuplicateKey: taken already in the index "one_balance" on balance`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newTalker(t)
			k.WithIndexes()
			k.StallRequest(telltale("t", "a", "b"), bank.Settles, bank.Lost)
			_, err := k.DB.Collection("accounts").UpdateOne(t.Context(), bson.M{"_id": "a"}, bson.M{"$set": bson.M{"x": 1}})
			require.NoError(t, err)
			c := k.over(options.Client(), transfer.WithStallThreshold(0))
			require.NoError(t, c.Check(t.Context())) // while the deployment is fit
			row.spoil(k)
			report, err := c.Recover(t.Context())
			require.NoError(t, err)
			require.Equal(t, transfer.RecoveryReport{Found: 1, Stuck: 1}, report)
			_, err = c.Transfer(t.Context(), telltale("t", "a", "b"))
			require.ErrorContains(t, err, row.says)
			requireDiscreet(t, err.Error(), "t")
			rec, err := k.Get(t.Context(), "t")
			require.NoError(t, err)
			require.Contains(t, rec.Stuck.Message, row.says)
			k.requireDiscreetLog()
			k.requireDiscreetRecords()
			k.validate(bson.M{})
			if strings.Contains(row.says, "one_balance") {
				require.NoError(t, k.DB.Collection("accounts").Indexes().DropOne(t.Context(), "one_balance"))
				k.Remove("accounts", "d")
			}
			k.RecoverAll()
			k.CheckBooks(bank.Balances(telltaleBalance, telltaleBalance, 0))
		})
	}
}

// Whichever message is lost, the error says once that the outcome is in doubt and what to
// do.
func TestDoubtIsDiscreet(t *testing.T) {
	t.Parallel()
	for _, what := range []bank.Fault{bank.Lost, bank.AnswerLost, bank.Swallowed} {
		for point := range 5 {
			t.Run(string(what), func(t *testing.T) {
				t.Parallel()
				k := newTalker(t)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				w := &bank.Wire{At: point, What: what, Die: true, OnDeath: cancel}
				k.Wires = append(k.Wires, w)
				c := k.over(w.Client())
				_, err := c.Transfer(ctx, telltale("t", "a", "b"))
				bank.Kill(c)
				require.Error(t, err)
				requireDiscreet(t, err.Error(), "t")
				if errors.Is(err, transfer.ErrInDoubt) {
					require.ErrorContains(t, err, "ask again with the same ID")
				}
				k.RecoverAll()
				k.requireDiscreetLog()
				k.CheckBooks(bank.Balances(telltaleBalance, telltaleBalance, 0))
			})
		}
	}
}

// If a cluster that a transfer needs is away, the error names the transfer once and says
// what is away, in every verb.
func TestErrorsOfWhatIsAway(t *testing.T) {
	t.Parallel()
	k := newTalker(t)
	k.Insert("far", bson.M{"_id": "z", "balance": int64(0)})
	near := k.NewCoordinator(k.DB, transfer.WithLedger("far", k.DB.Collection("far")))
	req := transfer.Request{ID: "t", Legs: []transfer.Leg{
		{Account: "a", Amount: transfer.Units(-telltaleAmount)}, {Ledger: "far", Account: "z", Amount: transfer.Units(telltaleAmount)},
	}}
	_, err := near.Hold(t.Context(), req, time.Hour)
	require.NoError(t, err)
	cut := &bank.Wire{}
	cut.Cut()
	away := k.Through(options.Client().SetDialer(cut).SetServerSelectionTimeout(200 * time.Millisecond))
	c := k.NewCoordinator(k.DB, transfer.WithLedger("far", away.Collection("far")), transfer.WithLogger(slog.New(k.log)))
	other := req
	other.ID = "u"
	for name, call := range map[string]func(ctx context.Context) error{
		"transfer": func(ctx context.Context) error { _, err := c.Transfer(ctx, other); return about("t", err) },
		"hold":     func(ctx context.Context) error { _, err := c.Hold(ctx, req, time.Hour); return about("t", err) },
		"post":     func(ctx context.Context) error { _, err := c.Post(ctx, "t"); return err },
		"void":     func(ctx context.Context) error { _, err := c.Void(ctx, "t"); return err },
		"cancel":   func(ctx context.Context) error { _, err := c.Cancel(ctx, "t", ""); return err },
	} {
		ctx, cancel := context.WithCancel(t.Context()) // this end has no error of the driver's around it
		late := time.AfterFunc(time.Second, cancel)
		err := call(ctx)
		late.Stop()
		cancel()
		require.ErrorIs(t, err, context.Canceled, name)
		requireDiscreet(t, err.Error(), "t")
	}
	k.requireDiscreetLog()
	_, err = near.Void(t.Context(), "t")
	require.NoError(t, err)
	k.CheckBooks(bank.Balances(telltaleBalance, telltaleBalance, 0))
}

// Errors about any ID are short, and in one line.
func TestErrorsOfLongIDs(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100)
	for _, unit := range []string{"x", "ü", "\x00", "\n", "\"", "🙂"} {
		id, account := strings.Repeat(unit, 255/len(unit)), strings.Repeat(unit, 240/len(unit))
		_, refused := b.Transfer(t.Context(), bank.Move(id, "a", account, 1))
		require.ErrorIs(t, refused, transfer.ErrAccountNotFound)
		_, again := b.Transfer(t.Context(), bank.Move(id, "a", account, 2))
		require.ErrorIs(t, again, transfer.ErrIDConflict)
		_, missing := b.Get(t.Context(), account)
		_, notHeld := b.Post(t.Context(), id)
		_, noAccount := b.GetAccount(t.Context(), account)
		_, tooLong := b.Get(t.Context(), id+"more")
		for _, err := range []error{refused, again, missing, notHeld, noAccount, tooLong} {
			require.Error(t, err)
			requireDiscreet(t, err.Error(), "")
			assert.Contains(t, err.Error(), "…")
		}
	}
	b.CheckBooks(bank.Balances(100))
}

// The error for an invalid request doesn't reveal its amounts and values.
func TestInvalidRequestsAreDiscreet(t *testing.T) {
	t.Parallel()
	b := bank.New(t, telltaleBalance, 0)
	exact, err := transfer.ParseDecimal("987654321.123456789012")
	require.NoError(t, err)
	leg := func(account string, units int64) transfer.Leg {
		return transfer.Leg{Account: account, Amount: transfer.Units(units)}
	}
	var failures []error
	for _, req := range []transfer.Request{
		bank.Move("t", "a", "b", -telltaleAmount), bank.Move("t", "a", "b", telltaleAmount<<20), bank.Move("t", "a", "a", telltaleAmount),
		{ID: "t", Legs: []transfer.Leg{leg("a", telltaleAmount), leg("b", 1)}},
		{ID: "t", Legs: []transfer.Leg{leg("a", telltaleAmount), {Account: "b", Amount: exact}}},
		{ID: "t", From: "a", To: "b", Amount: exact, Metadata: map[string]any{"x": telltaleValue + strings.Repeat("x", 1<<16)}},
		{ID: "t", From: "a", To: "b", Amount: exact, Metadata: map[string]any{"x": []any{telltaleValue, "secret-\xff"}}},
		{ID: "t", From: "a", To: "b", Amount: exact, Metadata: map[string]any{"x": uint64(9876543210000000000)}},
	} {
		_, err := b.Transfer(t.Context(), req)
		failures = append(failures, err)
	}
	for _, text := range []string{"secret-1", "987654321.1234567890123", strings.Repeat("987654321", 9)} {
		_, err := transfer.ParseDecimal(text)
		failures = append(failures, err)
	}
	var amount transfer.Amount
	for _, text := range []string{`"secret-1"`, "987654321.5", `"secret-\x00"`} {
		failures = append(failures, amount.UnmarshalJSON([]byte(text)))
	}
	_, err = b.OpenAccount(t.Context(), transfer.Account{ID: "c", Balance: transfer.Units(-telltaleAmount)})
	failures = append(failures, err)
	_, err = b.OpenAccount(t.Context(), transfer.Account{ID: "c", Balance: transfer.Units(telltaleAmount << 33)})
	for _, err := range append(failures, err) {
		require.Error(t, err)
		requireDiscreet(t, err.Error(), "")
	}
	b.CheckBooks(bank.Balances(telltaleBalance, 0))
}
