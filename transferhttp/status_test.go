package transferhttp_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/transferhttp"
)

// The status of each error is the one that docs/errors.md has for its row, and no row is
// left out.
func TestStatusOf(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/errors.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "## Over HTTP\n")
	require.True(t, found)
	documented := map[string]string{}
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) == 5 && !strings.HasPrefix(line, "|---") {
			documented[strings.TrimSpace(cells[1])] = strings.TrimSpace(cells[2])
		} else if strings.HasPrefix(line, "## ") {
			break
		}
	}
	delete(documented, "outcome")
	delete(documented, "a path that is not there, or has other methods")
	for row, errs := range map[string][]error{
		"`Moved`": {nil, transfer.ErrUnsettled, fmt.Errorf("pay: %w", transfer.ErrUnsettled)},
		"`InDoubt`, and `NothingStored` but for `ErrInvalidRequest`": {
			transfer.ErrInDoubt, fmt.Errorf("%w: %w", transfer.ErrInvalidRequest, transfer.ErrInDoubt), errors.New("of another library"),
			transfer.ErrClosed, transfer.ErrUnauthorized, transfer.ErrUnsupportedDeployment, context.Canceled, context.DeadlineExceeded,
		},
		"`ErrInvalidRequest`, no key, or a malformed one": {transfer.ErrInvalidRequest, fmt.Errorf("pay: %w", transfer.ErrInvalidRequest)},
		"`Failed`": {
			transfer.ErrCancelled, transfer.ErrExpired, &transfer.RefusedError{Err: transfer.ErrInsufficientFunds},
			&transfer.RefusedError{Err: transfer.ErrAccountNotFound}, &transfer.RefusedError{Err: transfer.ErrReversalExceeds},
		},
		"`ErrIDConflict`": {transfer.ErrIDConflict},
		"`ErrTransferNotFound`, and `ErrAccountNotFound` of an account that was asked for": {
			transfer.ErrTransferNotFound, transfer.ErrAccountNotFound,
		},
		"`ErrHistoryGone`":  {transfer.ErrHistoryGone},
		"`ErrAuditTooLong`": {transfer.ErrAuditTooLong},
		"any other `Unchanged`": {
			transfer.ErrAlreadyCommitted, transfer.ErrAlreadyReversed, transfer.ErrReversalExceeds, transfer.ErrNotReversible,
			transfer.ErrNotHeld, transfer.ErrAccountExists, transfer.ErrAccountNotEmpty, transfer.ErrNotRepairable,
			transfer.ErrAccountClosed, transfer.ErrAccountBusy,
		},
	} {
		require.Contains(t, documented, row)
		for _, err := range errs {
			status := fmt.Sprint(transferhttp.StatusOf(err))
			require.Contains(t, documented[row], status, "%v", err)
			if row != "`Moved`" {
				require.True(t, strings.HasPrefix(documented[row], status), "%v", err)
			}
		}
		delete(documented, row)
	}
	require.Empty(t, documented)
	require.Equal(t, 200, transferhttp.StatusOf(nil))
	require.Equal(t, 202, transferhttp.StatusOf(transfer.ErrUnsettled))
}
