package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// A database that nobody has set up is reported, then set up, and then found fit. No
// other command begins anything there.
func TestSetupAndCheck(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	d := atDesk(t, b.DB)
	for _, args := range [][]string{{"list"}, {"stats"}, {"recover"}, {"audit"}, {"cancel", "x", "--yes"}, {"accounts"}} {
		assert.Contains(t, d.run(args...).requires(exitNotFound).err, "there is no deployment", args)
	}
	names, err := b.DB.ListCollectionNames(t.Context(), bson.D{})
	require.NoError(t, err)
	require.Empty(t, names, "nothing was written")
	missing := d.run("check", "--json").requires(exitFindings)
	require.Equal(t, false, missing.document()["ok"])
	require.NotEmpty(t, missing.document()["problem"])
	require.Contains(t, d.run("check").requires(exitFindings).out, "Setup")
	require.Contains(t, d.run("setup").done().out, "is fit")
	require.Equal(t, map[string]any{"database": b.DB.Name(), "ok": true}, d.run("check", "--json").done().document())
	require.Contains(t, d.run("check").done().out, "is fit, and everything is there")
	require.Empty(t, b.MustAudit().Findings)
}

// How the collections are used is taken from the notes, and a flag that says otherwise is
// refused: with other names for fields a hold's money would be lost.
func TestConfigurationComesFromTheNotes(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	d := atDesk(t, b.DB)
	own := []string{
		"--accounts", "wallets", "--field", "pending=reserved", "--field", "balance=amount", "--ids", "objectid",
		"--events", "held,failed",
	}
	d.run(append(own, "setup")...).done()
	eu := b.DB.Collection("eu")
	kinds := transfer.WithEvents(transfer.EventHandler{Kinds: []transfer.EventKind{transfer.EventHeld, transfer.EventFailed}})
	c := b.NewCoordinator(b.DB, transfer.WithAccounts(b.DB.Collection("wallets")), transfer.WithAccountIDs(transfer.ObjectIDs),
		transfer.WithFields(transfer.Fields{Pending: "reserved", Balance: "amount"}), kinds, transfer.WithLedger("eu", eu))
	id, far := bson.NewObjectID().Hex(), bson.NewObjectID().Hex()
	_, err := c.OpenAccount(t.Context(), transfer.Account{ID: id, Balance: transfer.Units(7)})
	require.NoError(t, err)
	ledger, err := c.Ledger("eu")
	require.NoError(t, err)
	_, err = ledger.Open(t.Context(), transfer.Account{ID: far})
	require.NoError(t, err)

	require.Equal(t, []string{id}, d.run("accounts", "--json").done().column("id"))
	require.Equal(t, []string{far}, d.run("accounts", "--ledger", "eu", "--json").done().column("id"))
	d.run("check").requires(exitDone)
	d.run("audit").done()
	for _, args := range [][]string{
		{"--field", "pending=pending"}, {"--ids", "string"}, {"--events", "none"}, {"--accounts", "others", "--field", "pending=x"},
	} {
		a := d.run(append(args, "recover")...)
		if args[1] != "others" {
			require.Contains(t, a.requires(exitFailed).err, "deployment", args)
		}
	}
	for _, args := range [][]string{{"--field", "pending=pending"}, {"--field", "floor=x"}, {"--ids", "string"}} {
		for _, command := range [][]string{{"recover"}, {"show", "t"}, {"list"}, {"accounts"}} {
			a := d.run(append(args, command...)...).requires(exitFailed)
			require.Contains(t, a.err, "differs from the deployment's note", command)
			require.Empty(t, a.out, command)
		}
	}
	d.run("--field", "pending=reserved", "--field", "floor=floor", "--ids", "objectid", "list").done()
}

// A process whose accounts are misnamed leaves a record that makes the name ambiguous.
// What docs/deployment.md removes of it makes the name clear again.
func TestMistypedNameIsUndone(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	users := b.NewCoordinator(b.DB, transfer.WithAccounts(b.DB.Collection("users")))
	for id, units := range map[string]int64{"a": 7, "b": 0} {
		_, err := users.OpenAccount(t.Context(), transfer.Account{ID: id, Balance: transfer.Units(units)})
		require.NoError(t, err)
	}
	mistyped := b.NewCoordinator(b.DB, transfer.WithAccounts(b.DB.Collection("user")))
	_, err := mistyped.Transfer(t.Context(), bank.Move("t", "a", "b", 1))
	require.ErrorIs(t, err, transfer.ErrAccountNotFound)
	_, err = users.Transfer(t.Context(), bank.Move("t", "a", "b", 1))
	require.ErrorIs(t, err, transfer.ErrIDConflict)
	d := atDesk(t, b.DB)
	require.Contains(t, d.run("list").requires(exitUsage).err, "which accounts?")
	d.run("list", "--unfinished", "--accounts", "user").done()

	record := bson.D{{Key: "_id", Value: bson.D{{Key: "ledger", Value: ""}, {Key: "namespace", Value: b.DB.Name() + ".user"}}}}
	removed, err := b.DB.Collection("transfers.transfer").DeleteOne(t.Context(), record)
	require.NoError(t, err)
	require.EqualValues(t, 1, removed.DeletedCount)
	require.NoError(t, b.DB.Collection("user.transfer").Drop(t.Context()))
	require.NoError(t, b.DB.Collection("user").Drop(t.Context()))
	require.Equal(t, []string{"a", "b"}, d.run("accounts", "--json").done().column("id"))
	require.Equal(t, []string{"t"}, d.run("list", "--json").done().column("id"))
	d.run("audit", "--expect", "=7").done()
}

// What cannot be found is said, to programs as well, and does not keep the rest from
// working. For check it is a finding: a service may be unable to use it.
func TestLedgerElsewhereIsTold(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 5).WithIndexes()
	b.MustSubmit("due")
	records := b.DB.Collection("transfers.transfer")
	_, err := records.InsertOne(t.Context(), bson.D{
		{Key: "_id", Value: bson.D{{Key: "ledger", Value: "far"}, {Key: "namespace", Value: "elsewhere.accounts"}}},
		{Key: "identity", Value: "of another server"}, {Key: "changes", Value: 1},
	})
	require.NoError(t, err)
	d := atDesk(t, b.DB)
	a := d.run("accounts").requires(exitDone)
	require.Contains(t, a.err, `the ledger "far" (elsewhere.accounts) can't be found here: name it by --with-ledger`)
	require.Equal(t, []string{"ID CURRENCY AVAILABLE POSTED INCOMING FLOOR REMARK", "a 5 5 0 0"}, a.rows())

	require.Contains(t, d.run("check").requires(exitFindings).out, `left out: the ledger "far" (elsewhere.accounts)`)
	require.Contains(t, d.run("setup").requires(exitDone).out, `left out: the ledger "far" (elsewhere.accounts)`)
	left := []any{map[string]any{
		"kind": "ledger", "name": "far", "namespace": "elsewhere.accounts", "reason": "can't be found here: name it by --with-ledger",
	}}
	for _, command := range [][]string{{"check"}, {"setup"}, {"audit"}, {"recover"}, {"show", "due"}} {
		told := d.run(append(command, "--json")...)
		if command[0] == "check" {
			told.requires(exitFindings)
			require.Equal(t, false, told.document()["ok"])
		} else {
			told.done()
		}
		require.Equal(t, left, told.document()["leftOut"], command)
	}
	d.run("cancel", "due", "--yes").requires(exitDone)
	require.Empty(t, b.MustAudit().Findings)
}

// Lists, counts, one transfer and the numbers: as tables and as JSON.
func TestReading(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.MustMove("paid", 30)
	rec, err := b.Transfer(t.Context(), bank.Move("refused", "b", "a", 31))
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	require.Equal(t, transfer.StateFail, rec.State)
	b.MustHold("held", 20, time.Hour)
	req := bank.Move("later", "a", "b", 1)
	req.NotBefore, req.Metadata = time.Now().Add(time.Hour), map[string]any{"order": int64(17), "who": "ann"}
	_, err = b.Submit(t.Context(), req)
	require.NoError(t, err)
	d := atDesk(t, b.DB)

	require.Equal(t, []string{"later", "held", "refused", "paid"}, d.run("list", "--json").done().column("id"))
	rows := d.run("list").done().rows()
	require.Len(t, rows, 5)
	require.Equal(t, "ID STATE CREATED MOVES REMARK", rows[0])
	require.Regexp(t, `^later Initiated .* a -1, b \+1 not before `, rows[1])
	require.Regexp(t, `^held Preparing \(held\) .* a -20, b \+20 expires `, rows[2])
	require.Regexp(t, `^refused Fail .* insufficientFunds b$`, rows[3])
	require.Regexp(t, `^paid Success .* a -30, b \+30$`, rows[4])
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--holds"}, []string{"held"}},
		{[]string{"--unfinished"}, []string{"later", "held"}},
		{[]string{"--state", "Success,Fail"}, []string{"refused", "paid"}},
		{[]string{"--metadata", "order=17"}, []string{"later"}},
		{[]string{"--metadata", "who=ann"}, []string{"later"}},
		{[]string{"--metadata", "who=bob"}, []string{}},
		{[]string{"--beyond", "held", "--limit", "1"}, []string{"refused"}},
		{[]string{"--after", "1h"}, []string{"later", "held", "refused", "paid"}},
		{[]string{"--before", "1h"}, []string{}},
		{[]string{"--expires-before", "2h"}, []string{"held"}},
		{[]string{"--expires-before", "0s"}, []string{}},
		{[]string{"--stuck"}, []string{}},
		{[]string{"--account", "b", "--state", "Fail"}, []string{"refused"}},
	} {
		require.Equal(t, c.want, d.run(append([]string{"list", "--json"}, c.args...)...).done().column("id"), c.args)
	}
	require.Equal(t, "2\n", d.run("list", "--unfinished", "--count").done().out)
	require.Equal(t, map[string]any{"count": 4.0}, d.run("list", "--count", "--json").done().document())
	require.Contains(t, d.run("list", "--limit", "2").requires(exitDone).err, `--beyond "held"`)

	require.Contains(t, d.run("show", "held").done().out, `transfer "held" is Preparing (held until`)
	require.Regexp(t, `and transferctl cancel takes it back\.\nmetadata: \{"order":17,"who":"ann"\}\n`, d.run("show", "later").done().out)
	shown := d.run("show", "paid", "--json").done().document()
	require.Equal(t, "Success", shown["transfer"].(map[string]any)["state"])
	require.Equal(t, "Nothing. transferctl reverse takes its money back.", shown["advice"])
	require.Len(t, shown["participants"], 2)
	require.Contains(t, d.run("show", "nothing").requires(exitNotFound).err, "transfer not found")

	stats := d.run("stats", "--json").done().document()
	require.EqualValues(t, 1, stats["held"])
	require.EqualValues(t, 1, stats["scheduled"])
	require.EqualValues(t, 0, stats["stuck"])
	require.Contains(t, d.run("stats").done().rows(), "held 1 holds")

	require.Empty(t, b.MustAudit().Findings)
}

// A document that is no transfer is in no state, since no time.
func TestShowOfNoTransfer(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1)
	b.Insert("transfers", bson.M{"_id": "garbage"})
	require.Contains(t, atDesk(t, b.DB).run("show", "garbage").done().out, "transfer \"garbage\" is in no state\n")
}

// Accounts: all of them page by page, and one.
func TestAccounts(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 70, 30)
	b.MustHold("held", 20, time.Hour)
	d := atDesk(t, b.DB)
	require.Equal(t, []string{
		"ID CURRENCY AVAILABLE POSTED INCOMING FLOOR REMARK", "a 50 70 0 0", "b 30 30 20 0",
	}, d.run("accounts").done().rows())
	require.EqualValues(t, 50, d.run("accounts", "a", "--json").done().document()["available"])
	require.Equal(t, []string{"b"}, d.run("accounts", "--beyond", "a", "--json").done().column("id"))
	require.Contains(t, d.run("accounts", "nobody").requires(exitNotFound).err, "account not found")
	require.Empty(t, b.MustAudit().Findings)
}

// No character of an ID, of metadata or of an error reaches the terminal that it might
// obey, in tables, in texts and in JSON.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	const evil = "\x1b[2J\x1b]0;owned\a\u009b31m\u202eevil\r\n\u2028\x7f\U000e0001"
	_, err := b.OpenAccount(t.Context(), transfer.Account{ID: evil, Metadata: map[string]any{"note": evil}})
	require.NoError(t, err)
	req := bank.Move(evil, "a", evil, 1)
	req.Metadata = map[string]any{evil: evil}
	_, err = b.Transfer(t.Context(), req)
	require.NoError(t, err)
	_, err = b.Transfer(t.Context(), bank.Move("x"+evil, evil, "a", 50))
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	_, err = b.DB.Collection("accounts").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "z" + evil}, {Key: "balance", Value: 1.5}})
	require.NoError(t, err)
	d := atDesk(t, b.DB)
	d.seated = true
	for _, args := range [][]string{
		{"list"}, {"show", evil}, {"accounts"}, {"accounts", evil}, {"audit"}, {"cancel", evil}, {"show", "no" + evil},
		{"reverse", "--of", evil, "--id", evil + "2", "--all"}, {"recover"}, {"list", "--state", evil}, {"list", evil},
		{"--field", evil, "list"}, {"--" + evil, "list"},
	} {
		for _, format := range []string{"", "--json"} {
			a := d.run(append(append([]string{}, args...), "--stall-threshold", "0s")...)
			if format != "" {
				a = d.run(append([]string{format}, args...)...)
			}
			for _, r := range a.out + a.err {
				require.True(t, r == '\n' || unicode.IsPrint(r), "%q: %q in %q", args, r, a.out+a.err)
			}
			require.NotContains(t, a.out+a.err, "panic")
		}
	}
	require.Equal(t, []string{"x" + evil, evil}, d.run("list", "--json").done().column("id"), "programs get the ID")
	require.Equal(t, evil, d.run("show", evil, "--json").done().document()["transfer"].(map[string]any)["metadata"].(map[string]any)[evil])
	require.Contains(t, d.run("list").done().out, `\x1b[2J\x1b]0;owned\a\u009b31m\u202eevil\r\n\u2028\x7f\U000e0001`)
}

// No two IDs look the same, one ID looks the same everywhere, and metadata is JSON.
func TestNamesAreUnambiguous(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	shown := map[string]string{
		"a\x1bb": `a\x1bb`, `a\x1bb`: `a\\x1bb`, `a\u001bb`: `a\\u001bb`, `a\b`: `a\\b`, "a\bb": `a\bb`, "a\u202eb": `a\u202eb`, `a"b`: `a"b`,
	}
	for id := range shown {
		req := bank.Move(id, "a", "b", 1)
		req.Metadata = map[string]any{"k": `\` + "\x1b\u202e\U000e0001" + id}
		_, err := b.Transfer(t.Context(), req)
		require.NoError(t, err)
	}
	d := atDesk(t, b.DB)
	d.seated = true
	rows := d.run("list").done().out
	for id, want := range shown {
		require.Regexp(t, "\n"+regexp.QuoteMeta(want)+" +Success", rows, id)
		quoted := `"` + strings.ReplaceAll(want, `"`, `\"`) + `"`
		told := d.run("show", id).done().out
		require.Contains(t, told, "transfer "+quoted+" is Success")
		_, metadata, _ := strings.Cut(told, "metadata: ")
		metadata, _, _ = strings.Cut(metadata, "\n")
		var parsed map[string]string
		require.NoError(t, json.Unmarshal([]byte(metadata), &parsed))
		require.Equal(t, `\`+"\x1b\u202e\U000e0001"+id, parsed["k"])
		asked := d.run("reverse", "--of", id, "--id", "x", "--all").requires(exitFailed).err
		require.Contains(t, asked, "take back 1 of "+quoted)
	}
	require.Empty(t, b.MustAudit().Findings)
}

// A retention that nobody uses is refused, because statements would be cut short by it
// for good. One that setup has declared is used.
func TestRetentionIsNotBegunByTheWay(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.StallHalf("stalled", 10)
	b.Silence("stalled", time.Hour)
	d := atDesk(t, b.DB)
	used := b.DB.Collection("transfers.retention")
	require.Contains(t, d.run("recover", "--retention", "1h").requires(exitUsage).err, "shorten all statements for good")
	n, err := used.CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	require.Zero(t, n)
	d.run("setup", "--retention", "1000h").done()
	d.run("stats", "--retention", "1h").requires(exitUsage)
	d.run("recover", "--retention", "1000h").done()
	rec, err := b.Get(t.Context(), "stalled")
	require.NoError(t, err)
	require.Equal(t, transfer.StateSuccess, rec.State)
	require.WithinDuration(t, time.Now().Add(1000*time.Hour), rec.PurgeAt, 2*time.Hour)
	b.CheckBooks(bank.Balances(100, 0))
	require.Empty(t, b.MustAudit().Findings)
}

// A collection that nobody has used is refused: it would become a part of the deployment
// by the first use. One that is used is taken, under whichever flag.
func TestMistypedCollections(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 5)
	d := atDesk(t, b.DB)
	for _, args := range [][]string{
		{"--accounts", "acounts"}, {"--with-ledger", "eu=eu"}, {"--with-documents", "orders=orders"}, {"--with-ledger", "eu=other/eu"},
	} {
		require.Contains(t, d.run(append(args, "recover")...).requires(exitUsage).err, "no process has used the collection", args)
	}
	d.run("--transfers", "moves", "recover").requires(exitNotFound)
	names, err := b.DB.ListCollectionNames(t.Context(), bson.D{})
	require.NoError(t, err)
	for _, name := range names {
		require.NotContains(t, []string{"acounts.transfer", "eu.transfer", "orders.transfer", "moves.transfer"}, name)
	}
	d.run("setup", "--with-ledger", "eu=eu", "--with-documents", "orders=orders").done()
	d.run("recover").done()
	d.run("recover", "--with-ledger", "eu=eu", "--accounts", "accounts").done()
	require.Empty(t, b.MustAudit().Findings)
}

// What was posted of a hold is shown beside what was held, and one thing is one.
func TestPostedAndCounted(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.MustHold("room", 60, time.Hour)
	_, err := b.Post(t.Context(), "room", transfer.PostAmount(transfer.Units(50)))
	require.NoError(t, err)
	d := atDesk(t, b.DB)
	require.Regexp(t, `^room Success .* a -60, b \+60 posted 50$`, d.run("list").done().rows()[1])
	require.Contains(t, d.run("audit").done().out, "2 accounts, 1 transfer, 0 unfinished, at ")
	b.Change("accounts", "b", bson.M{"$set": bson.M{"balance": int64(-1)}})
	require.Contains(t, d.run("audit").requires(exitFindings).out, "\n1 finding\n")
	b.Change("accounts", "b", bson.M{"$set": bson.M{"balance": int64(50)}})
	b.CheckBooks(bank.Balances(100, 0))
}
