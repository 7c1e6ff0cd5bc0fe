package verbs

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// method is a well-formed call of a public method.
type method func(ctx context.Context, c *transfer.Coordinator) error

// verbs are calls of all public methods of Coordinator and Ledger that use a server, by
// name.
func verbs() map[string]method {
	all := map[string]method{}
	for _, some := range []map[string]method{transferVerbs(), lookVerbs(), accountVerbs(), ledgerVerbs()} {
		maps.Copy(all, some)
	}
	return all
}

func transferVerbs() map[string]method {
	return map[string]method{
		"Coordinator.Setup": func(ctx context.Context, c *transfer.Coordinator) error { return c.Setup(ctx) },
		"Coordinator.Check": func(ctx context.Context, c *transfer.Coordinator) error { return c.Check(ctx) },
		"Coordinator.Adopt": func(ctx context.Context, c *transfer.Coordinator) error { return c.Adopt(ctx) },
		"Coordinator.Transfer": func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.ErrorOf(c.Transfer(ctx, bank.Move("new", "a", "b", 1)))
		},
		"Coordinator.TransferMany": func(ctx context.Context, c *transfer.Coordinator) error {
			_, errs := c.TransferMany(ctx, []transfer.Request{bank.Move("new", "a", "b", 1)})
			return errs[0]
		},
		"Coordinator.Submit": func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.ErrorOf(c.Submit(ctx, bank.Move("new", "a", "b", 1)))
		},
		"Coordinator.Hold": func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.ErrorOf(c.Hold(ctx, bank.Move("new", "a", "b", 1), time.Minute))
		},
		"Coordinator.Post": func(ctx context.Context, c *transfer.Coordinator) error { return bank.ErrorOf(c.Post(ctx, "t")) },
		"Coordinator.Extend": func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.ErrorOf(c.Extend(ctx, "t", time.Hour))
		},
		"Coordinator.Void":   func(ctx context.Context, c *transfer.Coordinator) error { return bank.ErrorOf(c.Void(ctx, "t")) },
		"Coordinator.Cancel": func(ctx context.Context, c *transfer.Coordinator) error { return bank.ErrorOf(c.Cancel(ctx, "t", "")) },
		"Coordinator.Reverse": func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.ErrorOf(c.Reverse(ctx, transfer.Reversal{ID: "new", Of: "t", All: true}))
		},
	}
}

func lookVerbs() map[string]method {
	return map[string]method{
		"Coordinator.Run":     func(ctx context.Context, c *transfer.Coordinator) error { return c.Run(ctx) },
		"Coordinator.Healthy": func(ctx context.Context, c *transfer.Coordinator) error { return c.Healthy(ctx) },
		"Coordinator.Recover": func(ctx context.Context, c *transfer.Coordinator) error { return bank.ErrorOf(c.Recover(ctx)) },
		"Coordinator.Wait":    func(ctx context.Context, c *transfer.Coordinator) error { return bank.ErrorOf(c.Wait(ctx, "t")) },
		"Coordinator.Get":     func(ctx context.Context, c *transfer.Coordinator) error { return bank.ErrorOf(c.Get(ctx, "t")) },
		"Coordinator.List": func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.FirstError(c.List(ctx, transfer.Query{}))
		},
		"Coordinator.Explain": func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.ErrorOf(c.Explain(ctx, "t"))
		},
		"Coordinator.Stats": func(ctx context.Context, c *transfer.Coordinator) error { return bank.ErrorOf(c.Stats(ctx)) },
		"Coordinator.Count": func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.ErrorOf(c.Count(ctx, transfer.Query{}))
		},
	}
}

func accountVerbs() map[string]method {
	return map[string]method{
		"Coordinator.OpenAccount": func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.ErrorOf(c.OpenAccount(ctx, transfer.Account{ID: "new"}))
		},
		"Coordinator.GetAccount":    func(ctx context.Context, c *transfer.Coordinator) error { return bank.ErrorOf(c.GetAccount(ctx, "a")) },
		"Coordinator.CloseAccount":  func(ctx context.Context, c *transfer.Coordinator) error { return c.CloseAccount(ctx, "a") },
		"Coordinator.ReopenAccount": func(ctx context.Context, c *transfer.Coordinator) error { return c.ReopenAccount(ctx, "a") },
		"Coordinator.UpdateAccount": func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.ErrorOf(c.UpdateAccount(ctx, "a", freezing()))
		},
		"Coordinator.Accounts": func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.FirstError(c.Accounts(ctx, transfer.AccountQuery{}))
		},
		"Coordinator.Statement": func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.FirstError(c.Statement(ctx, "a", transfer.StatementQuery{}))
		},
		"Coordinator.BalanceAt": func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.ErrorOf(c.BalanceAt(ctx, "a", time.Now()))
		},
		"Coordinator.Audit": func(ctx context.Context, c *transfer.Coordinator) error { return bank.ErrorOf(c.Audit(ctx)) },
		"Coordinator.AuditWith": func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.ErrorOf(c.AuditWith(ctx, transfer.AuditOptions{}))
		},
		"Coordinator.RepairMarker": func(ctx context.Context, c *transfer.Coordinator) error {
			return c.RepairMarker(ctx, transfer.MarkerRepair{
				Account: "a", TransferID: "lost", Amount: transfer.Units(1), Decision: transfer.KeepBalance,
			})
		},
		"Coordinator.RepairPending": func(ctx context.Context, c *transfer.Coordinator) error { return c.RepairPending(ctx, "", "a") },
		"Coordinator.Redeliver":     func(ctx context.Context, c *transfer.Coordinator) error { return c.Redeliver(ctx, "t") },
		"Coordinator.RepairOpen":    func(ctx context.Context, c *transfer.Coordinator) error { return c.RepairOpen(ctx, "t") },
	}
}

// freezing is a change of an account.
func freezing() transfer.AccountChange {
	frozen := true
	return transfer.AccountChange{Frozen: &frozen}
}

func ledgerVerbs() map[string]method {
	ofLedger := func(do func(ctx context.Context, l *transfer.Ledger) error) method {
		return func(ctx context.Context, c *transfer.Coordinator) error {
			l, err := c.Ledger("")
			if err != nil {
				return err
			}
			return do(ctx, l)
		}
	}
	return map[string]method{
		"Ledger.Open": ofLedger(func(ctx context.Context, l *transfer.Ledger) error {
			return bank.ErrorOf(l.Open(ctx, transfer.Account{ID: "new"}))
		}),
		"Ledger.Get":    ofLedger(func(ctx context.Context, l *transfer.Ledger) error { return bank.ErrorOf(l.Get(ctx, "a")) }),
		"Ledger.Close":  ofLedger(func(ctx context.Context, l *transfer.Ledger) error { return l.Close(ctx, "a") }),
		"Ledger.Reopen": ofLedger(func(ctx context.Context, l *transfer.Ledger) error { return l.Reopen(ctx, "a") }),
		"Ledger.Update": ofLedger(func(ctx context.Context, l *transfer.Ledger) error {
			return bank.ErrorOf(l.Update(ctx, "a", freezing()))
		}),
		"Ledger.Statement": ofLedger(func(ctx context.Context, l *transfer.Ledger) error {
			return bank.FirstError(l.Statement(ctx, "a", transfer.StatementQuery{}))
		}),
		"Ledger.BalanceAt": ofLedger(func(ctx context.Context, l *transfer.Ledger) error {
			return bank.ErrorOf(l.BalanceAt(ctx, "a", time.Now()))
		}),
	}
}

// methods returns the names of the public methods of Coordinator and Ledger.
func methods() []string {
	var names []string
	for _, kind := range []reflect.Type{reflect.TypeFor[*transfer.Coordinator](), reflect.TypeFor[*transfer.Ledger]()} {
		for i := range kind.NumMethod() {
			names = append(names, kind.Elem().Name()+"."+kind.Method(i).Name)
		}
	}
	return names
}

// Every public method that uses a server is in the tables of these tests.
func TestVerbsAreComplete(t *testing.T) {
	t.Parallel()
	known := verbs()
	// Close drains and Ledger finds a ledger by name. Neither sends a command.
	silent := []string{"Coordinator.Close", "Coordinator.Ledger"}
	for _, name := range methods() {
		if slices.Contains(silent, name) {
			continue
		}
		require.Contains(t, known, name, "a new public method: say here how it is called")
	}
}
