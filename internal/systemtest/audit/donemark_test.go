package audit

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/audit"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// doneDamages damage done marks, or set them where no transfer leaves one.
func doneDamages() []damage {
	done := func(name, account string, amount any, harm func(b *bank.Bank), codes ...audit.Code) damage {
		return damage{name, func(b *bank.Bank) { harm(b); b.SetField("accounts", account, "pending.t%", amount) }, codes, account}
	}
	decimal, _ := bson.ParseDecimal128("60")
	moved := func(b *bank.Bank) { b.MustMove("t", 60) }
	recorded := func(b *bank.Bank) { b.LeaveTraces("t", 60, "Committed", bank.Reserved, bank.Done) }
	return []damage{
		done("a done mark of no transfer", "b", int64(60), func(*bank.Bank) {}, audit.OrphanMarker),
		done("a done mark of a transfer that succeeded", "b", int64(60), moved, audit.FinalMarker),
		done("a done mark of a transfer that failed", "b", int64(1_000_000), func(b *bank.Bank) { mustFail(b, "t") }, audit.FinalMarker),
		done("a done mark of a transfer that waits", "b", int64(1), func(b *bank.Bank) { b.MustSubmit("t") }, audit.EarlyMarker),
		done("a done mark where the transfer has no leg", "c", int64(60), recorded, audit.ForeignMarker),
		done("a done mark of another amount", "b", int64(61), recorded, audit.WrongMarker),
		done("a done mark that is no exact number", "b", 60.0, recorded, audit.WrongMarker),
		done("a done mark of another kind", "b", decimal, recorded, audit.WrongMarker),
		done("a done mark of the one who pays", "a", int64(-60), func(b *bank.Bank) {
			b.LeaveTraces("t", 60, "Committed", bank.Cleared, bank.Done)
		}, audit.WrongDone),
		done("a done mark and a marker", "b", int64(60), func(b *bank.Bank) { b.LeaveRecorded("t", 60) }, audit.WrongDone),
		done("a done mark of a transfer that is rolled back", "b", int64(60), func(b *bank.Bank) {
			b.LeaveTraces("t", 60, "Preparing", bank.Reserved, bank.Unprepared)
			b.Change("transfers", "t", bson.M{"$set": bson.M{"state": "Rollback", "failure": bson.M{"code": "stalled"}}})
		}, audit.WrongDone),
		done("a done mark of a hold", "b", int64(60), func(b *bank.Bank) {
			b.MustHold("t", 60, time.Hour)
			b.SetField("transfers", "t", "state", "Committed")
			b.SetField("transfers", "t", "committedAt", time.Now())
			unsetField(b, "accounts", "b", "pending.t")
		}, audit.WrongDone),
		{"a done mark of a reversal", func(b *bank.Bank) {
			b.MustMove("t", 60)
			_, err := b.Reverse(b.T.Context(), transfer.Reversal{ID: "r", Of: "t", All: true})
			require.NoError(b.T, err)
			b.UntilSuccess(b.Coordinator, "r")
			b.SetBack("r", "Committed")
			b.SetField("transfers", "t", "pending.r%", int64(0))
		}, []audit.Code{audit.WrongDone}, "t"},
		{"a payer without a trace of a transfer that has paid in", func(b *bank.Bank) {
			b.LeaveTraces("t", 60, "Preparing", bank.Cleared, bank.Done)
		}, []audit.Code{audit.MissingMarker}, "t"},
		{"a payer that is gone, of a transfer that has paid in", func(b *bank.Bank) {
			b.LeaveTraces("t", 60, "Preparing", bank.Reserved, bank.Done)
			b.Remove("accounts", "a")
		}, []audit.Code{audit.MissingDocument}, "t"},
		{"a payee without a trace of a transfer that has set an order's fields", func(b *bank.Bank) {
			b.Insert("orders", bank.Order("o-1"))
			b.Coordinator = b.NewCoordinator(b.DB, bank.Orders(b.DB)...)
			b.LeavePayment("t", "o-1", 60, "Preparing", bank.Done)
			unsetField(b, "accounts", "b", "pending.t")
		}, []audit.Code{audit.MissingMarker}, "t"},
		done("a key of no transfer that looks done", "b", int64(60), func(b *bank.Bank) {
			b.SetField("accounts", "b", "pending.%zz%", int64(60))
			b.MustMove("t", 60)
			b.SetBack("t", "Committed")
		}, audit.OrphanMarker),
	}
}

// factStates are the states of a transfer that is committed by fact, and of its traces.
func factStates() []factState {
	return []factState{
		{"Preparing", bank.Unprepared, bank.Unprepared}, {"Preparing", bank.Unprepared, bank.Reserved},
		{"Preparing", bank.Reserved, bank.Unprepared}, {"Preparing", bank.Reserved, bank.Reserved},
		{"Preparing", bank.Reserved, bank.Done}, {"Committed", bank.Reserved, bank.Reserved},
		{"Committed", bank.Reserved, bank.Done}, {"Committed", bank.Reserved, bank.Cleared},
		{"Committed", bank.Cleared, bank.Reserved}, {"Committed", bank.Cleared, bank.Done},
		{"Committed", bank.Cleared, bank.Cleared},
	}
}

type factState struct {
	state        string
	payer, payee bank.Trace
}

// inTransit is what is on no balance: what was taken, less what was paid in.
func (s factState) inTransit() (payers, payees int64) {
	switch {
	case s.state == "Committed" && s.payee == bank.Reserved:
		return 0, 60
	case s.state == "Committed", s.payer == bank.Unprepared:
		return 0, 0
	case s.payee == bank.Done:
		return 60, -60
	}
	return 60, 0
}

// In none of its states has a transfer that is committed by fact a finding, and the
// balances and what is in transit are the same in sum.
func TestAuditOfFacts(t *testing.T) {
	t.Parallel()
	b := bank.New(t)
	for _, s := range factStates() {
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			b.Renew(t, 100, 5)
			b.LeaveTraces("t", 60, s.state, s.payer, s.payee)
			expected := transfer.AuditOptions{Expected: []transfer.ExpectedTotal{{Sum: transfer.Units(105)}}}
			report, err := b.AuditWith(t.Context(), expected)
			require.NoError(t, err)
			require.Empty(t, report.Findings)
			payers, payees := s.inTransit()
			require.Equal(t, transfer.Units(payers+payees), report.InTransit)
			b.RecoverAll()
			report, err = b.AuditWith(t.Context(), expected)
			require.NoError(t, err)
			require.Empty(t, report.Findings)
			b.CheckBooks(bank.Balances(100, 5))
		})
	}
}

// A document that an effect changes may have a done mark.
func TestAuditOfAPaidOrder(t *testing.T) {
	t.Parallel()
	b := bank.NewShop(t, 100, 0)
	for i, s := range []struct {
		state string
		trace bank.Trace
	}{{"Preparing", bank.Reserved}, {"Preparing", bank.Done}, {"Committed", bank.Done}, {"Committed", bank.Cleared}} {
		id := fmt.Sprint("o-", 3+i)
		b.Insert("orders", bank.Order(id))
		b.LeavePayment("t"+id, id, 10, s.state, s.trace)
		require.Empty(t, b.MustAudit().Findings, "%v", s)
	}
	b.RecoverAll(bank.Orders(b.DB)...)
	for i := range 4 {
		b.RequireOrder(fmt.Sprint("o-", 3+i), "paid", false)
	}
	b.CheckBooks(bank.Balances(100, 0))
}

// The sums of each ledger change when a commit is recorded, and at no other moment. Two
// clusters, which are read at two moments, agree in each state.
func TestAuditOfFactsOverTwoServers(t *testing.T) {
	t.Parallel()
	server := bank.SecondServer(t)
	for _, s := range factStates() {
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			t.Parallel()
			b := bank.NewBranches(t, server, 1000, 5)
			b.LeaveAcross("t", s.state, s.payer, s.payee)
			report, err := b.Both.AuditWith(t.Context(), transfer.AuditOptions{Expected: []transfer.ExpectedTotal{{Sum: transfer.Units(1005)}}})
			require.NoError(t, err)
			require.Empty(t, report.Findings)
			payers, payees := s.inTransit()
			here, there := int64(1000), int64(5)
			if s.state == "Committed" {
				here, there = 940, 65
			}
			for i, want := range []struct{ sum, inTransit int64 }{{here, payers}, {there, payees}} {
				l := report.Ledgers[i]
				require.Equal(t, want.inTransit, bank.Units(t, l.InTransit), "ledger %q", l.Ledger)
				require.Equal(t, want.sum, bank.Units(t, l.Total)+bank.Units(t, l.InTransit), "ledger %q", l.Ledger)
			}
			finish(b)
			b.CheckBooks()
		})
	}
}

// What is wrong with a done mark on another cluster is found by a second look.
func TestAuditOfDoneMarksThere(t *testing.T) {
	t.Parallel()
	server := bank.SecondServer(t)
	for want, plant := range map[audit.Code]func(b *bank.Branches){
		audit.OrphanMarker: func(b *bank.Branches) { b.ChangeThere(bson.M{"$set": bson.M{"pending.ghost%": int64(5)}}) },
		audit.FinalMarker: func(b *bank.Branches) {
			b.LeaveAcross("t", "Committed", bank.Reserved, bank.Done)
			finish(b)
			b.ChangeThere(bson.M{"$set": bson.M{"pending.t%": int64(60)}})
		},
		audit.WrongMarker: func(b *bank.Branches) {
			b.LeaveAcross("t", "Preparing", bank.Reserved, bank.Done)
			b.ChangeThere(bson.M{"$set": bson.M{"pending.t%": int64(61)}})
		},
		audit.WrongDone: func(b *bank.Branches) {
			b.LeaveAcross("t", "Preparing", bank.Reserved, bank.Done)
			b.ChangeThere(bson.M{"$set": bson.M{"pending.t": int64(60)}})
		},
	} {
		t.Run(string(want), func(t *testing.T) {
			t.Parallel()
			b := bank.NewBranches(t, server, 1000, 5)
			plant(b)
			report, err := b.Both.Audit(t.Context())
			require.NoError(t, err)
			require.Equal(t, []audit.Code{want}, bank.CodesOf(report), "%v", report.Findings)
			require.Contains(t, report.Findings[0].Detail, "a done mark of ")
		})
	}
}

// A done mark that was right when it was read is no finding when its transfer has ended
// meanwhile.
func TestAuditLooksTwiceAtDoneMarks(t *testing.T) {
	t.Parallel()
	b := bank.NewBranches(t, bank.SecondServer(t), 1000, 5)
	b.LeaveAcross("t", "Committed", bank.Reserved, bank.Done)
	through := bank.Client(t, b.Server.URI(), afterFind("accounts", 1, func() { finish(b) }))
	other := transfer.WithLedger("other", through.Database(b.DB.Name()).Collection("accounts"))
	report, err := b.NewCoordinator(b.DB, other).Audit(t.Context())
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	require.Zero(t, b.Unfinished(), "it has ended meanwhile")
	b.CheckBooks()
}

// The done mark of a transfer that is lost, final or elsewhere is removed, and the
// balance is kept: the amount is on it already. To pay it in once more is refused.
func TestRepairDoneMarks(t *testing.T) {
	t.Parallel()
	for name, plant := range map[string]func(b *bank.Bank) (account string){
		"lost": func(b *bank.Bank) string {
			b.LeaveTraces("t", 60, "Committed", bank.Cleared, bank.Done)
			b.Remove("transfers", "t")
			return "b"
		},
		"final": func(b *bank.Bank) string {
			b.MustMove("t", 60)
			b.SetField("accounts", "b", "pending.t%", int64(60))
			return "b"
		},
		"elsewhere": func(b *bank.Bank) string {
			b.LeaveTraces("t", 60, "Committed", bank.Reserved, bank.Done)
			b.SetField("accounts", "c", "pending.t%", int64(60))
			return "c"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0, 7)
			account := plant(b)
			balance := balanceOf(b, account)
			report := b.MustAudit()
			require.Len(t, report.Findings, 1)
			f := report.Findings[0]
			require.Contains(t, f.Detail, "a done mark of 60")
			require.Contains(t, f.Advice, "RepairMarker with KeepBalance removes")
			require.Equal(t, "t", f.TransferID)
			err := b.RepairMarker(t.Context(), repairOf(f, transfer.PayIn))
			require.ErrorIs(t, err, transfer.ErrNotRepairable)
			require.ErrorContains(t, err, "paid in when the done mark was set")
			require.Equal(t, transfer.Unchanged, transfer.OutcomeOf(err))
			wrong := repairOf(f, transfer.KeepBalance)
			wrong.Amount = transfer.Units(61)
			require.ErrorIs(t, b.RepairMarker(t.Context(), wrong), transfer.ErrNotRepairable)
			fence := fenceOf(b, account)
			require.NoError(t, b.RepairMarker(t.Context(), repairOf(f, transfer.KeepBalance)))
			require.NotEqual(t, fence, fenceOf(b, account), "a late prepare is refused from now on")
			require.Equal(t, balance, balanceOf(b, account))
			require.Empty(t, b.MustAudit().Findings)
			require.ErrorIs(t, b.RepairMarker(t.Context(), repairOf(f, transfer.KeepBalance)), transfer.ErrNotRepairable)
			b.RecoverAll()
			require.Equal(t, map[string]int64{"a": 40, "b": 60, "c": 7}, b.Balances())
		})
	}
}

func fenceOf(b *bank.Bank, account string) any {
	b.T.Helper()
	for _, d := range b.Raw("accounts") {
		if d["_id"] == account {
			return d["fence"]
		}
	}
	return nil
}

// A done mark of a transfer that is under way is the transfer's to remove.
func TestDoneMarksUnderWayAreNotRepaired(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	for i, state := range []string{"Preparing", "Committed"} {
		id := fmt.Sprint("t", i)
		b.LeaveTraces(id, 10, state, bank.Reserved, bank.Done)
		repair := transfer.MarkerRepair{Account: "b", TransferID: id, Amount: transfer.Units(10), Decision: transfer.KeepBalance}
		require.ErrorIs(t, b.RepairMarker(t.Context(), repair), transfer.ErrNotRepairable)
	}
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 0))
}

// Where a lost transfer has left a marker and a done mark, the marker is repaired first.
func TestRepairOfBothMarks(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.Change("accounts", "b", bson.M{"$set": bson.M{"pending.ghost": int64(5), "pending.ghost%": int64(5)}})
	repair := transfer.MarkerRepair{Account: "b", TransferID: "ghost", Amount: transfer.Units(5), Decision: transfer.PayIn}
	require.NoError(t, b.RepairMarker(t.Context(), repair))
	require.Equal(t, []audit.Code{audit.OrphanMarker}, bank.CodesOf(b.MustAudit()))
	require.ErrorIs(t, b.RepairMarker(t.Context(), repair), transfer.ErrNotRepairable)
	repair.Decision = transfer.KeepBalance
	require.NoError(t, b.RepairMarker(t.Context(), repair))
	require.Empty(t, b.MustAudit().Findings)
	require.Equal(t, bank.Balances(100, 5), b.Balances())
}

// A removal of a done mark whose answer is lost is found to be done, by the new fence. If
// that is gone at the next read, nothing shows which process has removed the mark.
func TestRepairOfADoneMarkOverABadWire(t *testing.T) {
	t.Parallel()
	for name, fenced := range map[string]bool{"by its fence": false, "in doubt": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0)
			b.SetField("accounts", "b", "pending.ghost%", int64(5))
			w := &bank.Wire{At: 5, What: bank.AnswerLost}
			failed := event.CommandMonitor{Failed: func(_ context.Context, e *event.CommandFailedEvent) {
				if fenced && e.CommandName == "update" {
					b.SetField("accounts", "b", "fence", bson.NewObjectID())
				}
			}}
			err := b.NewCoordinator(b.Through(w.Client().SetMonitor(&failed))).RepairMarker(t.Context(), transfer.MarkerRepair{
				Account: "b", TransferID: "ghost", Amount: transfer.Units(5), Decision: transfer.KeepBalance,
			})
			require.True(t, w.HasStruck())
			if fenced {
				require.ErrorIs(t, err, transfer.ErrInDoubt)
			} else {
				require.NoError(t, err)
			}
			require.Empty(t, b.MustAudit().Findings)
			require.Equal(t, bank.Balances(100, 0), b.Balances())
		})
	}
}

// On another cluster a participant must have a trace once the snapshot has shown that its
// transfer has paid in. What has ended meanwhile is no finding.
func TestAuditOfWhatHasPaidInHere(t *testing.T) {
	t.Parallel()
	server := bank.SecondServer(t)
	for name, row := range map[string]struct {
		harm      func(b *bank.Branches)
		meanwhile func(b *bank.Branches)
		want      []audit.Code
	}{
		"prepared":   {marked, func(*bank.Branches) {}, []audit.Code{}},
		"unprepared": {func(*bank.Branches) {}, func(*bank.Branches) {}, []audit.Code{audit.MissingMarker}},
		"gone":       {removeThere, func(*bank.Branches) {}, []audit.Code{audit.MissingDocument}},
		"ended":      {marked, finish, []audit.Code{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bank.NewBranches(t, server, 1000, 70)
			_, err := b.Both.Transfer(t.Context(), transfer.Request{ID: "t", Legs: []transfer.Leg{
				{Ledger: "other", Account: "a", Amount: transfer.Units(-60)}, {Account: "a", Amount: transfer.Units(60)},
			}})
			require.NoError(t, err)
			b.UntilSuccess(b.Both, "t")
			b.SetBack("t", "Preparing")
			b.LeaveTrace("t", "a", 60, bank.Done)
			row.harm(b)
			through := b.Through(afterFind("transfers", 1, func() { row.meanwhile(b) }))
			report, err := b.NewCoordinator(through, b.Other()).Audit(t.Context())
			require.NoError(t, err)
			require.Equal(t, row.want, bank.CodesOf(report), "%v", report.Findings)
		})
	}
}

// marked sets the marker that the payer of [TestAuditOfWhatHasPaidInHere] has lost.
func marked(b *bank.Branches) {
	b.T.Helper()
	b.ChangeThere(bson.M{"$set": bson.M{"pending.t": int64(-60)}})
}
