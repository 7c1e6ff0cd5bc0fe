package audit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/audit"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

func unsetField(b *bank.Bank, collection string, id any, field string) {
	b.T.Helper()
	b.Change(collection, id, bson.M{"$unset": bson.M{field: ""}})
}

// mustFail runs a transfer that is refused.
func mustFail(b *bank.Bank, id string) {
	b.T.Helper()
	_, err := b.Transfer(b.T.Context(), bank.Move(id, "a", "b", 1_000_000))
	require.ErrorIs(b.T, err, transfer.ErrInsufficientFunds)
}

// damage is a way to damage stored documents, and what an audit finds then.
type damage struct {
	name  string
	plant func(b *bank.Bank)
	codes []audit.Code // sorted
	id    string       // the ID in the findings
}

// damages are all kinds of damage. Each begins with 100 on a, nothing on b and 10 on c.
func damages() []damage {
	return slices.Concat(
		markerDamages(), doneDamages(), accountDamages(), transferDamages(), holdDamages(), reversalDamages(), effectDamages(),
		stalledDamages(), timeDamages(), outboxDamages(),
	)
}

func markerDamages() []damage {
	return []damage{
		{"a marker of no transfer", func(b *bank.Bank) {
			b.SetField("accounts", "a", "pending.ghost", int64(-5))
		}, []audit.Code{audit.OrphanMarker}, "a"},
		{"a key of no transfer", func(b *bank.Bank) {
			b.SetField("accounts", "a", "pending.%zz", int64(-5))
		}, []audit.Code{audit.OrphanMarker}, "a"},
		{"a transfer that was lost", func(b *bank.Bank) {
			b.LeaveRecorded("t", 60)
			b.Remove("transfers", "t")
			unsetField(b, "accounts", "b", "pending.t")
		}, []audit.Code{audit.OrphanMarker}, "a"},
		{"a marker of a transfer that succeeded", func(b *bank.Bank) {
			b.MustMove("t", 60)
			b.SetField("accounts", "b", "pending.t", int64(60))
		}, []audit.Code{audit.FinalMarker}, "b"},
		{"a marker of a transfer that failed", func(b *bank.Bank) {
			mustFail(b, "t")
			b.SetField("accounts", "b", "pending.t", int64(1_000_000))
		}, []audit.Code{audit.FinalMarker}, "b"},
		{"a marker of a transfer that waits", func(b *bank.Bank) {
			b.MustSubmit("t")
			b.SetField("accounts", "a", "pending.t", int64(-1))
		}, []audit.Code{audit.EarlyMarker}, "a"},
		{"a marker where the transfer has no leg", func(b *bank.Bank) {
			b.LeavePrepared("t", 60)
			b.SetField("accounts", "c", "pending.t", int64(60))
		}, []audit.Code{audit.ForeignMarker}, "c"},
		{"a marker of another amount", func(b *bank.Bank) {
			b.LeavePrepared("t", 60)
			b.SetField("accounts", "b", "pending.t", int64(61))
		}, []audit.Code{audit.WrongMarker}, "b"},
		{"a marker that is no exact number", func(b *bank.Bank) {
			b.LeavePrepared("t", 60)
			b.SetField("accounts", "b", "pending.t", 60.0)
		}, []audit.Code{audit.WrongMarker}, "b"},
		{"a marker of another kind", func(b *bank.Bank) {
			b.LeavePrepared("t", 60)
			b.SetField("accounts", "b", "pending.t", decimalOf(b.T, "60"))
		}, []audit.Code{audit.WrongMarker}, "b"},
		{"a balance that has become a decimal under its marker", func(b *bank.Bank) {
			b.LeavePrepared("t", 60)
			b.SetField("accounts", "b", "balance", decimalOf(b.T, "0"))
		}, []audit.Code{audit.WrongMarker}, "b"},
		{"a marker that has become a decimal with its balance", func(b *bank.Bank) {
			b.LeavePrepared("t", 60)
			b.Change("accounts", "b", bson.M{"$set": bson.M{"pending.t": decimalOf(b.T, "60"), "balance": decimalOf(b.T, "0")}})
		}, []audit.Code{audit.WrongMarker}, "b"},
		{"an account that was committed and is gone", func(b *bank.Bank) {
			b.LeaveRecorded("t", 60)
			b.Remove("accounts", "b")
		}, []audit.Code{audit.MissingDocument}, "t"},
	}
}

// outboxDamages are those of what is stored for events.
func outboxDamages() []damage {
	now := bson.NewDateTimeFromTime(time.Now())
	event := func(changes bson.M) bson.A {
		e := bson.M{"kind": "succeeded", "at": now, "due": now}
		maps.Copy(e, changes)
		return bson.A{e}
	}
	with := func(name string, fields bson.M) damage {
		return damage{name, func(b *bank.Bank) {
			b.MustMove("t", 60)
			b.Change("transfers", "t", bson.M{"$set": fields})
		}, []audit.Code{audit.WrongOutbox}, "t"}
	}
	return []damage{
		with("an outbox that is a text", bson.M{"outbox": "succeeded"}),
		with("an outbox without an event", bson.M{"outbox": bson.A{}}),
		with("an event of no kind", bson.M{"outbox": event(bson.M{"kind": "moved"})}),
		with("an event without a time", bson.M{"outbox": event(bson.M{"at": "today"})}),
		with("an event that is never due", bson.M{"outbox": event(bson.M{"due": nil})}),
		with("a purge that nobody dates", bson.M{"keepUntil": now}),
		with("a purge before the delivery", bson.M{"outbox": event(nil), "purgeAt": bson.NewDateTimeFromTime(time.Now().Add(time.Hour))}),
	}
}

func decimalOf(t *testing.T, text string) bson.Decimal128 {
	t.Helper()
	d, err := bson.ParseDecimal128(text)
	require.NoError(t, err)
	return d
}

func accountDamages() []damage {
	field := func(name, field string, value any, codes ...audit.Code) damage {
		return damage{name, func(b *bank.Bank) { b.SetField("accounts", "a", field, value) }, codes, "a"}
	}
	decimals, _ := bson.ParseDecimal128("1.0000000000001")
	decimal, _ := bson.ParseDecimal128("1.5")
	large, _ := bson.ParseDecimal128("1E+22")
	return []damage{
		field("an overdrawn account", "balance", int64(-1), audit.BelowFloor),
		field("a balance that is a double", "balance", 100.0, audit.WrongBalance),
		field("a balance that is a text", "balance", "100", audit.WrongBalance),
		field("a balance that is null", "balance", nil, audit.WrongBalance),
		field("a balance of too many digits", "balance", decimals, audit.WrongBalance),
		field("a decimal balance beyond the limits", "balance", large, audit.WrongBalance),
		field("a debt beyond the limits", "balance", -int64(1)<<62-1, audit.WrongBalance, audit.BelowFloor),
		field("a floor that is a text", "floor", "0", audit.WrongFloor),
		field("a floor that is a decimal", "floor", decimal, audit.WrongFloor),
		field("a currency that is a number", "currency", 5, audit.WrongCurrency),
		field("markers in an array", "pending", bson.A{}, audit.WrongPending),
		field("markers that are null", "pending", nil, audit.WrongPending),
		field("markers in a text", "pending", "t", audit.WrongPending),
		field("a closed that is a text", "closed", "true", audit.WrongClosed),
		field("a closed that is a number", "closed", 1, audit.WrongClosed),
		field("a closed in an array", "closed", bson.A{true}, audit.WrongClosed),
		field("a frozen that is a text", "frozen", "true", audit.WrongFrozen),
		field("a frozen that is a number", "frozen", 1, audit.WrongFrozen),
		field("a frozen in an array", "frozen", bson.A{true}, audit.WrongFrozen),
		{"an account of another kind of ID", func(b *bank.Bank) {
			b.Insert("accounts", bson.M{"_id": 5, "balance": int64(1)})
		}, []audit.Code{audit.WrongID}, `{"$numberInt":"5"}`},
		{"an account that was closed by hand", func(b *bank.Bank) {
			b.LeavePrepared("t", 60)
			b.SetField("accounts", "a", "closed", true)
		}, []audit.Code{audit.ClosedMarker}, "a"},
	}
}

func transferDamages() []damage {
	done := func(name string, harm func(b *bank.Bank), codes ...audit.Code) damage {
		return damage{name, func(b *bank.Bank) { b.MustMove("t", 60); harm(b) }, codes, "t"}
	}
	under := func(name string, at bank.Step, harm func(b *bank.Bank), codes ...audit.Code) damage {
		state := map[bank.Step]string{bank.Decision: "Preparing", bank.Settles: "Committed"}[at]
		return damage{name, func(b *bank.Bank) { b.LeaveTraces("t", 60, state, bank.Reserved, bank.Reserved); harm(b) }, codes, "t"}
	}
	set := func(field string, value any) func(b *bank.Bank) {
		return func(b *bank.Bank) { b.SetField("transfers", "t", field, value) }
	}
	unset := func(field string) func(b *bank.Bank) {
		return func(b *bank.Bank) { unsetField(b, "transfers", "t", field) }
	}
	return []damage{
		{"a document that is no transfer", func(b *bank.Bank) { b.Insert("transfers", bson.M{"_id": "t", "state": 5}) },
			[]audit.Code{audit.Unreadable}, "t"},
		done("an unknown state", set("state", "Frozen"), audit.WrongState),
		under("a claim without an epoch", bank.Decision, set("epoch", 0), audit.WrongEpoch),
		under("an epoch that is a double", bank.Decision, set("epoch", 1.0), audit.WrongEpoch),
		under("a takeover that has not raised the epoch", bank.Decision, set("attempts", 1), audit.WrongEpoch),
		under("a claim by nobody", bank.Decision, unset("owner"), audit.WrongEpoch),
		under("an unfinished transfer that recovery can't find", bank.Settles, unset("open"), audit.WrongOpen),
		under("an unfinished transfer whose flag is a number", bank.Settles, set("open", 1), audit.WrongOpen),
		done("a transfer whose prepares were answered with a number", set("clean", 1), audit.WrongHold),
		done("a final transfer that looks unfinished", set("open", true), audit.WrongOpen),
		done("a success without a commit", unset("committedAt"), audit.WrongCommit),
		under("a commit that was not decided", bank.Decision, set("committedAt", time.Now()), audit.WrongCommit),
		done("a success that has failed", set("failure", bson.M{"code": "x"}), audit.WrongFailure),
		{"a failure without a reason", func(b *bank.Bank) { mustFail(b, "t"); unsetField(b, "transfers", "t", "failure") },
			[]audit.Code{audit.WrongFailure}, "t"},
		done("legs that were changed", func(b *bank.Bank) {
			b.Change("transfers", "t", bson.M{"$set": bson.M{"legs.0.amount": int64(-61), "legs.1.amount": int64(61)}})
		}, audit.WrongDigest),
		done("legs that don't sum to zero", set("legs.1.amount", int64(61)), audit.WrongLegs, audit.WrongDigest),
		done("a leg in another currency", set("legs.1.currency", "USD"), audit.WrongLegs, audit.WrongDigest),
		done("two legs of one account", func(b *bank.Bank) {
			b.Change("transfers", "t", bson.M{"$set": bson.M{"legs.1.account": "a"}})
		}, audit.WrongLegs, audit.WrongDigest),
	}
}

func holdDamages() []damage {
	held := func(name string, harm func(b *bank.Bank), codes ...audit.Code) damage {
		return damage{name, func(b *bank.Bank) { b.MustHold("t", 60, time.Hour); harm(b) }, codes, "t"}
	}
	posted := func(name string, harm func(b *bank.Bank), codes ...audit.Code) damage {
		return held(name, func(b *bank.Bank) {
			_, err := b.Post(b.T.Context(), "t", transfer.PostAmount(transfer.Units(20)))
			require.NoError(b.T, err)
			b.UntilSuccess(b.Coordinator, "t")
			harm(b)
		}, codes...)
	}
	return []damage{
		held("a hold by a number", func(b *bank.Bank) { b.SetField("transfers", "t", "hold", 1) }, audit.WrongHold),
		held("a hold that is held by a number", func(b *bank.Bank) { b.SetField("transfers", "t", "held", 1) }, audit.WrongHold),
		held("a hold whose marker is gone", func(b *bank.Bank) { unsetField(b, "accounts", "a", "pending.t") }, audit.MissingMarker),
		held("a hold whose account is gone", func(b *bank.Bank) { b.Remove("accounts", "a") }, audit.MissingDocument),
		held("money is held by what is no hold", func(b *bank.Bank) {
			unsetField(b, "transfers", "t", "hold")
		}, audit.WrongHold, audit.WrongDigest),
		held("a hold without an end", func(b *bank.Bank) { unsetField(b, "transfers", "t", "expiresAt") }, audit.WrongHold),
		held("a part of it was posted before the decision", func(b *bank.Bank) {
			b.SetField("transfers", "t", "posted", int64(1))
		}, audit.WrongHold),
		posted("more was posted than was held", func(b *bank.Bank) { b.SetField("transfers", "t", "posted", int64(61)) }, audit.WrongHold),
		posted("all is said to be a part", func(b *bank.Bank) { b.SetField("transfers", "t", "posted", int64(60)) }, audit.WrongHold),
		posted("less than nothing was posted", func(b *bank.Bank) { b.SetField("transfers", "t", "posted", int64(-1)) }, audit.WrongHold),
		posted("a hold was posted that never held", func(b *bank.Bank) { unsetField(b, "transfers", "t", "held") }, audit.WrongHold),
	}
}

func reversalDamages() []damage {
	pair := func(name string, harm func(b *bank.Bank), id string, codes ...audit.Code) damage {
		return damage{name, func(b *bank.Bank) {
			b.MustMove("t", 60)
			_, err := b.Reverse(b.T.Context(), transfer.Reversal{ID: "r", Of: "t", All: true})
			require.NoError(b.T, err)
			b.UntilSuccess(b.Coordinator, "r")
			harm(b)
		}, append(codes, audit.WrongReversal), id}
	}
	return []damage{
		pair("a reversal that is lost", func(b *bank.Bank) { b.Remove("transfers", "r") }, "t"),
		pair("an original that is lost", func(b *bank.Bank) { b.Remove("transfers", "t") }, "r"),
		pair("a reversal that the original doesn't know", func(b *bank.Bank) { unsetField(b, "transfers", "t", "reversedBy") }, "r"),
		pair("an original that has failed", func(b *bank.Bank) {
			b.Change("transfers", "t", bson.M{
				"$set": bson.M{"state": "Fail", "failure": bson.M{"code": "cancelled"}}, "$unset": bson.M{"committedAt": ""},
			})
		}, "t"),
		pair("an original that was reversed by another one", func(b *bank.Bank) {
			b.MustMove("x", 1)
			b.SetField("transfers", "x", "reversedBy", "r")
		}, "x"),
		{"a reversal's marker that is left over", func(b *bank.Bank) {
			b.MustMove("t", 60)
			b.SetField("transfers", "t", "pending.ghost", int64(0))
		}, []audit.Code{audit.OrphanMarker}, "t"},
		{"a reversal's marker that bears an amount", func(b *bank.Bank) {
			b.MustMove("t", 60)
			b.Dying(bank.MorePrepares, bank.Lost, func(ctx context.Context, c *transfer.Coordinator) error {
				_, err := c.Reverse(ctx, transfer.Reversal{ID: "r", Of: "t", All: true})
				return err
			})
			b.SetField("transfers", "t", "pending.r", int64(60))
		}, []audit.Code{audit.WrongMarker}, "t"},
	}
}

// effectDamages damage orders: see NewShop.
func effectDamages() []damage {
	paying := func(name, state string, harm func(b *bank.Bank), id string, codes ...audit.Code) damage {
		return damage{name, func(b *bank.Bank) {
			b.Insert("orders", bank.Order("o-1"))
			b.Coordinator = b.NewCoordinator(b.DB, bank.Orders(b.DB)...)
			b.LeavePayment("t", "o-1", 60, state, bank.Reserved)
			harm(b)
		}, codes, id}
	}
	return []damage{
		paying("an order that was committed and is gone", "Committed", func(b *bank.Bank) {
			b.Remove("orders", "o-1")
		}, "t", audit.MissingDocument),
		paying("an order with a marker that bears an amount", "Preparing", func(b *bank.Bank) {
			b.SetField("orders", "o-1", "pending.t", int64(60))
		}, "o-1", audit.WrongMarker),
		paying("an order that is reserved for nobody", "Preparing", func(b *bank.Bank) {
			b.SetField("orders", "o-1", "pending.ghost", int64(0))
		}, "o-1", audit.OrphanMarker),
		paying("an order whose markers are in an array", "Preparing", func(b *bank.Bank) {
			b.SetField("orders", "o-1", "pending", bson.A{})
		}, "o-1", audit.WrongPending),
	}
}

func stalledDamages() []damage {
	return []damage{
		{"a transfer that stands still", func(b *bank.Bank) {
			b.LeavePrepared("t", 60)
			b.SetField("transfers", "t", "lastModified", bank.ThresholdsAgo(10))
		}, []audit.Code{audit.Stalled}, "t"},
		{"a hold that is not voided", func(b *bank.Bank) {
			b.MustHold("t", 60, time.Hour)
			b.Change("transfers", "t", bson.M{"$set": bson.M{"lastModified": bank.ThresholdsAgo(10), "expiresAt": bank.ThresholdsAgo(10)}})
		}, []audit.Code{audit.Stalled}, "t"},
		{"a transfer that nobody takes", func(b *bank.Bank) {
			b.MustSubmit("t")
			b.SetField("transfers", "t", "lastModified", bank.ThresholdsAgo(10))
		}, []audit.Code{audit.Unclaimed}, "t"},
	}
}

// An audit finds each kind of damage, and nothing else.
// The finding names the place, the figures and the next step.
func TestAuditFindsDamage(t *testing.T) {
	t.Parallel()
	found := map[audit.Code]bool{audit.WrongTotal: true, audit.LongTotal: true} // these have tests of their own
	for _, d := range damages() {
		for _, code := range d.codes {
			found[code] = true
		}
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			b := bank.New(t, 100, 0, 10)
			require.Empty(t, b.MustAudit().Findings)
			d.plant(b)
			report := b.MustAudit()
			want := slices.Clone(d.codes)
			slices.Sort(want)
			require.Equal(t, want, bank.CodesOf(report), "%v", report.Findings)
			for _, f := range report.Findings {
				require.Equal(t, d.id, f.ID)
				require.Contains(t, f.Detail, fmt.Sprintf("%q", d.id))
				require.NotEmpty(t, f.Advice)
				require.True(t, f.TransferID != "" || f.Account != "")
			}
		})
	}
	for _, code := range audit.Codes() {
		require.True(t, found[code], "nothing is damaged so that %s is found", code)
	}
}

// A finding about a document that is not an account has advice that fits there, since no
// verb repairs it.
func TestAuditAdvisesForOtherDocuments(t *testing.T) {
	t.Parallel()
	b := bank.NewShop(t, 100, 0)
	_, err := b.Transfer(t.Context(), bank.Payment("paid", "o-1", 10))
	require.NoError(t, err)
	_, err = b.Reverse(t.Context(), transfer.Reversal{ID: "back", Of: "paid", All: true})
	require.NoError(t, err)
	b.LeaveRecorded("t", 10)
	for _, row := range []struct {
		collection, id, field string
		value                 any
		code                  audit.Code
	}{
		{"orders", "o-1", "pending.ghost", int64(0), audit.OrphanMarker},
		{"orders", "o-1", "pending.paid", int64(0), audit.FinalMarker},
		{"orders", "o-1", "pending.t", int64(0), audit.ForeignMarker},
		{"orders", "o-1", "pending", bson.A{}, audit.WrongPending},
		{"transfers", "paid", "pending.ghost", int64(0), audit.OrphanMarker},
		{"transfers", "paid", "pending.back", int64(0), audit.FinalMarker},
		{"transfers", "paid", "pending.t", int64(0), audit.ForeignMarker},
		{"transfers", "paid", "pending", bson.A{}, audit.WrongPending},
	} {
		unsetField(b, row.collection, row.id, "pending")
		b.SetField(row.collection, row.id, row.field, row.value)
		report := b.MustAudit()
		require.Equal(t, []audit.Code{row.code}, bank.CodesOf(report), row)
		require.Contains(t, report.Findings[0].Advice, "$unset", row)
		require.NotContains(t, report.Findings[0].Advice, "Repair", row)
		unsetField(b, row.collection, row.id, row.field)
		require.Empty(t, b.MustAudit().Findings, "the advice was followed: %v", row)
	}
	b.RecoverAll(bank.Orders(b.DB)...)
	b.CheckBooks(bank.Balances(100, 0))
}
