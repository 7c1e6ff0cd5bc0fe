package collections

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/mongotest"
)

// A server must acknowledge by majority and be of version 5.0 or later.
func TestSupported(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		answer HelloAnswer
		fine   bool
	}{
		"replica set":      {HelloAnswer{SetName: "rs", MaxWireVersion: 13}, true},
		"mongos":           {HelloAnswer{Message: "isdbgrid", MaxWireVersion: 17}, true},
		"standalone":       {HelloAnswer{MaxWireVersion: 17}, false},
		"not initiated":    {HelloAnswer{Message: "other", MaxWireVersion: 17}, false},
		"old replica set":  {HelloAnswer{SetName: "rs", MaxWireVersion: 12}, false},
		"old mongos":       {HelloAnswer{Message: "isdbgrid", MaxWireVersion: 9}, false},
		"a later, far one": {HelloAnswer{SetName: "rs", MaxWireVersion: 99}, true},
	} {
		if err := row.answer.Supported(); row.fine {
			require.NoError(t, err, name)
		} else {
			require.ErrorIs(t, err, ErrUnsupported, name)
		}
	}
	answer, err := Hello(t.Context(), mongotest.Database(t).Collection("transfers"))
	require.NoError(t, err)
	require.NoError(t, answer.Supported())
	assert.False(t, answer.Routed())
	assert.WithinDuration(t, time.Now(), answer.LocalTime, time.Minute)
}
