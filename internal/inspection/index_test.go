package inspection

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// An index that is to become unique refuses duplicates already, although it is listed as
// not unique: it does not serve as one of the library's.
func TestIndexThatIsToBecomeUnique(t *testing.T) {
	t.Parallel()
	for _, model := range ownIndexes(true) {
		own, err := asListed(model)
		require.NoError(t, err)
		listed := bson.M{"name": "mine", "key": own.Key}
		if own.Partial != nil {
			listed["partialFilterExpression"] = own.Partial
		}
		if own.Expiry.Type != 0 {
			listed["expireAfterSeconds"] = own.Expiry
		}
		require.True(t, read(t, listed).serves(own), own.Name)
		require.False(t, read(t, listed).unique())
		for _, option := range []string{"unique", "prepareUnique"} {
			listed[option] = true
			require.False(t, read(t, listed).serves(own), own.Name)
			require.True(t, read(t, listed).unique())
			delete(listed, option)
		}
	}
}

// read reads an index as the server lists it.
func read(t *testing.T, listed bson.M) index {
	t.Helper()
	encoded, err := bson.Marshal(listed)
	require.NoError(t, err)
	var x index
	require.NoError(t, bson.Unmarshal(encoded, &x))
	return x
}
