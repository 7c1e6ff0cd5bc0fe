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
	s := &server{fails: io.EOF}
	r := New(s.openStream, nil, time.Now)
	handler := storetest.NewWithoutLock(t, &r.mu)
	r.log = slog.New(handler)
	r.keepOpen(slow)
	require.Equal(t, 1, handler.Records())
	require.False(t, r.retryAt.IsZero())
}
