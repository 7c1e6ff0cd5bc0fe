package verbs

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// MongoDB 8.0 no longer treats undefined as null, and older versions do.
// An account with a field of that deprecated type is refused or accepted, depending on
// the field and the version.
// The transfer is never in doubt, leaves nothing behind and loses no money, whether or
// not the process knows the account already.
func TestUndefinedFieldsOfAccounts(t *testing.T) {
	t.Parallel()
	const refused, accepted, depends = "refused", "accepted", "depends on the version"
	for _, c := range []struct {
		field         string
		atFirst, then string
	}{
		{"balance", refused, refused},
		{"fence", refused, refused},
		{"pending", refused, refused},
		{"floor", refused, depends},
		{"currency", refused, depends},
		{"closed", accepted, accepted},
		{"frozen", accepted, accepted},
	} {
		t.Run(c.field, func(t *testing.T) {
			t.Parallel()
			for _, known := range []bool{false, true} {
				b := bank.New(t, 100, 100)
				expected := c.atFirst
				if known {
					expected = c.then
					_, err := b.Transfer(t.Context(), bank.Move("first", "a", "b", 1))
					require.NoError(t, err)
				}
				state := transferUndefined(b, c.field)
				switch expected {
				case refused:
					require.Equal(t, transfer.StateFail, state, "known %t", known)
				case accepted:
					require.Equal(t, transfer.StateSuccess, state, "known %t", known)
				}
				b.CheckBooks(bank.Balances(100, 100))
			}
		})
	}
}

// transferUndefined tries a debit of account a while a field of it is undefined, and
// restores the field.
// The transfer must be final.
func transferUndefined(b *bank.Bank, field string) transfer.State {
	b.T.Helper()
	accounts := b.DB.Collection("accounts")
	before, err := accounts.FindOne(b.T.Context(), bson.D{{Key: "_id", Value: "a"}}).Raw()
	require.NoError(b.T, err)
	_, err = accounts.UpdateByID(b.T.Context(), "a", bson.M{"$set": bson.M{field: bson.Undefined{}}})
	require.NoError(b.T, err)

	ctx, cancel := context.WithTimeout(b.T.Context(), 5*time.Minute)
	defer cancel()
	rec, err := b.Transfer(ctx, bank.Move("t", "a", "b", 10))
	if err != nil {
		require.NotErrorIs(b.T, err, transfer.ErrInDoubt)
		var refusal *transfer.RefusedError
		require.ErrorAs(b.T, err, &refusal)
	}

	back := bson.M{"$unset": bson.M{field: ""}}
	if value, err := before.LookupErr(field); err == nil {
		back = bson.M{"$set": bson.M{field: value}}
	}
	if field != "fence" || err != nil { // otherwise the transfer has left a fence of its own
		_, err = accounts.UpdateByID(b.T.Context(), "a", back)
		require.NoError(b.T, err)
	}
	return rec.State
}

// The server decides whether undefined meets a requirement of nil, each version in its
// own way.
// If it does not, the effect is refused, and the document stays as it is.
func TestUndefinedIsRequiredToBeNil(t *testing.T) {
	t.Parallel()
	b := bank.NewShop(t, 100, 0)
	b.Insert("orders", bson.D{{Key: "_id", Value: "odd"}, {Key: "status", Value: bson.Undefined{}}})
	request := bank.Payment("p", "odd", 10)
	request.Effects[0].Require = bson.D{{Key: "status", Value: nil}}
	_, err := b.Transfer(t.Context(), request)
	if major(b) < 8 {
		require.NoError(t, err)
		b.RequireOrder("odd", "paid", false)
	} else {
		require.ErrorIs(t, err, transfer.ErrRequirementFailed)
	}
	b.CheckBooks(bank.Balances(100, 0))
}

// major returns the server's major version.
func major(b *bank.Bank) int {
	b.T.Helper()
	var reply struct {
		Version string `bson:"version"`
	}
	command := bson.D{{Key: "buildInfo", Value: 1}}
	require.NoError(b.T, b.DB.RunCommand(b.T.Context(), command).Decode(&reply))
	first, _, _ := strings.Cut(reply.Version, ".")
	major, err := strconv.Atoi(first)
	require.NoError(b.T, err)
	return major
}
