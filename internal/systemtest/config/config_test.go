package config

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// Every verb refuses a coordinator with another configuration than the deployment's,
// before anything is stored or has moved.
// The text says what differs.
// A coordinator that searches for markers in another field would post a hold to nowhere.
func TestAnotherConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		opts func(*mongo.Database) []transfer.Option
		says string
	}{
		"another field for markers": {fields(transfer.Fields{Pending: "reserved"}), `is "pending", and WithFields says "reserved"`},
		"for balances":              {fields(transfer.Fields{Balance: "credits"}), `is "balance", and WithFields says "credits"`},
		"for fences":                {fields(transfer.Fields{Fence: "token"}), `is "fence", and WithFields says "token"`},
		"for floors":                {fields(transfer.Fields{Floor: "least"}), `is "floor", and WithFields says "least"`},
		"for currencies":            {fields(transfer.Fields{Currency: "unit"}), `is "currency", and WithFields says "unit"`},
		"for closed accounts":       {fields(transfer.Fields{Closed: "shut"}), `is "closed", and WithFields says "shut"`},
		"for frozen accounts":       {fields(transfer.Fields{Frozen: "iced"}), `is "frozen", and WithFields says "iced"`},
		"another form of IDs": {func(*mongo.Database) []transfer.Option {
			return []transfer.Option{transfer.WithAccountIDs(transfer.ObjectIDs)}
		}, "WithAccountIDs says ObjectIDs"},
		"another transfers collection": {func(db *mongo.Database) []transfer.Option {
			return []transfer.Option{transfer.WithTransfers(db.Collection("payments"))}
		}, "belongs to the transfers collection"},
		"accounts for documents": {func(db *mongo.Database) []transfer.Option {
			return []transfer.Option{
				transfer.WithAccounts(db.Collection("others")), transfer.WithDocuments("accounts", db.Collection("accounts")),
			}
		}, "was set up to hold accounts, and is used for documents"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0).WithIndexes()
			b.MustHold("held", 60, time.Hour)
			before := b.Contents()
			c := b.NewCoordinator(b.DB, row.opts(b.DB)...)
			for verb, call := range fitVerbs(c) {
				if name == "accounts for documents" && !slices.Contains([]string{"Setup", "Check", "Run", "Recover", "Post"}, verb) {
					continue // it touches other accounts
				}
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				err := call(ctx)
				cancel()
				require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment, verb)
				require.NotErrorIs(t, err, transfer.ErrInDoubt, verb)
				require.ErrorContains(t, err, row.says, verb)
			}
			require.Equal(t, before, b.Contents())
			_, err := b.Post(t.Context(), "held")
			require.NoError(t, err)
			b.CheckBooks(bank.Balances(100, 0))
		})
	}
}

func fields(f transfer.Fields) func(*mongo.Database) []transfer.Option {
	return func(*mongo.Database) []transfer.Option { return []transfer.Option{transfer.WithFields(f)} }
}

// fitVerbs are the verbs that need a fit deployment.
// The hold "held" goes from a to b. With ObjectIDs there may be any.
func fitVerbs(c *transfer.Coordinator) map[string]func(context.Context) error {
	const a, b = "0123456789abcdef01234567", "0123456789abcdef01234568"
	return map[string]func(context.Context) error{
		"Setup":   c.Setup,
		"Check":   c.Check,
		"Run":     c.Run,
		"Recover": func(ctx context.Context) error { _, err := c.Recover(ctx); return err },
		"Transfer": func(ctx context.Context) error {
			_, err := c.Transfer(ctx, bank.Move("t", a, b, 1))
			return err
		},
		"TransferMany": func(ctx context.Context) error {
			_, errs := c.TransferMany(ctx, []transfer.Request{bank.Move("t", a, b, 1)})
			return errs[0]
		},
		"Submit": func(ctx context.Context) error { _, err := c.Submit(ctx, bank.Move("t", a, b, 1)); return err },
		"Hold":   func(ctx context.Context) error { _, err := c.Hold(ctx, bank.Move("t", a, b, 1), time.Hour); return err },
		"Post":   func(ctx context.Context) error { _, err := c.Post(ctx, "held"); return err },
		"Extend": func(ctx context.Context) error { _, err := c.Extend(ctx, "held", 2*time.Hour); return err },
		"Void":   func(ctx context.Context) error { _, err := c.Void(ctx, "held"); return err },
		"Cancel": func(ctx context.Context) error { _, err := c.Cancel(ctx, "held", "it is not wanted"); return err },
		"Reverse": func(ctx context.Context) error {
			_, err := c.Reverse(ctx, transfer.Reversal{ID: "back", Of: "held", All: true})
			return err
		},
		"OpenAccount": func(ctx context.Context) error { _, err := c.OpenAccount(ctx, transfer.Account{ID: a}); return err },
		"UpdateAccount": func(ctx context.Context) error {
			_, err := c.UpdateAccount(ctx, a, transfer.AccountChange{NoFloor: new(bool)})
			return err
		},
		"CloseAccount": func(ctx context.Context) error { return c.CloseAccount(ctx, a) },
		"Audit":        func(ctx context.Context) error { _, err := c.Audit(ctx); return err },
		"BalanceAt":    func(ctx context.Context) error { _, err := c.BalanceAt(ctx, a, time.Now()); return err },
	}
}

// requireUnfit requires that each call is refused because the deployment is unfit.
func requireUnfit(t *testing.T, calls map[string]func(context.Context) error, says string) {
	t.Helper()
	for verb, call := range calls {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		err := call(ctx)
		cancel()
		require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment, verb)
		require.NotErrorIs(t, err, transfer.ErrInDoubt, verb)
		require.ErrorContains(t, err, says, verb)
	}
}

// Several processes set up one database at once, with different configurations, and one
// of these wins.
// The processes with another one are refused, and all others succeed.
func TestRacingSetupsAgree(t *testing.T) {
	t.Parallel()
	for round := range 4 {
		b := bank.NewBare(t)
		configurations := map[string][]transfer.Option{
			"plain": nil, "reserved": {transfer.WithFields(transfer.Fields{Pending: "reserved"})},
			"payments": {transfer.WithTransfers(b.DB.Collection("payments"))},
		}
		type answer struct {
			name string
			err  error
		}
		answers, begin := make(chan answer), make(chan struct{})
		n := 0
		for name, opts := range configurations {
			for range 3 {
				n++
				c := b.NewCoordinator(b.DB, opts...)
				go func() {
					<-begin
					if round%2 == 0 {
						answers <- answer{name, c.Setup(t.Context())}
						return
					}
					_, err := c.OpenAccount(t.Context(), transfer.Account{ID: bson.NewObjectID().Hex()})
					answers <- answer{name, err}
				}()
			}
		}
		close(begin)
		fine := map[string]int{}
		for range n {
			got := bank.Within(t, answers)
			if got.err == nil {
				fine[got.name]++
				continue
			}
			require.ErrorIs(t, got.err, transfer.ErrUnsupportedDeployment)
		}
		require.Len(t, fine, 1, "one configuration stands: %v", fine)
		for name := range maps.Keys(fine) {
			require.Equal(t, 3, fine[name])
			require.NoError(t, b.NewCoordinator(b.DB, configurations[name]...).Setup(t.Context()))
			require.NoError(t, b.NewCoordinator(b.DB, configurations[name]...).Check(t.Context()))
		}
	}
}
