package returnat

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// A transfer alone costs six commands, and one more where its fences are read first:
// claim, prepares, pays and record side by side, clears, finish.
// They write eight documents.
// An answer at the commit needs two of them, the default one four, which are three waits.
//
// On a busy machine a command may be sent again: such a try does not count.
func TestTransferCostsSixCommands(t *testing.T) {
	t.Parallel()
	for tries := 3; !sixCommands(t, tries == 1); tries-- {
		t.Log("once more: there were other commands")
	}
}

// sixCommands plays the test, and reports whether the commands were as they should be.
// The last time it requires that.
func sixCommands(t *testing.T, last bool) bool {
	t.Helper()
	b := bank.New(t, 100, 0)
	writes := []string{"insert", "update", "update", "update", "update", "update"}
	for name, row := range map[string]struct {
		at       []transfer.Option
		answered int // commands before the answer
		awaited  int // documents written by then
	}{
		"at the commit":  {[]transfer.Option{transfer.WithReturnAt(transfer.AtCommit)}, 2, 3},
		"when settled":   {[]transfer.Option{transfer.WithReturnAt(transfer.AtSettled)}, 4, 5},
		"at the success": {[]transfer.Option{transfer.WithReturnAt(transfer.AtSuccess)}, 6, 8},
	} {
		s := bank.NewSluice()
		db := b.Through(s.Options())
		remembers, forgets := b.NewCoordinator(db, row.at...), b.NewCoordinator(db, append(row.at, transfer.WithFenceCache(0))...)
		for _, c := range []*transfer.Coordinator{remembers, forgets} {
			require.NoError(t, c.Setup(t.Context())) // it learns about the deployment
		}
		for i, c := range []*transfer.Coordinator{remembers, remembers, forgets, forgets} {
			reads := 1
			if i == 1 {
				reads = 0 // the first one has read the fences
			}
			s.Reset(reads+row.answered, reads+4) // the record comes before the pays are answered, or the other way round
			id := fmt.Sprint(name, " ", i)
			rec, err := c.Transfer(context.WithValue(t.Context(), bank.CallerKey{}, "me"), bank.Move(id, "a", "b", 1))
			require.NoError(t, err)
			require.True(t, rec.State.Decided())
			want := slices.Concat([]string{"find"}[:reads], writes)
			commands, values := s.SoFar()
			if !last && !slices.Equal(want[:reads+row.answered], commands) {
				s.Open()
				return false
			}
			require.Equal(t, want[:reads+row.answered], commands, name)
			for _, value := range values {
				require.Equal(t, "me", value, "whoever traces a command finds the caller's values")
			}
			require.Equal(t, row.awaited, s.Documents(), name)
			s.Open()
			_, err = c.Wait(t.Context(), id)
			require.NoError(t, err)
			require.Eventually(t, func() bool { return s.Documents() == 8 }, time.Minute, time.Millisecond, "the last answer is counted, too")
			_, values = s.SoFar()
			for _, value := range values[reads+row.answered:] {
				require.Nil(t, value, "the call is over")
			}
		}
	}
	b.CheckBooks(bank.Balances(100, 0))
	return true
}
