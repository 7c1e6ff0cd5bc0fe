package mongostore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// An extension matches the hold that was read, while it is held, has not expired, and
// would not expire earlier, by the server's clock.
// It takes the hold over, and changes nothing else: who had it decides nothing any more.
func TestExtend(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	in := func(d time.Duration) bson.M { return bson.M{"expiresAt": time.Now().Add(d)} }
	for name, row := range map[string]struct {
		change  bson.M
		matches bool
		longer  bool // it is held, and lasts longer already
	}{
		"held":                 {bson.M{"held": true}, true, false},
		"expires soon":         {in(time.Minute), true, false},
		"has expired":          {in(-time.Second), false, false},
		"expires later":        {in(3 * time.Hour), false, true},
		"has no time":          {bson.M{"expiresAt": nil}, false, false},
		"not held":             {bson.M{"held": nil}, false, false},
		"no hold":              {bson.M{"hold": nil}, false, false},
		"posted":               {bson.M{"state": "Committed"}, false, false},
		"voided":               {bson.M{"state": "Rollback"}, false, false},
		"later, and not held":  {bson.M{"expiresAt": time.Now().Add(3 * time.Hour), "held": nil}, false, false},
		"later, and posted":    {bson.M{"expiresAt": time.Now().Add(3 * time.Hour), "state": "Committed"}, false, false},
		"another one's digest": {bson.M{"digest": bson.Binary{Subtype: 0x80, Data: []byte{1, 43}}}, false, false},
	} {
		a := b.holding(name, b.Leg("alice", -60), b.Leg("bob", 60))
		b.Applied(a, markHeld(1, true))
		b.Change("transfers", name, bson.M{"$set": bson.M{"lastModified": time.Now().Add(-time.Hour)}})
		b.Change("transfers", name, bson.M{"$set": row.change})
		before := b.Raw("transfers", name)
		_, longer, err := b.Store.ReadLonger(t.Context(), name, 2*time.Hour)
		require.NoError(t, err, name)
		require.Equal(t, row.longer, longer, name)
		after, result, err := b.Store.Extend(t.Context(), a.Transfer, "$another", 2*time.Hour)
		require.NoError(t, err, name)
		if !row.matches {
			require.Equal(t, protocol.NotMatched, result, name)
			require.Equal(t, before, b.Raw("transfers", name), name)
			continue
		}
		require.Equal(t, protocol.Applied, result, name)
		want, stored := storetest.AsMap(t, before), storetest.AsMap(t, b.Raw("transfers", name))
		for field, in := range map[string]time.Duration{"expiresAt": 2 * time.Hour, "lastModified": 0} {
			at := stored[field].(bson.DateTime)
			require.WithinDuration(t, time.Now().Add(in), at.Time(), time.Minute, "%s: %s", name, field)
			want[field] = at
		}
		want["epoch"], want["owner"] = int64(2), "$another"
		require.Equal(t, want, stored, name)
		assert.Equal(t, stored["expiresAt"].(bson.DateTime).Time().UTC(), after.ExpiresAt.UTC(), name)
		assert.True(t, after.HeldNow(), name)
		assert.Equal(t, protocol.NotMatched, b.On(a, storetest.Decide(protocol.Rollback, 1)).Result, name)
		assert.False(t, b.On(a, storetest.About(protocol.LookTransfer)).Transfer.Mine, name)
	}
}
