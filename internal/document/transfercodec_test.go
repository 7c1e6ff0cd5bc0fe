package document_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// A transfer is encoded into memory that is allocated once, whatever it has; what is open
// in it takes another allocation.
func TestEncodeAllocatesLittle(t *testing.T) {
	metadata, err := bson.Marshal(bson.M{"order": strings.Repeat("o", 500)})
	require.NoError(t, err)
	for _, n := range []int{1, 20, document.MaxIDBytes} {
		text, now, half := strings.Repeat("x", n), time.Now(), money.Units(1).Decimal()
		leg := document.Leg{Ledger: text, Namespace: text, Account: text, Amount: half, Currency: text}
		tr := document.Transfer{
			ID: text, State: protocol.Initiated, Open: true, Legs: []document.Leg{leg, leg}, Currency: text,
			Digest: document.Digest{Format: document.Format, Sum: make([]byte, 33)}, Owner: text, CreatedAt: now, LastModified: now,
			NotBefore: now, FundsUntil: now,
			Hold: true, ExpiresAt: now, AtMost: &half, Reverses: text, Metadata: metadata,
			Effects: []document.Effect{{Documents: text, Namespace: text, ID: wire.RawText(text), Require: metadata, Set: metadata}},
		}
		require.LessOrEqual(t, testing.AllocsPerRun(100, func() { tr.Encode() }), 2.0)
	}
}
