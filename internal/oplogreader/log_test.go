package oplogreader

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/storetest"
)

// A log handler may call what waits for the reader.
func TestLogHandlerMayCallBack(t *testing.T) {
	var r *Reader
	handler := storetest.NewCalling(func() {
		free := r.mu.TryLock()
		if free {
			r.mu.Unlock()
		}
		require.True(t, free, "it logs with the lock")
	})
	s := &server{fails: io.EOF}
	r = New(s.openStream, slog.New(handler), time.Now)
	r.keepOpen(slow)
	require.Equal(t, 1, handler.Calls())
	require.False(t, r.retryAt.IsZero())
}
