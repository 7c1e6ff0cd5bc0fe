package transfer_test

import (
	"context"
	"iter"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
)

// method is a call of a public method, with what is well formed.
type method func(ctx context.Context, c *transfer.Coordinator) error

// first returns the error of the first that a sequence yields.
func first[T any](all iter.Seq2[T, error]) error {
	for _, err := range all {
		return err
	}
	return nil
}

// verbs are calls of all public methods that talk to a server, by the names of Coordinator and Ledger.
func verbs() map[string]method {
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
		"Coordinator.Setup": func(ctx context.Context, c *transfer.Coordinator) error { return c.Setup(ctx) },
		"Coordinator.Transfer": func(ctx context.Context, c *transfer.Coordinator) error {
			_, err := c.Transfer(ctx, move("new", "a", "b", 1))
			return err
		},
		"Coordinator.TransferMany": func(ctx context.Context, c *transfer.Coordinator) error {
			_, errs := c.TransferMany(ctx, []transfer.Request{move("new", "a", "b", 1)})
			return errs[0]
		},
		"Coordinator.Submit": func(ctx context.Context, c *transfer.Coordinator) error {
			_, err := c.Submit(ctx, move("new", "a", "b", 1))
			return err
		},
		"Coordinator.Hold": func(ctx context.Context, c *transfer.Coordinator) error {
			_, err := c.Hold(ctx, move("new", "a", "b", 1), time.Minute)
			return err
		},
		"Coordinator.Post": func(ctx context.Context, c *transfer.Coordinator) error {
			_, err := c.Post(ctx, "t")
			return err
		},
		"Coordinator.Void": func(ctx context.Context, c *transfer.Coordinator) error {
			_, err := c.Void(ctx, "t")
			return err
		},
		"Coordinator.Cancel": func(ctx context.Context, c *transfer.Coordinator) error {
			_, err := c.Cancel(ctx, "t", "")
			return err
		},
		"Coordinator.Reverse": func(ctx context.Context, c *transfer.Coordinator) error {
			_, err := c.Reverse(ctx, "t", "new")
			return err
		},
		"Coordinator.Run": func(ctx context.Context, c *transfer.Coordinator) error { return c.Run(ctx) },
		"Coordinator.Recover": func(ctx context.Context, c *transfer.Coordinator) error {
			_, err := c.Recover(ctx)
			return err
		},
		"Coordinator.Wait": func(ctx context.Context, c *transfer.Coordinator) error {
			_, err := c.Wait(ctx, "t")
			return err
		},
		"Coordinator.Get": func(ctx context.Context, c *transfer.Coordinator) error {
			_, err := c.Get(ctx, "t")
			return err
		},
		"Coordinator.List": func(ctx context.Context, c *transfer.Coordinator) error {
			return first(c.List(ctx, transfer.Query{}))
		},
		"Coordinator.OpenAccount": func(ctx context.Context, c *transfer.Coordinator) error {
			_, err := c.OpenAccount(ctx, transfer.Account{ID: "new"})
			return err
		},
		"Coordinator.GetAccount": func(ctx context.Context, c *transfer.Coordinator) error {
			_, err := c.GetAccount(ctx, "a")
			return err
		},
		"Coordinator.CloseAccount":  func(ctx context.Context, c *transfer.Coordinator) error { return c.CloseAccount(ctx, "a") },
		"Coordinator.ReopenAccount": func(ctx context.Context, c *transfer.Coordinator) error { return c.ReopenAccount(ctx, "a") },
		"Coordinator.Statement": func(ctx context.Context, c *transfer.Coordinator) error {
			return first(c.Statement(ctx, "a", transfer.StatementQuery{}))
		},
		"Coordinator.BalanceAt": func(ctx context.Context, c *transfer.Coordinator) error {
			_, err := c.BalanceAt(ctx, "a", time.Now())
			return err
		},
		"Coordinator.Audit": func(ctx context.Context, c *transfer.Coordinator) error {
			_, err := c.Audit(ctx)
			return err
		},
		"Coordinator.AuditWith": func(ctx context.Context, c *transfer.Coordinator) error {
			_, err := c.AuditWith(ctx, transfer.AuditOptions{})
			return err
		},
		"Coordinator.RepairMarker": func(ctx context.Context, c *transfer.Coordinator) error {
			return c.RepairMarker(ctx, transfer.MarkerRepair{
				Account: "a", TransferID: "lost", Amount: transfer.Units(1), Decision: transfer.KeepBalance,
			})
		},
		"Coordinator.RepairPending": func(ctx context.Context, c *transfer.Coordinator) error { return c.RepairPending(ctx, "", "a") },
		"Coordinator.RepairOpen":    func(ctx context.Context, c *transfer.Coordinator) error { return c.RepairOpen(ctx, "t") },
		"Ledger.Open": ofLedger(func(ctx context.Context, l *transfer.Ledger) error {
			_, err := l.Open(ctx, transfer.Account{ID: "new"})
			return err
		}),
		"Ledger.Get": ofLedger(func(ctx context.Context, l *transfer.Ledger) error {
			_, err := l.Get(ctx, "a")
			return err
		}),
		"Ledger.Close":  ofLedger(func(ctx context.Context, l *transfer.Ledger) error { return l.Close(ctx, "a") }),
		"Ledger.Reopen": ofLedger(func(ctx context.Context, l *transfer.Ledger) error { return l.Reopen(ctx, "a") }),
		"Ledger.Statement": ofLedger(func(ctx context.Context, l *transfer.Ledger) error {
			return first(l.Statement(ctx, "a", transfer.StatementQuery{}))
		}),
		"Ledger.BalanceAt": ofLedger(func(ctx context.Context, l *transfer.Ledger) error {
			_, err := l.BalanceAt(ctx, "a", time.Now())
			return err
		}),
	}
}

// methods returns the public methods of Coordinator and Ledger.
func methods() []string {
	var names []string
	for _, kind := range []reflect.Type{reflect.TypeFor[*transfer.Coordinator](), reflect.TypeFor[*transfer.Ledger]()} {
		for i := range kind.NumMethod() {
			names = append(names, kind.Elem().Name()+"."+kind.Method(i).Name)
		}
	}
	return names
}

// Every public method that talks to a server is in the tables below.
func TestVerbsAreComplete(t *testing.T) {
	t.Parallel()
	known := verbs()
	for _, name := range methods() {
		// Close drains and Ledger looks a name up: neither sends anything. The others are of tests.
		if strings.Contains(" Coordinator.Close Coordinator.Ledger Coordinator.PurgedBefore Coordinator.ClockAhead ", " "+name+" ") {
			continue
		}
		require.Contains(t, known, name, "a new public method: say here how it is called")
	}
}

// last returns the last error that a sequence yields.
func last[T any](all iter.Seq2[T, error]) (failure error) {
	for _, err := range all {
		failure = err
	}
	return failure
}
