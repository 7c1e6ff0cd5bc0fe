package texts

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
	"github.com/mongotransfer/transfer/internal/words"
)

// about returns the lines about one transfer from a level on, in short.
func (k talker) about(id string, from slog.Level) (lines []string) {
	for _, l := range k.log.all() {
		if l.level < from || l.attrs[words.KeyTransfer].String() != id {
			continue
		}
		line := fmt.Sprintf("%s %s", l.level, l.message)
		for _, key := range []string{words.KeyVerb, words.KeyStage, words.KeyState} {
			if value, has := l.attrs[key]; has {
				line += " " + value.String()
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// requireSmooth requires what is shown of a transfer that nothing has disturbed.
func (k talker) requireSmooth(id string) {
	k.T.Helper()
	told := k.about(id, slog.LevelDebug)
	last := len(told) - 1
	require.Equal(k.T, "DEBUG a transfer was handled transfer Success", told[last])
	var stages []string
	for _, line := range told[:last] {
		stage, found := strings.CutPrefix(line, "DEBUG a transfer has come to a stage ")
		require.True(k.T, found, line)
		stages = append(stages, stage)
	}
	want := []string{"read", "claim", "prepare", "settle", "clear", "finish"}
	require.Equal(k.T, want, bank.WithoutDoubt(want, stages))
}

// One transfer can be followed by its ID, through all processes: at Debug each stage, at
// Info who has taken it over and that a call's answer is in doubt, at Warn what is in its
// way.
// An undisturbed transfer has nothing above Debug.
func TestOneTransferIsFollowed(t *testing.T) {
	t.Parallel()
	k := newTalker(t)
	_, err := k.c.Transfer(t.Context(), telltale("smooth", "a", "b"))
	require.NoError(t, err)
	k.requireSmooth("smooth")

	w := &bank.Wire{Is: bank.Settles.Selector(), What: bank.Swallowed} // the pays are lost, and the process dies
	dying := k.over(w.Client())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answer := make(chan error, 1)
	go func() {
		_, err := dying.Transfer(ctx, telltale("followed", "b", "a"))
		answer <- err
	}()
	require.Eventually(t, func() bool { return w.HasStruck() && k.RawTransfer("followed").State == "Committed" },
		5*time.Minute, time.Millisecond)
	w.Cut()
	cancel()
	bank.Kill(dying)
	require.ErrorIs(t, bank.Within(t, answer), transfer.ErrUnsettled)
	restore := bank.Deleted("a")(k.Bank)
	sweeper := k.over(options.Client(), transfer.WithStallThreshold(0))
	report, err := sweeper.Recover(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, report.Stuck)
	restore()
	report, err = sweeper.Recover(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, report.Succeeded)
	require.Equal(t, []string{
		"INFO a transfer was handled transfer Committed",
		"INFO a transfer was taken over Committed",
		"WARN a transfer is stuck",
		"INFO a transfer was taken over Committed",
	}, k.about("followed", slog.LevelInfo))
	all := k.about("followed", slog.LevelDebug)
	require.Equal(t, []string{"DEBUG a transfer has come to a stage finish", "DEBUG a transfer was handled recover Success"}, all[len(all)-2:])
	for _, l := range k.log.of("a transfer was taken over") {
		require.NotEmpty(t, l.attrs[words.KeyOwner].String())
		require.Positive(t, l.attrs[words.KeyIdle].Duration())
	}
	k.requireDiscreetLog()
	k.CheckBooks(bank.Balances(telltaleBalance, telltaleBalance, 0))
}
