package transfer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
)

// Metadata finds a transfer by each of its keys: numbers by value, lists by an element too, maps whole; a value of nothing is not the
// same as none. What was read back finds it as well.
func TestMetadataQueries(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	due := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	full := map[string]any{
		"text": "Zoë", "number": 5, "large": int64(1) << 40, "fraction": 2.5, "yes": true, "nothing": nil, "due": due, "0": "digit",
		"tags": []string{"new", "gift"}, "where": map[string]any{"b": 2, "a": map[string]string{"y": "1", "x": "2"}},
		"amount": decimal(t, "12.50"), "raw": []byte{1, 2}, "pattern": bson.Regex{Pattern: "^Z"},
	}
	req := move("full", "a", "b", 1)
	req.Metadata = full
	rec, err := b.Transfer(t.Context(), req)
	require.NoError(t, err)
	req = move("other", "a", "b", 1)
	req.Metadata = map[string]any{"text": "zoë", "number": "5", "tags": []string{"new"}, "where": map[string]any{"b": 2}, "yes": false}
	_, err = b.Transfer(t.Context(), req)
	require.NoError(t, err)
	_, err = b.Transfer(t.Context(), move("bare", "a", "b", 1))
	require.NoError(t, err)

	one := []string{"full"}
	for key, value := range full {
		want := one
		require.Equal(t, want, b.ids(transfer.Query{Metadata: map[string]any{key: value}}), key)
	}
	require.Equal(t, one, b.ids(transfer.Query{Metadata: full}))
	require.Equal(t, one, b.ids(transfer.Query{Metadata: rec.Metadata}), "as it is read back")
	for _, c := range []struct {
		metadata map[string]any
		want     []string
	}{
		{map[string]any{"number": int64(5)}, one},
		{map[string]any{"number": 5.0}, one},
		{map[string]any{"number": decimal(t, "5")}, one},
		{map[string]any{"tags": "gift"}, one},
		{map[string]any{"tags": "new"}, []string{"other", "full"}},
		{map[string]any{"tags": []string{"gift", "new"}}, []string{}},
		{map[string]any{"where": map[string]any{"a": map[string]string{"x": "2", "y": "1"}, "b": 2}}, one},
		{map[string]any{"where": map[string]any{"a": map[string]string{"x": "2", "y": "1"}}}, []string{}},
		{map[string]any{"text": "Zoë", "number": 6}, []string{}},
		{map[string]any{"text": bson.Regex{Pattern: "^Z"}}, []string{}},
		{map[string]any{"nobody": nil}, []string{}},
		{map[string]any{}, []string{"bare", "other", "full"}},
	} {
		require.Equal(t, c.want, b.ids(transfer.Query{Metadata: c.metadata}), "%v", c.metadata)
	}
	b.audit(initial(100, 0))
}
