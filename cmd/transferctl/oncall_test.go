package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// Ctrl-C at the question is a no, and ends the program.
func TestInterruptedAtTheQuestion(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.MustHold("held", 20, time.Hour)
	x := openTerminal(t, 120, 24, "--database", b.DB.Name(), "cancel", "held")
	x.shows("Go on? Type yes:")
	x.press("\x03")
	x.ends(exitFailed)
	b.RequireStanding("a", 80, 100, 0)
	atDesk(t, b.DB).run("cancel", "held", "--yes").done()
	require.Empty(t, b.MustAudit().Findings)
}

// A transfer that can't be read keeps no other from being listed and recovered.
func TestRecoverBesideWhatCantBeRead(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.StallHalf("stalled", 10)
	b.LeaveRecorded("garbled", 20)
	b.Silence("stalled", time.Hour)
	b.Silence("garbled", time.Hour)
	b.SetField("transfers", "garbled", "metadata", 5)
	d := atDesk(t, b.DB)
	plan := d.run("recover", "--dry-run").requires(exitDone)
	require.Contains(t, plan.err, `garbled`)
	require.Contains(t, plan.out, "stalled  Preparing")
	d.run("recover")
	rec, err := b.Get(t.Context(), "stalled")
	require.NoError(t, err)
	require.Equal(t, transfer.StateSuccess, rec.State)
	b.SetField("transfers", "garbled", "metadata", bson.M{})
	b.RecoverAll()
	b.CheckBooks(bank.Balances(100, 0))
}

// What is stuck is tried again after ever longer pauses. The plan and the report say
// which transfers are left until then, and how they are tried at once.
func TestRecoverNamesWhatItLeaves(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.LeaveRecorded("stuck", 10)
	restore := bank.Deleted("b")(b)
	d := atDesk(t, b.DB)
	require.Contains(t, d.run("recover", "--stall-threshold", "0s").done().out, "(0 of them expired holds), 1 stuck")
	for _, silent := range []time.Duration{0, 40 * time.Second} { // younger than the threshold, and older
		b.Silence("stuck", silent)
		plan := d.run("recover", "--dry-run").done().rows()
		require.Len(t, plan, 4, plan)
		require.Equal(t, "0 stalled, 0 holds expired", plan[0])
		require.Equal(t, "1 transfer waits for its next try; --stall-threshold 0s retries now", plan[1])
		require.Equal(t, "ID STATE WHY", plan[2])
		require.Regexp(t, `^stuck Committed next try \S+ \S+, stuck: accountNotFound b$`, plan[3])
		view := d.run("recover", "--json").done().document()
		require.EqualValues(t, 0, view["stalled"])
		require.EqualValues(t, 1, view["waiting"])
		left := view["waitingTransfers"].([]any)[0].(map[string]any)
		require.Equal(t, "stuck", left["id"])
		rec, err := b.Get(t.Context(), "stuck")
		require.NoError(t, err)
		require.Equal(t, rec.LastModified.Add(time.Minute).Format(time.RFC3339Nano), left["nextTry"])
		report := d.run("recover").done().rows()
		require.Equal(t, "found 0: 0 succeeded, 0 failed (0 of them expired holds), 0 stuck; 1 left for later", report[len(report)-1])
	}
	b.Silence("stuck", 61*time.Second)
	require.Equal(t, "1 stalled, 0 holds expired", d.run("recover", "--dry-run").done().rows()[0])
	require.Contains(t, d.run("recover").done().out, "found 1: 0 succeeded, 0 failed (0 of them expired holds), 1 stuck\n")
	restore()
	require.Contains(t, d.run("recover").done().out, "found 0:")
	require.Contains(t, d.run("recover", "--stall-threshold", "0s").done().out, "1 stalled, 0 holds expired\n")
	require.Empty(t, d.run("recover", "--stall-threshold", "0s", "--json").done().document()["transfers"])
	b.CheckBooks(bank.Balances(100, 0))
	require.Empty(t, b.MustAudit().Findings)
}

// What was taken over again and again is tried ever later, too, though nothing is in its
// way. What is young is under way, and not listed.
func TestRecoverNamesWhatKillsItsProcesses(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.StallHalf("killer", 10)
	b.Change("transfers", "killer", bson.M{"$set": bson.M{"attempts": int64(10), "epoch": int64(11)}})
	b.Silence("killer", 10*time.Minute)
	b.StallHalf("young", 10)
	d := atDesk(t, b.DB)
	view := d.run("recover", "--json").done().document()
	require.EqualValues(t, 0, view["stalled"])
	require.EqualValues(t, 1, view["waiting"])
	require.Contains(t, d.run("recover", "--stall-threshold", "0s").done().out, "found 2: 2 succeeded")
	b.CheckBooks(bank.Balances(100, 0))
	require.Empty(t, b.MustAudit().Findings)
}

// A hold that has expired is planned however young its document is, held or not.
func TestRecoverPlansYoungExpiredHolds(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.StallHold("begun", bank.HeldMark)
	b.MustHold("held", 5, time.Hour)
	b.ExpireAll()
	d := atDesk(t, b.DB)
	plan := d.run("recover", "--dry-run").done().rows()
	require.Equal(t, "0 stalled, 2 holds expired", plan[0])
	require.Len(t, plan, 4)
	require.Contains(t, d.run("recover").done().out, "found 2: 0 succeeded, 2 failed (2 of them expired holds)")
	b.CheckBooks(bank.Balances(100, 0))
	require.Empty(t, b.MustAudit().Findings)
}

// Holds expire by the server's clock, so recover lists them by it.
func TestRecoverListsByTheServersClock(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.MustHold("held", 20, time.Hour)
	d := atDesk(t, b.DB)
	d.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	require.Equal(t, []string{"0 stalled, 0 holds expired"}, d.run("recover", "--dry-run").done().rows())
	atDesk(t, b.DB).run("cancel", "held", "--yes").done()
	require.Empty(t, b.MustAudit().Findings)
}

// Durations count from the server's time, as the times that are stored do.
func TestListByTheServersClock(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.MustHold("held", 20, time.Hour)
	for _, wrong := range []time.Duration{-2 * time.Hour, 2 * time.Hour} {
		d := atDesk(t, b.DB)
		d.now = func() time.Time { return time.Now().Add(wrong) }
		for _, c := range []struct {
			flag, value string
			want        []string
		}{
			{"--expires-before", "0s", []string{}},
			{"--expires-before", "90m", []string{"held"}},
			{"--after", "10m", []string{"held"}},
			{"--before", "10m", []string{}},
		} {
			require.Equal(t, c.want, d.run("list", "--json", c.flag, c.value).done().column("id"), "%s %s, %s", c.flag, c.value, wrong)
		}
	}
	atDesk(t, b.DB).run("cancel", "held", "--yes").done()
	require.Empty(t, b.MustAudit().Findings)
}

// A place on another server that lacks its collection is no name of a collection here:
// setup would write it down for good.
func TestPlacesAreWhole(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	d := atDesk(t, b.DB)
	for _, place := range []string{"mongodb://h/b", "env:EU"} {
		for _, command := range []string{"setup", "roles"} {
			for _, flag := range []string{"--with-ledger", "--with-documents"} {
				require.Contains(t, d.run(command, flag, "eu="+place).requires(exitUsage).err, "a URI with a database, # and the name")
			}
		}
	}
	names, err := b.DB.ListCollectionNames(t.Context(), bson.D{})
	require.NoError(t, err)
	require.Empty(t, names)
}

// An error is a document for programs, also where --json stands behind what is wrong.
func TestErrorsOfUsageForPrograms(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"list", "--limit", "x", "--json"}, {"nothing", "--json"}, {"--json", "list", "--nothing"}} {
		var e errorView
		require.NoError(t, json.Unmarshal([]byte(atDesk(t, nil).runBare(args...).requires(exitUsage).err), &e), args)
		require.Equal(t, exitUsage, e.ExitCode)
		require.Empty(t, e.Outcome)
	}
}

// The live view for programs ends well whenever it is interrupted, in the middle of a
// look as well.
func TestWatchForProgramsIsInterrupted(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errs bytes.Buffer
	code := run(ctx, []string{"--database", b.DB.Name(), "watch", "--json"}, surroundings{
		in: strings.NewReader(""), out: &out, err: &errs, lookup: atDesk(t, b.DB).variable, now: time.Now,
		monitor: &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName == "hello" {
				cancel()
			}
		}},
	})
	require.Equal(t, exitDone, code, errs.String())
	require.Empty(t, out.String()+errs.String())
}

// fullDisk is where nothing can be written.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) {
	return 0, &fs.PathError{Op: "write", Path: "/dev/full", Err: syscall.ENOSPC}
}

// What can't be written says nothing of the money.
func TestOutputThatCantBeWritten(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1)
	var errs bytes.Buffer
	code := run(t.Context(), []string{"--database", b.DB.Name(), "stats", "--json"}, surroundings{
		in: strings.NewReader(""), out: fullDisk{}, err: &errs, lookup: atDesk(t, b.DB).variable, now: time.Now,
	})
	require.Equal(t, exitFailed, code)
	require.JSONEq(t, `{"error": "write /dev/full: no space left on device", "exitCode": 1}`, errs.String())
}

// A reason of several lines adds none to what show says.
func TestShowForgesNoLines(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.MustHold("held", 20, time.Hour)
	d := atDesk(t, b.DB)
	d.run("cancel", "held", "--yes", "--reason", "x\nadvice:   pay it by hand").done()
	shown := d.run("show", "held").done()
	require.Contains(t, shown.out, `x\nadvice:   pay it by hand`)
	require.NotContains(t, shown.out, "\nadvice:   pay")
	b.CheckBooks(bank.Balances(100, 0))
	require.Empty(t, b.MustAudit().Findings)
}
