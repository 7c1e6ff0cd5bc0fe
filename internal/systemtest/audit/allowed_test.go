package audit

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// underWay are transfers at each of their steps, and transfers that may wait.
func underWay() map[string]func(b *bank.Bank) {
	return map[string]func(b *bank.Bank){
		"claimed":   func(b *bank.Bank) { b.StallAt("t", bank.Prepares, bank.Lost, 60) },
		"prepared":  func(b *bank.Bank) { b.LeavePrepared("t", 60) },
		"committed": func(b *bank.Bank) { b.LeaveRecorded("t", 60) },
		"settled":   func(b *bank.Bank) { b.LeaveTraces("t", 60, "Committed", bank.Cleared, bank.Cleared) },
		"refused":   func(b *bank.Bank) { mustFail(b, "t") },
		"waiting":   func(b *bank.Bank) { b.MustSubmit("t") },
		"an unexpired hold": func(b *bank.Bank) {
			b.MustHold("t", 60, time.Hour)
			b.SetField("transfers", "t", "lastModified", bank.ThresholdsAgo(10))
		},
		"a scheduled one": func(b *bank.Bank) {
			req := bank.Move("t", "a", "b", 1)
			req.NotBefore = time.Now().Add(time.Hour)
			_, err := b.Submit(b.T.Context(), req)
			require.NoError(b.T, err)
			b.SetField("transfers", "t", "lastModified", bank.ThresholdsAgo(10))
		},
		"nine thresholds old": func(b *bank.Bank) {
			b.LeavePrepared("t", 60)
			b.SetField("transfers", "t", "lastModified", bank.ThresholdsAgo(9))
		},
		"odd IDs": func(b *bank.Bank) {
			for _, id := range bank.OddIDs() {
				b.LeavePrepared(id, 1)
			}
		},
	}
}

// allowed are changes that users may make, and that retention makes.
func allowed() map[string]func(b *bank.Bank) {
	return map[string]func(b *bank.Bank){
		"the payee's document is gone before it is prepared": func(b *bank.Bank) {
			b.StallAt("t", bank.Prepares, bank.Lost, 60)
			b.Remove("accounts", "b")
		},
		"an account that was made by hand": func(b *bank.Bank) { b.Insert("accounts", bson.M{"_id": "z", "balance": 5}) },
		"an account without markers and fence": func(b *bank.Bank) {
			unsetField(b, "accounts", "a", "pending")
			unsetField(b, "accounts", "a", "fence")
		},
		"an account that is open by a word": func(b *bank.Bank) { b.SetField("accounts", "a", "closed", false) },
		"an account that is open by null":   func(b *bank.Bank) { b.SetField("accounts", "a", "closed", nil) },
		"credits that had room each, and not together": func(b *bank.Bank) {
			b.SetField("accounts", "b", "balance", int64(1)<<62-60)
			for _, id := range []string{"t", "u"} {
				b.MustHold(id, 50, time.Hour)
			}
			for _, id := range []string{"t", "u"} {
				_, err := b.Post(b.T.Context(), id)
				require.NoError(b.T, err)
			}
		},
		"the least balance": func(b *bank.Bank) {
			b.Change("accounts", "a", bson.M{"$set": bson.M{"floor": bson.MinKey{}, "balance": -int64(1) << 62}})
		},
		"no floor": func(b *bank.Bank) {
			b.Change("accounts", "a", bson.M{"$set": bson.M{"floor": bson.MinKey{}, "balance": int64(-5)}})
		},
		"a reversal whose original was purged": func(b *bank.Bank) {
			b.MustMove("t", 60)
			_, err := b.Reverse(b.T.Context(), transfer.Reversal{ID: "r", Of: "t", All: true})
			require.NoError(b.T, err)
			b.Remove("transfers", "t")
			b.Insert("transfers.retention", bson.M{"_id": time.Hour.Milliseconds(), "since": bank.ThresholdsAgo(1000)})
		},
		"a reversal under way whose original was purged": func(b *bank.Bank) {
			b.MustMove("t", 60)
			b.Dying(bank.MorePrepares, bank.Lost, func(ctx context.Context, c *transfer.Coordinator) error {
				_, err := c.Reverse(ctx, transfer.Reversal{ID: "r", Of: "t", All: true})
				return err
			})
			b.SetField("transfers", "r", "state", "Committed")
			b.SetField("transfers", "r", "committedAt", time.Now())
			b.Remove("transfers", "t")
		},
		"an order whose ID is a small number": func(b *bank.Bank) {
			b.Insert("orders", bson.M{"_id": int32(5), "status": "unpaid"})
			b.Coordinator = b.NewCoordinator(b.DB, bank.Orders(b.DB)...)
			b.Dying(bank.Decision, bank.Lost, func(ctx context.Context, c *transfer.Coordinator) error {
				req := bank.Payment("t", "o-1", 60)
				req.Effects[0].ID = 5
				_, err := c.Transfer(ctx, req)
				return err
			}, bank.Orders)
			require.Len(b.T, b.Raw("orders")[0]["pending"], 1)
		},
	}
}

// allowedChanges are what UpdateAccount may leave.
func allowedChanges() map[string]func(b *bank.Bank) {
	update := func(b *bank.Bank, change transfer.AccountChange) {
		_, err := b.UpdateAccount(b.T.Context(), "a", change)
		require.NoError(b.T, err)
	}
	yes, no, high := true, false, transfer.Units(101)
	return map[string]func(b *bank.Bank){
		"an account that was frozen, with what is in flight": func(b *bank.Bank) {
			b.LeavePrepared("t", 60)
			update(b, transfer.AccountChange{Frozen: &yes})
		},
		"a floor that was raised above the balance": func(b *bank.Bank) { update(b, transfer.AccountChange{Floor: &high}) },
		"a floor of zero above a debt": func(b *bank.Bank) {
			update(b, transfer.AccountChange{NoFloor: &yes})
			b.MustMove("t", 160)
			update(b, transfer.AccountChange{NoFloor: &no})
		},
	}
}

// An audit has no findings about documents that only look damaged.
func TestAuditLeavesAlone(t *testing.T) {
	t.Parallel()
	all := underWay()
	maps.Copy(all, allowed())
	maps.Copy(all, allowedChanges())
	for name, prepare := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0, 10)
			prepare(b)
			require.Empty(t, b.MustAudit().Findings)
		})
	}
}
