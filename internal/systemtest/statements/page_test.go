package statements

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// Pages that continue after each other's last entries add up to the statement, with any
// number of entries in a millisecond, in either order, and between any bounds.
func TestStatementPageByPage(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 11).WithIndexes()
	begin := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	var documents []any
	for i, ms := range []int{0, 1, 1, 1, 1, 2, 3, 3, 5, 5, 5} {
		documents = append(documents, bson.M{
			"_id": fmt.Sprintf("t%02d", i), "state": "Success", "committedAt": begin.Add(time.Duration(ms) * time.Millisecond),
			"legs": bson.A{bson.M{"ledger": "", "account": "a", "amount": int64(1)}},
		})
	}
	b.Insert("transfers", documents...)
	for _, q := range []transfer.StatementQuery{
		{}, {NewestFirst: true},
		{After: begin, Before: begin.Add(4 * time.Millisecond)},
		{After: begin, Before: begin.Add(4 * time.Millisecond), NewestFirst: true},
	} {
		whole := b.MustStatement(b.MustLedger(""), "a", q)
		require.Len(t, whole, map[bool]int{true: 11, false: 7}[q.After.IsZero()])
		for q.Limit = 1; q.Limit <= len(whole)+1; q.Limit++ {
			q.Beyond = transfer.Entry{}
			var pages []transfer.Entry
			for page := range slices.Chunk(whole, q.Limit) {
				require.Equal(t, page, b.MustStatement(b.MustLedger(""), "a", q), "%+v", q)
				pages = append(pages, page...)
				q.Beyond = transfer.Entry{TransferID: page[len(page)-1].TransferID, At: page[len(page)-1].At}
			}
			require.Equal(t, whole, pages)
			require.Empty(t, b.MustStatement(b.MustLedger(""), "a", q), "nothing is beyond the last")
		}
	}
}
