package verbs

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

func lookCalls() map[string]map[string]bad {
	list := func(q transfer.Query) method {
		return func(ctx context.Context, c *transfer.Coordinator) error { return bank.FirstError(c.List(ctx, q)) }
	}
	count := func(q transfer.Query) method {
		return func(ctx context.Context, c *transfer.Coordinator) error { return bank.ErrorOf(c.Count(ctx, q)) }
	}
	accounts := func(q transfer.AccountQuery, says string) bad {
		return bad{func(ctx context.Context, c *transfer.Coordinator) error { return bank.FirstError(c.Accounts(ctx, q)) }, says}
	}
	audit := func(o transfer.AuditOptions, says string) bad {
		return bad{func(ctx context.Context, c *transfer.Coordinator) error { return bank.ErrorOf(c.AuditWith(ctx, o)) }, says}
	}
	return map[string]map[string]bad{
		"Coordinator.Get": withBadIDs(func(ctx context.Context, c *transfer.Coordinator, id string) error {
			return bank.ErrorOf(c.Get(ctx, id))
		}),
		"Coordinator.Wait": withBadIDs(func(ctx context.Context, c *transfer.Coordinator, id string) error {
			return bank.ErrorOf(c.Wait(ctx, id))
		}),
		"Coordinator.Accounts": {
			"negative": accounts(transfer.AccountQuery{Limit: -1}, "the Limit is negative"),
			"ledger":   accounts(transfer.AccountQuery{Ledger: "nowhere"}, `the ledger "nowhere" is not registered`),
			"beyond":   accounts(transfer.AccountQuery{Beyond: "\xff"}, "Beyond: the ID"),
			"currency": accounts(transfer.AccountQuery{Currency: "E\x00R"}, "without NUL"),
		},
		"Coordinator.List":  badQueries(list),
		"Coordinator.Count": badQueries(count),
		"Coordinator.AuditWith": {
			"ledger": audit(transfer.AuditOptions{Expected: []transfer.ExpectedTotal{{Ledgers: []string{"nowhere"}}}}, "not registered"),
			"sum":    audit(transfer.AuditOptions{Expected: []transfer.ExpectedTotal{{}}, Accounts: transfer.IDRange{From: "a"}}, "have no sum"),
			"range":  audit(transfer.AuditOptions{Transfers: transfer.IDRange{From: "b", To: "a"}}, "a range: "),
			"bound":  audit(transfer.AuditOptions{Accounts: transfer.IDRange{From: "\xff"}}, "a range: "),
		},
	}
}

// badQueries are invalid queries of a method.
func badQueries(of func(transfer.Query) method) map[string]bad {
	list := func(q transfer.Query, says string) bad { return bad{of(q), says} }
	metadata := func(key string, value any, says string) bad {
		return list(transfer.Query{Metadata: map[string]any{key: value}}, says)
	}
	far := time.Unix(math.MaxInt64/4, 0)
	return map[string]bad{
		"negative":   list(transfer.Query{Limit: -1}, "the Limit is negative"),
		"state":      list(transfer.Query{States: []transfer.State{"Sesame"}}, "is no state"),
		"ledger":     list(transfer.Query{Ledger: "nowhere"}, `the ledger "nowhere" is not registered`),
		"account":    list(transfer.Query{Account: "\xff"}, "account: the ID"),
		"long":       list(transfer.Query{Account: strings.Repeat("x", 256)}, "more than 255"),
		"after":      list(transfer.Query{After: far}, "After lies beyond the years 0 to 9999"),
		"before":     list(transfer.Query{Before: time.Unix(-1<<40, 0)}, "Before lies beyond the years"),
		"$gt":        metadata("order", bson.M{"$gt": ""}, `"order" wants a value that it must be equal to, and "$gt" is an operator`),
		"$ne":        metadata("order", map[string]any{"$ne": "sesame"}, `"$ne" is an operator`),
		"$in":        metadata("order", bson.D{{Key: "$in", Value: bson.A{"sesame"}}}, `"$in" is an operator`),
		"$regex":     metadata("order", map[string]string{"$regex": "sesame"}, `"$regex" is an operator`),
		"within":     metadata("order", bson.M{"a": bson.A{1, bson.M{"$not": "sesame"}}}, `"$not" is an operator`),
		"$where":     metadata("$where", "sesame", `the metadata key "$where" begins with a dollar`),
		"$or":        metadata("$or", bson.A{bson.M{}}, `the metadata key "$or"`),
		"a path":     metadata("order.$gt", "sesame", `the metadata key "order.$gt" holds a dot`),
		"NUL":        metadata("order\x00", "sesame", `the metadata key "order\x00" holds a NUL`),
		"nameless":   metadata("", "sesame", `the metadata key "" is empty`),
		"bytes":      metadata("\xff", "sesame", `the metadata key "\xff" is not UTF-8`),
		"undefined":  metadata("order", bson.Undefined{}, `"order" wants a value that it must be equal to, and nothing is equal to undefined`),
		"no BSON":    metadata("order", func() {}, "metadata: "),
		"deep":       metadata("order", nestedIn(100, "sesame"), "levels deep"),
		"very large": metadata("order", strings.Repeat("sesame", 1<<20), "more than 65536"),
		"idle":       list(transfer.Query{IdleFor: -1}, "IdleFor is negative"),
		"expires":    list(transfer.Query{ExpiresBefore: far}, "ExpiresBefore lies beyond the years 0 to 9999"),
		"beyond":     list(transfer.Query{Beyond: "\xff"}, "Beyond: the ID"),
		"reverses":   list(transfer.Query{Reverses: strings.Repeat("x", 256)}, "Reverses: the ID"),
	}
}

// badStatements are invalid queries.
func badStatements() map[string]transfer.StatementQuery {
	far := time.Unix(math.MaxInt64/4, 0)
	return map[string]transfer.StatementQuery{
		"the Limit is negative":              {Limit: -1},
		"and the time, At, is missing":       {Beyond: transfer.Entry{TransferID: "t"}},
		"and the TransferID is missing":      {Beyond: transfer.Entry{At: time.Now()}},
		"Beyond: the ID":                     {Beyond: transfer.Entry{TransferID: "\xff", At: time.Now()}},
		"After lies beyond the years":        {After: far},
		"Before lies beyond the years":       {Before: time.Unix(-1<<40, 0)},
		"the time of Beyond lies beyond the": {Beyond: transfer.Entry{TransferID: "t", At: far}},
	}
}

func accountCalls(t *testing.T) map[string]map[string]bad {
	calls := map[string]map[string]bad{}
	for prefix, of := range map[string]func(*transfer.Coordinator) (*transfer.Ledger, error){
		"Coordinator": nil, "Ledger": func(c *transfer.Coordinator) (*transfer.Ledger, error) { return c.Ledger("") },
	} {
		for name, rows := range accountCallsOf(t, of) {
			if prefix == "Coordinator" {
				name = map[string]string{
					"Open": "OpenAccount", "Get": "GetAccount", "Close": "CloseAccount", "Reopen": "ReopenAccount",
					"Update":    "UpdateAccount",
					"Statement": "Statement", "BalanceAt": "BalanceAt",
				}[name]
			}
			calls[prefix+"."+name] = rows
		}
	}
	return calls
}

// eitherOf chooses between the method of a Coordinator and that of a Ledger: the former
// if of is nil.
func eitherOf(of func(*transfer.Coordinator) (*transfer.Ledger, error)) func(
	own func(context.Context, *transfer.Coordinator) error, ledger func(context.Context, *transfer.Ledger) error,
) method {
	return func(own func(context.Context, *transfer.Coordinator) error, ledger func(context.Context, *transfer.Ledger) error) method {
		if of == nil {
			return own
		}
		return func(ctx context.Context, c *transfer.Coordinator) error {
			l, err := of(c)
			if err != nil {
				return err
			}
			return ledger(ctx, l)
		}
	}
}

// accountCallsOf are calls of the methods of a Ledger, or of a Coordinator if of is nil.
func accountCallsOf(t *testing.T, of func(*transfer.Coordinator) (*transfer.Ledger, error)) map[string]map[string]bad {
	t.Helper()
	do := eitherOf(of)
	open := func(a transfer.Account, says string) bad {
		return bad{do(func(ctx context.Context, c *transfer.Coordinator) error { return bank.ErrorOf(c.OpenAccount(ctx, a)) },
			func(ctx context.Context, l *transfer.Ledger) error { return bank.ErrorOf(l.Open(ctx, a)) }), says}
	}
	statement := func(id string, q transfer.StatementQuery) method {
		return do(func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.FirstError(c.Statement(ctx, id, q))
		},
			func(ctx context.Context, l *transfer.Ledger) error { return bank.FirstError(l.Statement(ctx, id, q)) })
	}
	balanceAt := func(id string, at time.Time) method {
		return do(func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.ErrorOf(c.BalanceAt(ctx, id, at))
		},
			func(ctx context.Context, l *transfer.Ledger) error { return bank.ErrorOf(l.BalanceAt(ctx, id, at)) })
	}
	get := func(id string) method {
		return do(func(ctx context.Context, c *transfer.Coordinator) error { return bank.ErrorOf(c.GetAccount(ctx, id)) },
			func(ctx context.Context, l *transfer.Ledger) error { return bank.ErrorOf(l.Get(ctx, id)) })
	}
	shut := func(id string) method {
		return do(func(ctx context.Context, c *transfer.Coordinator) error { return c.CloseAccount(ctx, id) },
			func(ctx context.Context, l *transfer.Ledger) error { return l.Close(ctx, id) })
	}
	reopen := func(id string) method {
		return do(func(ctx context.Context, c *transfer.Coordinator) error { return c.ReopenAccount(ctx, id) },
			func(ctx context.Context, l *transfer.Ledger) error { return l.Reopen(ctx, id) })
	}
	update := func(id string, change transfer.AccountChange) method {
		return do(func(ctx context.Context, c *transfer.Coordinator) error {
			return bank.ErrorOf(c.UpdateAccount(ctx, id, change))
		},
			func(ctx context.Context, l *transfer.Ledger) error { return bank.ErrorOf(l.Update(ctx, id, change)) })
	}
	ids := func(call func(id string) method) map[string]bad {
		return withBadIDs(func(ctx context.Context, c *transfer.Coordinator, id string) error { return call(id)(ctx, c) })
	}
	statements := ids(func(id string) method { return statement(id, transfer.StatementQuery{}) })
	for says, q := range badStatements() {
		statements[says] = bad{statement("a", q), says}
	}
	updates := ids(func(id string) method { return update(id, freezing()) })
	for says, change := range badChanges(t) {
		updates[says] = bad{update("a", change), says}
	}
	return map[string]map[string]bad{
		"Update": updates,
		"Get":    ids(get), "Close": ids(shut), "Reopen": ids(reopen), "Statement": statements,
		"BalanceAt": and(ids(func(id string) method { return balanceAt(id, time.Now()) }), map[string]bad{
			"zero": {balanceAt("a", time.Time{}), "the zero time is no instant"},
			"far":  {balanceAt("a", time.Unix(math.MaxInt64/4, 0)), "the instant lies beyond the years"},
		}),
		"Open": badAccounts(t, open),
	}
}

// badChanges are changes that can't be made to an account.
func badChanges(t *testing.T) map[string]transfer.AccountChange {
	floor := func(a transfer.Amount) transfer.AccountChange { return transfer.AccountChange{Floor: &a} }
	yes, zero := true, transfer.Units(0)
	return map[string]transfer.AccountChange{
		"would have a Floor and NoFloor": {Floor: &zero, NoFloor: &yes},
		"must lie within":                floor(transfer.Units(math.MinInt64)),
		"at most 12 digits":              floor(fine(t, "0.0000000000001")),
		`the metadata key "$x"`:          {Metadata: map[string]any{"$x": "sesame"}},
		"metadata: ":                     {Metadata: map[string]any{"x": make(chan int)}},
	}
}

// badAccounts are accounts that can't be opened.
func badAccounts(t *testing.T, open func(transfer.Account, string) bad) map[string]bad {
	units, half := transfer.Units, bank.Decimal(t, "0.5")
	return map[string]bad{
		"empty":    open(transfer.Account{}, "the ID is empty"),
		"bytes":    open(transfer.Account{ID: "\xff"}, "not valid UTF-8"),
		"ledger":   open(transfer.Account{ID: "new", Ledger: "other"}, `is meant for ledger "other"`),
		"closed":   open(transfer.Account{ID: "new", Closed: true}, "can't be opened as a closed one"),
		"currency": open(transfer.Account{ID: "new", Currency: "E\x00R"}, "without NUL"),
		"long":     open(transfer.Account{ID: "new", Currency: strings.Repeat("€", 22)}, "a currency has at most 64 bytes"),
		"too much": open(transfer.Account{ID: "new", Balance: units(math.MaxInt64)}, "must lie within"),
		"floor":    open(transfer.Account{ID: "new", Floor: units(math.MinInt64)}, "must lie within"),
		"places":   open(transfer.Account{ID: "new", Balance: fine(t, "0.0000000000001")}, "at most 12 digits"),
		"both":     open(transfer.Account{ID: "new", NoFloor: true, Floor: units(-1)}, "has a Floor and NoFloor: give one of them"),
		"kind":     open(transfer.Account{ID: "new", Balance: units(1), Floor: half}, "not of its balance's kind"),
		"below":    open(transfer.Account{ID: "new", Balance: units(1), Floor: units(2)}, "is below its floor"),
		"negative": open(transfer.Account{ID: "new", Balance: units(-1)}, "is below its floor"),
		"metadata": open(transfer.Account{ID: "new", Metadata: map[string]any{"$x": "sesame"}}, `the metadata key "$x"`),
		"no BSON":  open(transfer.Account{ID: "new", Metadata: map[string]any{"x": make(chan int)}}, "metadata: "),
	}
}

func repairCalls() map[string]map[string]bad {
	repair := func(r transfer.MarkerRepair, says string) bad {
		return bad{func(ctx context.Context, c *transfer.Coordinator) error { return c.RepairMarker(ctx, r) }, says}
	}
	with := func(change func(*transfer.MarkerRepair), says string) bad {
		r := transfer.MarkerRepair{Account: "a", TransferID: "new", Amount: transfer.Units(1), Decision: transfer.KeepBalance}
		change(&r)
		return repair(r, says)
	}
	return map[string]map[string]bad{
		"Coordinator.RepairMarker": {
			"ledger":   with(func(r *transfer.MarkerRepair) { r.Ledger = "nowhere" }, "not registered"),
			"account":  with(func(r *transfer.MarkerRepair) { r.Account = "" }, "account: the ID is empty"),
			"transfer": with(func(r *transfer.MarkerRepair) { r.TransferID = "" }, "transfer: the ID is empty"),
			"decision": with(func(r *transfer.MarkerRepair) { r.Decision = 0 }, "wants a decision"),
			"unknown":  with(func(r *transfer.MarkerRepair) { r.Decision = 9 }, "wants a decision"),
			"too much": with(func(r *transfer.MarkerRepair) { r.Amount = transfer.Units(1 << 50) }, "no transfer leaves a marker of that amount"),
			"reason":   with(func(r *transfer.MarkerRepair) { r.Reason = strings.Repeat("x", 5000) }, "a reason has at most"),
		},
		"Coordinator.RepairPending": and(withBadIDs(func(ctx context.Context, c *transfer.Coordinator, id string) error {
			return c.RepairPending(ctx, "", id)
		}), map[string]bad{"ledger": {func(ctx context.Context, c *transfer.Coordinator) error {
			return c.RepairPending(ctx, "nowhere", "a")
		}, "not registered"}}),
		"Coordinator.Redeliver": withBadIDs(func(ctx context.Context, c *transfer.Coordinator, id string) error {
			return c.Redeliver(ctx, id)
		}),
		"Coordinator.RepairOpen": withBadIDs(func(ctx context.Context, c *transfer.Coordinator, id string) error {
			return c.RepairOpen(ctx, id)
		}),
	}
}
