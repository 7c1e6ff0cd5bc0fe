package texts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
	"github.com/mongotransfer/transfer/internal/words"
)

// recorder keeps every logged line, of each level.
type recorder struct {
	mu    sync.Mutex
	lines []logLine
}

// logLine is a line and its printed form.
type logLine struct {
	level   slog.Level
	message string
	attrs   map[string]slog.Value
	text    string
}

// Enabled implements slog.Handler.
func (*recorder) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs implements slog.Handler.
func (r *recorder) WithAttrs([]slog.Attr) slog.Handler { return r }

// WithGroup implements slog.Handler.
func (r *recorder) WithGroup(string) slog.Handler { return r }

// Handle implements slog.Handler.
func (r *recorder) Handle(ctx context.Context, record slog.Record) error {
	line := logLine{level: record.Level, message: record.Message, attrs: map[string]slog.Value{}}
	var printed bytes.Buffer
	opts := &slog.HandlerOptions{Level: slog.LevelDebug - 8, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == words.KeyTook { // digits that mean no value
			return slog.Attr{}
		}
		return a
	}}
	record.Attrs(func(a slog.Attr) bool {
		line.attrs[a.Key] = a.Value
		return true
	})
	err := errors.Join(slog.NewTextHandler(&printed, opts).Handle(ctx, record), slog.NewJSONHandler(&printed, opts).Handle(ctx, record))
	line.text = printed.String()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
	return err
}

// all returns all lines so far.
func (r *recorder) all() []logLine {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

// of returns the lines with a given message.
func (r *recorder) of(message string) []logLine {
	return slices.DeleteFunc(r.all(), func(l logLine) bool { return l.message != message })
}

// handled returns the lines of calls and of background work, as "verb ID state".
func (r *recorder) handled() []string {
	var lines []string
	for _, l := range r.of("a transfer was handled") {
		line := fmt.Sprint(l.attrs[words.KeyVerb], " ", l.attrs[words.KeyTransfer])
		if state, has := l.attrs[words.KeyState]; has {
			line += " " + state.String()
		}
		lines = append(lines, line)
	}
	return lines
}

// requireDiscreetLog requires that no line has an unknown key, or a value that must stay
// secret.
func (k talker) requireDiscreetLog() {
	k.T.Helper()
	for _, line := range k.log.all() {
		for key := range line.attrs {
			assert.Contains(k.T, words.Keys(), key, line.message)
		}
		for _, part := range telltales() {
			if part != "{" && part != "}" { // of JSON
				assert.NotContains(k.T, line.text, part)
			}
		}
		assert.Less(k.T, len(line.text), 1600, "twice: %s", line.text)
	}
}

// Each call about a transfer logs one line at its end, at Debug, with the error that the
// caller got.
// Each transfer that a worker or a sweep has worked on logs one too.
// If nothing is wrong, there is nothing above Debug.
func TestEachTransferHasItsLine(t *testing.T) {
	t.Parallel()
	k := newTalker(t)
	ctx := t.Context()
	must := func(_ transfer.Record, err error) { require.NoError(t, err) }
	must(k.c.Transfer(ctx, telltale("paid", "a", "b")))
	must(k.c.Transfer(ctx, telltale("paid", "a", "b")))
	_, err := k.c.Transfer(ctx, telltale("refused", "c", "a"))
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	_, err = k.c.Transfer(ctx, telltale("", "a", "b"))
	require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	must(k.c.Hold(ctx, telltale("posted", "b", "a"), time.Hour))
	must(k.c.Extend(ctx, "posted", 2*time.Hour))
	must(k.c.Post(ctx, "posted"))
	must(k.c.Hold(ctx, telltale("voided", "a", "b"), time.Hour))
	must(k.c.Void(ctx, "voided"))
	must(k.c.Reverse(ctx, transfer.Reversal{ID: "back", Of: "paid", All: true}))
	must(k.c.Submit(ctx, telltale("submitted", "a", "b")))
	must(k.c.Cancel(ctx, "submitted", telltaleValue))
	_, failures := k.c.TransferMany(ctx, []transfer.Request{bank.Move("many1", "a", "b", 1), bank.Move("many2", "b", "a", 1)})
	require.Equal(t, []error{nil, nil}, failures)
	got := k.log.handled()
	slices.Sort(got[len(got)-2:])
	require.Equal(t, []string{
		"transfer paid Success", "transfer paid Success", "transfer refused Fail", "transfer  ", "hold posted Preparing",
		"extend posted Preparing", "post posted Success",
		"hold voided Preparing", "void voided Fail", "reverse back Success", "submit submitted Initiated", "cancel submitted Fail",
		"transfer many1 Success", "transfer many2 Success",
	}, got)
	lines := k.log.of("a transfer was handled")
	require.NotContains(t, lines[0].attrs, words.KeyCause)
	require.Equal(t, `transfer "refused" refused: account "c": insufficient funds (nothing moved; another try needs a new ID)`,
		lines[2].attrs[words.KeyCause].String())
	for _, line := range lines {
		require.Equal(t, slog.LevelDebug, line.level)
		require.Positive(t, line.attrs[words.KeyTook].Duration())
	}
	for _, line := range k.log.all() {
		require.LessOrEqual(t, line.level, slog.LevelDebug, line.text)
	}
	k.requireDiscreetLog()
	k.requireDiscreetRecordsBut("submitted")
	k.CheckBooks(bank.Balances(telltaleBalance, telltaleBalance, 0))
}

// A sweep that recovers logs one line with its counts and the first IDs.
// Expired holds don't count as failed.
// A sweep that has only voided expired holds logs nothing above Debug.
func TestSweepsAreTold(t *testing.T) {
	t.Parallel()
	k := newTalker(t)
	ctx := t.Context()
	k.StallRequest(telltale("stalled", "a", "b"), bank.Settles, bank.Lost)
	k.multiplyHolds(12)
	k.ExpireAll()
	c := k.over(options.Client(), transfer.WithStallThreshold(0))
	report, err := c.Recover(ctx)
	require.NoError(t, err)
	require.Equal(t, transfer.RecoveryReport{Found: 13, Succeeded: 1, Failed: 12, Expired: 12}, report)
	lines := k.log.of("a recovery sweep has ended")
	require.Len(t, lines, 1)
	line := lines[0]
	require.Equal(t, slog.LevelInfo, line.level)
	counts := map[string]int64{}
	for _, key := range []string{words.KeyFound, words.KeySucceeded, words.KeyFailed, words.KeyExpired, words.KeyStuck} {
		counts[key] = line.attrs[key].Int64()
	}
	require.Equal(t, map[string]int64{"found": 13, "succeeded": 1, "failed": 0, "expired": 12, "stuck": 0}, counts)
	ids, isList := line.attrs[words.KeyTransfers].Any().([]string)
	require.True(t, isList)
	require.Len(t, ids, 10)
	handled := k.log.handled()
	require.Len(t, slices.DeleteFunc(handled, func(l string) bool { return !strings.HasPrefix(l, "expire ") }), 12)
	require.Contains(t, k.log.handled(), "recover stalled Success")

	_, err = c.Hold(ctx, telltale("late", "b", "a"), time.Hour)
	require.NoError(t, err)
	k.ExpireAll()
	report, err = c.Recover(ctx)
	require.NoError(t, err)
	require.Equal(t, transfer.RecoveryReport{Found: 1, Failed: 1, Expired: 1}, report)
	lines = k.log.of("a recovery sweep has ended")
	require.Len(t, lines, 2)
	require.Equal(t, slog.LevelDebug, lines[1].level, "holds expire every day")
	k.requireDiscreetLog()
	k.requireDiscreetRecords()
	k.CheckBooks(bank.Balances(telltaleBalance, telltaleBalance, 0))
}

// multiplyHolds creates n holds with long IDs.
func (k talker) multiplyHolds(n int) {
	k.T.Helper()
	for i := range n {
		req := bank.Move(fmt.Sprint(strings.Repeat("long", 50), i), "a", "b", 1)
		_, err := k.Hold(k.T.Context(), req, time.Hour)
		require.NoError(k.T, err)
	}
}

// A worker's runs are logged too.
// A run that only voids expired holds, and runs submitted transfers, logs nothing above
// Debug.
func TestWorkIsTold(t *testing.T) {
	t.Parallel()
	k := newTalker(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	_, err := k.Hold(ctx, telltale("held", "a", "b"), time.Hour)
	require.NoError(t, err)
	k.ExpireAll()
	_, err = k.Submit(ctx, telltale("submitted", "b", "a"))
	require.NoError(t, err)
	end := bank.InBackground(t, k.c)
	_, err = k.Wait(ctx, "submitted")
	require.NoError(t, err)
	_, err = k.Wait(ctx, "held")
	require.ErrorIs(t, err, transfer.ErrExpired)
	end()
	require.ElementsMatch(t, []string{"run submitted Success", "expire held Fail"}, k.log.handled())
	for _, line := range k.log.all() {
		require.LessOrEqual(t, line.level, slog.LevelDebug, line.text)
	}
	k.requireDiscreetLog()
	k.CheckBooks(bank.Balances(telltaleBalance, telltaleBalance, 0))
}

// A repair by hand logs a warning about what it has changed, without the amount and
// without the reason that the operator wrote.
func TestRepairsAreTold(t *testing.T) {
	t.Parallel()
	k := newTalker(t)
	k.SetField("accounts", "a", "pending", bson.M{"lost": int64(-telltaleAmount)})
	err := k.c.RepairMarker(t.Context(), transfer.MarkerRepair{
		Account: "a", TransferID: "lost", Amount: transfer.Units(1 - telltaleAmount), Decision: transfer.KeepBalance, Reason: telltaleValue,
	})
	require.ErrorIs(t, err, transfer.ErrNotRepairable)
	requireDiscreet(t, err.Error(), "")
	require.NoError(t, k.c.RepairMarker(t.Context(), transfer.MarkerRepair{
		Account: "a", TransferID: "lost", Amount: transfer.Units(-telltaleAmount), Decision: transfer.KeepBalance, Reason: telltaleValue,
	}))
	require.Len(t, k.log.of("a marker was removed by hand"), 1)
	_, err = k.c.Transfer(t.Context(), telltale("lost", "a", "b"))
	require.ErrorIs(t, err, transfer.ErrIDConflict)
	_, err = k.c.Wait(t.Context(), "lost")
	require.ErrorIs(t, err, transfer.ErrCancelled)
	requireDiscreet(t, err.Error(), "lost")
	k.requireDiscreetLog()
	k.CheckBooks(bank.Balances(telltaleBalance, telltaleBalance, 0))
}

// requireDiscreetRecordsBut is requireDiscreetRecords, except for one transfer, which was
// cancelled with a reason of the user's own words.
func (k talker) requireDiscreetRecordsBut(id string) {
	k.T.Helper()
	rec, err := k.Get(k.T.Context(), id)
	require.NoError(k.T, err)
	require.Equal(k.T, telltaleValue, rec.Failure.Message)
	require.Equal(k.T, "cancelled", rec.Failure.Code)
}
