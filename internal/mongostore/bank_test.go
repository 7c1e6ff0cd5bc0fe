package mongostore_test

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/storetest"
)

// bank is a storetest.Bank with the operations of this package's tests.
type bank struct{ *storetest.Bank }

// newBank returns a bank on a new database.
func newBank(t *testing.T, changes ...func(*storetest.Config)) *bank {
	t.Helper()
	return &bank{storetest.New(t, changes...)}
}

// newBankOf returns a bank whose store works through a client with the given options.
func newBankOf(t *testing.T, client *options.ClientOptions, changes ...func(*storetest.Config)) *bank {
	t.Helper()
	return &bank{storetest.NewOf(t, client, changes...)}
}
