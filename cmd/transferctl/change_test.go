package main

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// What changes data asks on a terminal, and does nothing unless the answer is yes. Where
// nobody can be asked it demands --yes.
func TestChangesAreAskedFor(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.MustHold("held", 20, time.Hour)
	b.MustMove("paid", 30)
	changes := [][]string{
		{"cancel", "held"}, {"reverse", "--of", "paid", "--id", "back", "--amount", "10"},
		{"repair", "open", "paid"}, {"repair", "pending", "--account", "a"},
		{"repair", "marker", "--account", "a", "--transfer", "held", "--amount", "-20", "--decision", "pay-in"},
		{"freeze", "a"},
	}
	d := atDesk(t, b.DB)
	for _, args := range changes {
		require.Contains(t, d.run(args...).requires(exitUsage).err, "say --yes", args)
	}
	d.seated = true
	for _, answer := range []string{"", "no\n", "y\n"} {
		d.answer = answer
		for _, args := range changes {
			a := d.run(args...).requires(exitFailed)
			require.Contains(t, a.err, "Go on? Type yes: ", args)
			require.Contains(t, a.err, "nothing was done", args)
		}
	}
	b.RequireStanding("a", 50, 70, 0)

	d.answer = "yes\n"
	a := d.run("cancel", "held", "--reason", "a mistake").requires(exitDone)
	require.Contains(t, a.err, `cancel "held", which is Preparing (held): a -20, b +20`)
	require.Contains(t, a.out, "held  Fail")
	rec, err := b.Get(t.Context(), "held")
	require.NoError(t, err)
	require.Contains(t, rec.Failure.Message, "a mistake")
	b.CheckBooks(bank.Balances(100, 0))
	require.Empty(t, b.MustAudit().Findings)
}

// A reversal takes back a part, then the rest, then nothing more; a repeated one has the
// outcome that it had.
func TestReverse(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.MustMove("paid", 30)
	d := atDesk(t, b.DB)
	for range 2 {
		part := d.run("reverse", "--of", "paid", "--id", "part", "--amount", "10", "--yes", "--json").done().document()
		require.Equal(t, "Success", part["state"])
		require.Equal(t, "paid", part["reverses"])
	}
	require.Contains(t, d.run("reverse", "--of", "paid", "--id", "rest", "--all", "--yes").done().out, "b -20")
	more := d.run("reverse", "--of", "paid", "--id", "more", "--all", "--yes", "--json").requires(exitFailed)
	require.Contains(t, more.err, `"outcome":"Unchanged"`)
	require.Empty(t, more.out)
	d.run("reverse", "--of", "nothing", "--id", "x", "--all", "--yes").requires(exitNotFound)
	for _, args := range [][]string{
		{"--of", "paid", "--id", "x"}, {"--of", "paid", "--all"}, {"--of", "paid", "--id", "x", "--all", "--amount", "1"},
		{"--of", "paid", "--id", "x", "--amount", "1.5"}, {"--of", "paid", "--id", "x", "--amount", "-1"},
	} {
		d.run(append([]string{"reverse", "--yes"}, args...)...).requires(exitUsage)
	}
	b.CheckBooks(bank.Balances(100, 0))
	require.Empty(t, b.MustAudit().Findings)
}

// reversible is a bank with something to reverse, or not to.
func reversible(t *testing.T) *bank.Bank {
	t.Helper()
	b := bank.New(t, 100, 0)
	b.MustMove("paid", 30)
	b.MustHold("posted", 50, time.Hour)
	_, err := b.Post(t.Context(), "posted", transfer.PostAmount(transfer.Units(20)))
	require.NoError(t, err)
	_, err = b.Transfer(t.Context(), bank.Move("failed", "b", "a", 100_000))
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	b.MustHold("held", 5, time.Hour)
	b.MustSubmit("due")
	_, err = b.OpenAccount(t.Context(), transfer.Account{ID: "c"})
	require.NoError(t, err)
	_, err = b.Transfer(t.Context(), transfer.Request{ID: "three", Legs: []transfer.Leg{
		{Account: "a", Amount: transfer.Units(-3)}, {Account: "b", Amount: transfer.Units(1)}, {Account: "c", Amount: transfer.Units(2)},
	}})
	require.NoError(t, err)
	return b
}

// The question says what was moved, what of it was taken back, and what will be.
func TestQuestionsTellTheTruth(t *testing.T) {
	t.Parallel()
	b := reversible(t)
	d := atDesk(t, b.DB)
	d.seated, d.answer = true, "no\n"
	asks := func(want string, args ...string) {
		t.Helper()
		asked := d.run(args...).requires(exitFailed)
		require.Contains(t, asked.err, want+"\nGo on? Type yes: ")
		require.Contains(t, asked.err, "nothing was done")
	}
	asks(`take back 30 of "paid", which moved a -30, b +30; the reversal is "x"`, "reverse", "--of", "paid", "--id", "x", "--all")
	asks(`take back 10 of "paid", which moved a -30, b +30; the reversal is "x"`, "reverse", "--of", "paid", "--id", "x", "--amount", "10")
	asks(`take back 20 of "posted", which moved a -20, b +20; the reversal is "x"`, "reverse", "--of", "posted", "--id", "x", "--all")
	asks(`take back all of "three", which moved a -3, b +1, c +2; the reversal is "x"`, "reverse", "--of", "three", "--id", "x", "--all")
	require.NotContains(t, d.run("reverse", "--of", "three", "--id", "x", "--amount", "1").requires(exitUsage).err, "Go on?")
	asks(`cancel "held", which is Preparing (held): a -5, b +5`, "cancel", "held")

	_, err := b.Reverse(t.Context(), transfer.Reversal{ID: "part", Of: "paid", Amount: transfer.Units(10)})
	require.NoError(t, err)
	_, err = b.Reverse(t.Context(), transfer.Reversal{ID: "some", Of: "three", Legs: []transfer.Leg{
		{Account: "a", Amount: transfer.Units(1)}, {Account: "b", Amount: transfer.Units(-1)},
	}})
	require.NoError(t, err)
	asks(`take back 20 of "paid", which moved a -30, b +30, and of which 10 was taken back before; the reversal is "x"`,
		"reverse", "--of", "paid", "--id", "x", "--all")
	asks(`take back what is left of "three", which moved a -3, b +1, c +2, and of which 1 reversal took back a part; the reversal is "x"`,
		"reverse", "--of", "three", "--id", "x", "--all")
	b.CancelWaiting()
	d.run("cancel", "held", "--yes").done()
	b.CheckBooks(map[string]int64{"a": 100, "b": 0, "c": 0})
	require.Empty(t, b.MustAudit().Findings)
}

// Where nothing can be moved back or cancelled, nothing is asked.
func TestNothingIsAskedInVain(t *testing.T) {
	t.Parallel()
	b := reversible(t)
	for _, of := range []string{"posted", "three"} {
		_, err := b.Reverse(t.Context(), transfer.Reversal{ID: "all-" + of, Of: of, All: true})
		require.NoError(t, err)
	}
	d := atDesk(t, b.DB)
	d.seated, d.answer = true, "no\n"
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"reverse", "--of", "failed", "--all"}, `transfer "failed": not reversible: it is in state Fail`},
		{[]string{"reverse", "--of", "held", "--all"}, "not reversible: it is in state Preparing"},
		{[]string{"reverse", "--of", "due", "--amount", "1"}, "not reversible: it is in state Initiated"},
		{[]string{"reverse", "--of", "posted", "--all"}, `already reversed, by "all-posted"`},
		{[]string{"reverse", "--of", "three", "--all"}, `already reversed, by "all-three"`},
		{[]string{"reverse", "--of", "posted", "--amount", "1"}, "already reversed"},
		{[]string{"reverse", "--of", "paid", "--amount", "31"}, "more than what is left to be reversed"},
		{[]string{"cancel", "paid"}, "already committed"},
	} {
		if c.args[0] == "reverse" {
			c.args = append(c.args, "--id", "x")
		}
		refused := d.run(c.args...).requires(exitFailed)
		require.Contains(t, refused.err, c.want)
		require.NotContains(t, refused.err, "Go on?", c.want)
	}
	for _, amount := range []string{"-1", "0"} {
		require.NotContains(t, d.run("reverse", "--of", "paid", "--id", "x", "--amount", amount).requires(exitUsage).err, "Go on?")
	}
	d.run("cancel", "failed").done() // it is what was asked for
	b.CancelWaiting()
	d.run("cancel", "held", "--yes").done()
	b.CheckBooks(map[string]int64{"a": 100, "b": 0, "c": 0})
	require.Empty(t, b.MustAudit().Findings)
}

// An amount of decimals is read as one, though it has no point.
func TestReverseOfDecimals(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	decimal := func(text string) transfer.Amount {
		a, err := transfer.ParseDecimal(text)
		require.NoError(t, err)
		return a
	}
	for id, balance := range map[string]string{"a": "100.50", "b": "0.00"} {
		_, err := b.OpenAccount(t.Context(), transfer.Account{ID: id, Balance: decimal(balance), Currency: "EUR"})
		require.NoError(t, err)
	}
	_, err := b.Transfer(t.Context(), transfer.Request{ID: "paid", From: "a", To: "b", Amount: decimal("30.25"), Currency: "EUR"})
	require.NoError(t, err)
	d := atDesk(t, b.DB)
	d.run("reverse", "--of", "paid", "--id", "part", "--amount", "10", "--yes").done()
	require.Equal(t, "80.25", d.run("accounts", "a", "--json").done().document()["balance"])
	d.run("audit", "--expect", "EUR=100.50").done()
	require.Contains(t, d.run("audit", "--expect", "EUR=100.51").requires(exitFindings).out, "wrongTotal")
}

// An audit says which sums nobody expects, and which are expected of no account: 0 is
// right there for ever.
func TestAuditOfExpectedCurrencies(t *testing.T) {
	b := bank.New(t, 70)
	_, err := b.OpenAccount(t.Context(), transfer.Account{ID: "francs", Currency: "CHF"})
	require.NoError(t, err)
	d := atDesk(t, b.DB)
	vacuous := []string{"audit", "--expect", "EUR=0", "--expect", "CHF=0"}
	said := d.run(vacuous...).requires(exitDone)
	require.Contains(t, said.out, "no findings")
	require.Equal(t, "transferctl: no sum is expected of the accounts with no currency\n"+
		"transferctl: a sum is expected of accounts with the currency \"EUR\", and there are none\n", said.err)
	document := d.run(append(vacuous, "--json")...).done().document()
	require.Equal(t, []any{""}, document["unexpected"])
	require.Equal(t, []any{"EUR"}, document["unmatched"])
	for _, args := range [][]string{{}, {"--expect", "=70", "--expect", "CHF=0"}} {
		document = d.run(append([]string{"audit", "--json"}, args...)...).done().document()
		require.NotContains(t, document, "unexpected")
		require.NotContains(t, document, "unmatched")
		d.run(append([]string{"audit"}, args...)...).done()
	}
}

// Recover lists what it would do, does it without a question, and leaves what is alive.
func TestRecover(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0, 50)
	b.StallHalf("stalled", 10)
	b.Silence("stalled", time.Hour)
	b.MustHold("expired", 20, time.Hour)
	b.Expire("expired")
	b.MustHold("held", 5, time.Hour)
	b.StallHalf("young", 7)
	d := atDesk(t, b.DB)
	for range 2 {
		plan := d.run("recover", "--dry-run").done().rows()
		require.Equal(t, "1 stalled, 1 hold expired", plan[0])
		require.Equal(t, "ID STATE WHY", plan[1])
		require.Len(t, plan, 4)
		require.Regexp(t, "^stalled Preparing stalled since ", plan[2])
		require.Regexp(t, "^expired Preparing expired ", plan[3])
	}
	view := d.run("recover", "--dry-run", "--json").done().document()
	require.EqualValues(t, 1, view["stalled"])
	require.Nil(t, view["report"])
	b.RequireStanding("a", 58, 100, 0)

	report := d.run("recover", "--json").done().document()["report"].(map[string]any)
	require.Equal(t, map[string]any{"found": 2.0, "succeeded": 1.0, "failed": 1.0, "expired": 1.0, "stuck": 0.0}, report)
	require.Equal(t, []string{"0 stalled, 0 holds expired", "found 0: 0 succeeded, 0 failed (0 of them expired holds), 0 stuck"},
		d.run("recover").done().rows())
	require.Contains(t, d.run("recover", "--stall-threshold", "0s").done().out, "found 1: 1 succeeded")
	d.run("cancel", "held", "--yes").done()
	b.CheckBooks(bank.Balances(100, 0, 50))
	require.Empty(t, b.MustAudit().Findings)
}

// A hold whose process died before all of it was held waits, as recovery leaves it alone
// until it expires.
func TestHoldThatIsNotHeldIsNotStalled(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.StallHold("begun", bank.HeldMark)
	b.Silence("begun", 10*time.Minute)
	d := atDesk(t, b.DB)
	require.Equal(t, []string{"0 stalled, 0 holds expired"}, d.run("recover", "--dry-run").done().rows())
	require.Empty(t, d.run("watch", "--json", "--looks", "1").done().document()["idle"])
	require.Contains(t, d.run("recover").done().out, "found 0")

	b.Expire("begun")
	plan := d.run("recover", "--dry-run").done().rows()
	require.Equal(t, "0 stalled, 1 hold expired", plan[0])
	require.Regexp(t, "^begun Preparing expired ", plan[2])
	require.Contains(t, d.run("recover").done().out, "found 1: 0 succeeded, 1 failed (1 of them expired holds)")
	b.CheckBooks(bank.Balances(100, 0))
	require.Empty(t, b.MustAudit().Findings)
}

// advises requires that an audit finds something, and advises a command.
func (d *desk) advises(command string) {
	d.t.Helper()
	report := d.run("audit").requires(exitFindings).out
	require.Contains(d.t, report, command)
	require.NotContains(d.t, report, "Repair", "a name of the library's means nothing here")
}

// A marker that nobody settles is a finding, which the repair that it advises removes.
func TestAuditAndRepair(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	accounts := b.DB.Collection("accounts")
	set := func(field string, value any) {
		_, err := accounts.UpdateByID(t.Context(), "a", bson.D{{Key: "$set", Value: bson.D{{Key: field, Value: value}}}})
		require.NoError(t, err)
	}
	d := atDesk(t, b.DB)
	require.Contains(t, d.run("audit").done().out, "no findings")
	set("pending.lost", int64(-40))
	set("balance", int64(60))
	found := d.run("audit", "--json", "--expect", "=100").requires(exitFindings).document()["findings"].([]any)
	require.Equal(t, "orphanMarker", found[0].(map[string]any)["code"])
	require.Contains(t, d.run("audit").requires(exitFindings).out, "orphanMarker: ")
	d.advises("Then transferctl repair marker removes the marker")

	repair := []string{"repair", "marker", "--account", "a", "--transfer", "lost", "--decision", "pay-in", "--yes"}
	require.Contains(t, d.run(append(repair, "--amount", "-41")...).requires(exitFailed).err, "audit again")
	d.run(append(repair, "--amount", "-40", "--decision", "perhaps")...).requires(exitUsage)
	require.Equal(t, map[string]any{"repaired": "marker", "account": "a", "transfer": "lost"},
		d.run(append(repair, "--amount", "-40", "--json")...).done().document())
	d.run(append(repair, "--amount", "-40")...).requires(exitFailed)
	b.RequireBalance("a", 100)
	set("pending", bson.A{})
	d.advises("transferctl repair pending makes it a map")
	for range 2 { // the second time there is nothing to be repaired
		require.Equal(t, "as it should be: pending a\n", d.run("repair", "pending", "--account", "a", "--yes").done().out)
	}
	d.run("repair", "pending", "--account", "nobody", "--yes").requires(exitNotFound)

	b.MustMove("paid", 10)
	_, err := b.DB.Collection("transfers").UpdateByID(t.Context(), "paid", bson.D{{Key: "$set", Value: bson.D{{Key: "open", Value: true}}}})
	require.NoError(t, err)
	d.advises("Then transferctl repair open makes the flag")
	d.run("repair", "open", "paid", "--yes").done()
	d.run("repair", "open", "nothing", "--yes").requires(exitNotFound)
	set("pending.lost%", int64(-40))
	d.advises("Then transferctl repair marker --decision keep-balance removes the mark")
	d.run("repair", "marker", "--account", "a", "--transfer", "lost", "--amount", "-40", "--decision", "keep-balance", "--yes").done()
	d.run("audit", "--expect", "=100").done()
	b.RequireBalance("a", 90)
	b.RequireBalance("b", 10)
}

// What an audit advises about a transfer that has stalled for long is done by a command.
func TestAuditAndRecover(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	d := atDesk(t, b.DB)
	b.StallHalf("stalled", 10)
	b.Silence("stalled", time.Hour)
	d.advises("at once by transferctl recover --stall-threshold 0s")
	d.run("recover", "--stall-threshold", "0s").done()
	b.CheckBooks(bank.Balances(100, 0))
}

// What show advises about a transfer whose payee is gone is done by a command.
func TestShowAndRecover(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	d := atDesk(t, b.DB)
	b.LeaveCommitted("left", "b", 1)
	var payee bson.D
	require.NoError(t, b.DB.Collection("accounts").FindOneAndDelete(t.Context(), bson.D{{Key: "_id", Value: "b"}}).Decode(&payee))
	d.run("recover", "--stall-threshold", "0s").done()
	require.Contains(t, d.run("show", bank.Numbered("left", 1)[0]).done().out, "and at once by transferctl recover --stall-threshold 0s.\n")
	b.Insert("accounts", payee)
	d.run("recover", "--stall-threshold", "0s").done()
	require.Empty(t, b.MustAudit().Findings)
}

// An event that was given up is listed, and due again after redeliver.
func TestRedeliver(t *testing.T) {
	t.Parallel()
	handler := transfer.EventHandler{
		Kinds: []transfer.EventKind{transfer.EventSucceeded}, MaxAttempts: 1,
	}
	b := bank.NewWith(t, []transfer.Option{transfer.WithEvents(handler)}, 100, 0)
	b.MustMove("paid", 30)
	d := atDesk(t, b.DB)
	require.Equal(t, []string{"paid"}, d.run("list", "--undelivered", "--json").done().column("id"))
	require.EqualValues(t, 1, d.run("stats", "--json").done().document()["undelivered"])
	require.Contains(t, d.run("list").done().out, "b +30  undelivered: succeeded\n")
	b.SetField("transfers", "paid", "outbox.0.due", bson.MaxKey{})
	require.Contains(t, d.run("list").done().out, "b +30  undelivered: succeeded (given up)\n")
	require.Contains(t, d.run("redeliver", "paid").requires(exitUsage).err, `have 1 event of "paid" tried again`)
	require.Contains(t, d.run("show", "paid").done().out, "remove the cause, and run transferctl redeliver.\n")
	require.Equal(t, "due: 1 event of \"paid\"\n", d.run("redeliver", "paid", "--yes").done().out)
	d.run("redeliver", "nothing", "--yes").requires(exitNotFound)
	require.ErrorIs(t, bank.ErrorOf(b.Transfer(t.Context(), bank.Move("poor", "a", "b", 1000))), transfer.ErrInsufficientFunds)
	require.Equal(t, "nothing to deliver: no event of \"poor\" is undelivered\n", d.run("redeliver", "poor").done().out)
	b.CheckBooks(bank.Balances(100, 0))
}

// A refusal is a failure, whatever it wraps; a transfer that is gone is not found.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		code int
	}{
		{nil, exitDone},
		{&transfer.RefusedError{Err: transfer.ErrAccountNotFound}, exitFailed},
		{transfer.ErrAccountNotFound, exitNotFound},
		{transfer.ErrTransferNotFound, exitNotFound},
		{transfer.ErrInvalidRequest, exitUsage},
		{usage("no"), exitUsage},
		{ErrFindings, exitFindings},
		{ErrDeclined, exitFailed},
		{transfer.ErrUnauthorized, exitFailed},
		{transfer.ErrUnsupportedDeployment, exitFailed},
		{transfer.ErrAlreadyCommitted, exitFailed},
		{&awayError{errors.New("no route")}, exitAway},
	} {
		require.Equal(t, c.code, exitCode(c.err), "%v", c.err)
	}
}
