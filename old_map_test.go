package transfer_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
)

// An account on which the user keeps the amounts of orders, by the IDs that the transfers
// have too, keeps nobody from a deployment that has no notes yet: nothing would get it going
// again, as the names that are asked for are the right ones.
func TestOldDeploymentWithAMapOfTheUsers(t *testing.T) {
	t.Parallel()
	b := newBank(t, 100, 0)
	b.stallAt("order-17", 3, lost, 60) // both are prepared
	b.set("accounts", "b", "orders", bson.M{"order-17": int64(60)})
	b.stallAt("order-18", 2, lost, 20) // nothing is
	b.set("accounts", "b", "orders", bson.M{"order-17": int64(60), "order-18": int64(20)})
	b.forgetNotes()
	c := b.coordinator(b.db, transfer.WithStallThreshold(0))
	require.NoError(t, c.Setup(t.Context()))
	b.recoverAll()
	b.audit(initial(100, 0))
}
