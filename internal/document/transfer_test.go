package document

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A transfer is reserved by a marker, and not by a done mark.
func TestReserved(t *testing.T) {
	for reserved, maps := range map[bool][]bson.D{
		false: {nil, {}, {{Key: DoneKey("r"), Value: int64(0)}}},
		true: {
			{{Key: MarkerKey("r"), Value: int64(0)}}, {{Key: MarkerKey("100%"), Value: int64(0)}},
			{{Key: DoneKey("r"), Value: int64(0)}, {Key: MarkerKey("s"), Value: int64(0)}},
		},
	} {
		for _, pending := range maps {
			var raw bson.Raw
			if pending != nil {
				var err error
				raw, err = bson.Marshal(pending)
				require.NoError(t, err)
			}
			require.Equal(t, reserved, Transfer{Pending: raw}.ReservedByOther("") != "", "%v", pending)
		}
	}
}
