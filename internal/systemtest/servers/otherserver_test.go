package servers

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// elsewhere returns a collection of the same name as that of the ledger other, on a third
// server, where an account has the same ID.
func elsewhere(b *bank.Branches) *mongo.Collection {
	b.T.Helper()
	client := bank.Client(b.T, bank.StartServer(b.T).URI())
	accounts := client.Database(b.DB.Name()).Collection("accounts")
	_, err := accounts.InsertOne(b.T.Context(), bson.M{"_id": "a", "balance": int64(5)})
	require.NoError(b.T, err)
	return accounts
}

// crashAcross leaves a transfer of 60 to the other server behind, whose process died when
// it had sent the decision.
func crashAcross(b *bank.Branches, id string, decision bank.Fault) {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(b.T.Context(), 5*time.Minute)
	defer cancel()
	w := &bank.Wire{Is: bank.Decision.Selector(), What: decision, Die: true, OnDeath: cancel}
	c := b.NewCoordinator(b.Through(w.Client()), b.Other())
	_, err := c.Transfer(ctx, bank.Across(id, 60))
	bank.Kill(c)
	bank.RequireUnended(b.T, err)
	require.True(b.T, w.HasStruck())
}

// A process whose ledger is on another server than that of everybody else, in a
// collection of the same name, recovers nothing: it would find no marker there, take the
// transfer for settled or undone, and the money would be gone.
func TestNothingIsRecoveredOnAnotherServer(t *testing.T) {
	t.Parallel()
	for state, decision := range map[string]bank.Fault{"Committed": bank.AnswerLost, "Preparing": bank.Lost} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			b := bank.NewBranches(t, bank.SecondServer(t), 100, 100)
			_, err := b.Both.Transfer(t.Context(), bank.Across("before", 10))
			require.NoError(t, err)
			crashAcross(b, "crashed", decision)
			require.Equal(t, state, b.RawTransfer("crashed").State)

			accounts := elsewhere(b)
			wrong := b.NewCoordinator(b.DB, transfer.WithLedger("other", accounts), transfer.WithStallThreshold(0))
			report, err := wrong.Recover(t.Context())
			require.NoError(t, err)
			require.Equal(t, state, b.RawTransfer("crashed").State)
			require.Equal(t, transfer.RecoveryReport{Found: 1, Stuck: 1}, report)
			_, err = wrong.Transfer(t.Context(), bank.Across("crashed", 60))
			require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
			require.Equal(t, state, b.RawTransfer("crashed").State)

			_, err = b.NewCoordinator(b.DB, b.Other(), transfer.WithStallThreshold(0)).Recover(t.Context())
			require.NoError(t, err)
			b.CheckBooks()
			n, err := accounts.CountDocuments(t.Context(), bson.M{"balance": int64(5)})
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
		})
	}
}

// Whatever a process is asked for is refused where a name stands for a collection on
// another server than it does for everybody else, and nothing is written there.
func TestLedgerOnAnotherServerIsNotTheRecordedOne(t *testing.T) {
	t.Parallel()
	b := bank.NewBranches(t, bank.SecondServer(t), 100, 100)
	accounts := elsewhere(b)
	for name, opts := range map[string][]transfer.Option{
		"a ledger":           {transfer.WithLedger("other", accounts)},
		"the default ledger": {transfer.WithAccounts(accounts), b.Other()},
		"both, interchanged": {transfer.WithAccounts(b.There()), transfer.WithLedger("other", b.DB.Collection("accounts"))},
	} {
		wrong := b.NewCoordinator(b.DB, opts...)
		ledger := "other"
		if name == "the default ledger" {
			ledger = ""
		}
		l, err := wrong.Ledger(ledger)
		require.NoError(t, err)
		for verb, call := range map[string]func(context.Context) error{
			"Setup":    wrong.Setup,
			"Check":    wrong.Check,
			"Transfer": func(ctx context.Context) error { return bank.ErrorOf(wrong.Transfer(ctx, bank.Across("t", 60))) },
			"Hold":     func(ctx context.Context) error { return bank.ErrorOf(wrong.Hold(ctx, bank.Across("t", 60), time.Hour)) },
			"Submit":   func(ctx context.Context) error { return bank.ErrorOf(wrong.Submit(ctx, bank.Across("t", 60))) },
			"Open":     func(ctx context.Context) error { return bank.ErrorOf(l.Open(ctx, transfer.Account{ID: "new"})) },
			"Close":    func(ctx context.Context) error { return l.Close(ctx, "a") },
		} {
			err := call(t.Context())
			require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment, "%s: %s", name, verb)
			require.ErrorContains(t, err, "is another collection than the one", "%s: %s", name, verb)
		}
	}
	collections, err := accounts.Database().ListCollectionNames(t.Context(), bson.D{})
	require.NoError(t, err)
	require.Equal(t, []string{"accounts"}, collections)
	b.CheckBooks()
}

// Of processes that begin at once, with one ledger on two servers, those on one of the
// two are fine, and the others are refused before anything moves: also where they began
// while nothing was recorded.
func TestRacingFirstUsesAgreeOnAServer(t *testing.T) {
	t.Parallel()
	servers := map[string]string{"one": bank.SecondServer(t).URI(), "two": bank.StartServer(t).URI()}
	const each = 3
	for round := range 4 {
		b := bank.New(t, 100).WithIndexes()
		ledgers := map[string]*mongo.Collection{}
		for name, uri := range servers {
			ledgers[name] = bank.Client(t, uri).Database(b.DB.Name()).Collection("accounts")
			_, err := ledgers[name].InsertOne(t.Context(), bson.M{"_id": "a", "balance": int64(100)})
			require.NoError(t, err)
		}
		fine := raceOnLedgers(b, ledgers, each, round%2 == 0)
		require.Len(t, fine, 1, "one server stands: %v", fine)
		moved := int64(10 * each * (round % 2))
		for name, accounts := range ledgers {
			c := b.NewCoordinator(b.DB, transfer.WithLedger("other", accounts))
			if fine[name] == 0 {
				require.ErrorIs(t, c.Check(t.Context()), transfer.ErrUnsupportedDeployment)
				n, err := accounts.Database().Collection("accounts.transfer").CountDocuments(t.Context(), bson.M{"_id": "deployment"})
				require.NoError(t, err)
				require.Zero(t, n, "it is no collection of this deployment")
				continue
			}
			require.Equal(t, each, fine[name])
			require.NoError(t, c.Check(t.Context()))
			bank.RequireLedgers(t, c, map[string]int64{"": 100 - moved, "other": 100 + moved})
			report, err := c.Audit(t.Context())
			require.NoError(t, err)
			require.Empty(t, report.Findings)
		}
	}
}

// raceOnLedgers lets processes set up, or move money, at once, some of them with each of
// the ledgers. It returns how many with each were not refused.
func raceOnLedgers(b *bank.Bank, ledgers map[string]*mongo.Collection, each int, setUp bool) map[string]int {
	b.T.Helper()
	type answer struct {
		name string
		err  error
	}
	answers, begin := make(chan answer), make(chan struct{})
	for name, accounts := range ledgers {
		for i := range each {
			c := b.NewCoordinator(b.DB, transfer.WithLedger("other", accounts))
			go func() {
				<-begin
				if setUp {
					answers <- answer{name, c.Setup(b.T.Context())}
					return
				}
				_, err := c.Transfer(b.T.Context(), bank.Across(fmt.Sprint(name, i), 10))
				answers <- answer{name, err}
			}()
		}
	}
	close(begin)
	fine := map[string]int{}
	for range each * len(ledgers) {
		got := bank.Within(b.T, answers)
		if got.err == nil {
			fine[got.name]++
			continue
		}
		require.ErrorIs(b.T, got.err, transfer.ErrUnsupportedDeployment)
	}
	return fine
}

// A ledger that was moved to another server is accepted there with what lies beside it.
// Without that it is adopted, and from then on the old server is refused.
func TestLedgerIsMovedToAnotherServer(t *testing.T) {
	t.Parallel()
	b := bank.NewBranches(t, bank.SecondServer(t), 100, 100)
	moved := bank.StartServer(t)
	for _, row := range []struct {
		name   string
		copied []string
		adopt  bool
	}{
		{"with what lies beside it", []string{"accounts", "accounts.transfer"}, false},
		{"alone", []string{"accounts"}, true},
	} {
		accounts := bank.Client(t, moved.URI()).Database(b.DB.Name()).Collection("accounts")
		for _, collection := range row.copied {
			var documents []bson.Raw
			cursor, err := b.There().Database().Collection(collection).Find(t.Context(), bson.D{})
			require.NoError(t, err)
			require.NoError(t, cursor.All(t.Context(), &documents))
			_, err = accounts.Database().Collection(collection).InsertMany(t.Context(), documents)
			require.NoError(t, err)
		}
		c := b.NewCoordinator(b.DB, transfer.WithLedger("other", accounts))
		if row.adopt {
			require.ErrorIs(t, c.Setup(t.Context()), transfer.ErrUnsupportedDeployment)
			require.NoError(t, c.Adopt(t.Context()))
		}
		require.NoError(t, c.Setup(t.Context()), row.name)
		require.NoError(t, c.Check(t.Context()), row.name)
		before := b.NewCoordinator(b.DB, b.Other())
		if row.adopt {
			require.ErrorIs(t, before.Setup(t.Context()), transfer.ErrUnsupportedDeployment)
		} else {
			require.NoError(t, before.Setup(t.Context()), "nothing distinguishes a copy from the original")
		}
		require.NoError(t, accounts.Database().Drop(t.Context()))
	}
}
