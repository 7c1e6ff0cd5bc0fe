package bank

import (
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Deleted removes an account behind the library's back, and returns how it comes back as
// it was.
func Deleted(account string) func(b *Bank) func() {
	return func(b *Bank) func() {
		accounts := b.DB.Collection("accounts")
		var document bson.Raw
		require.NoError(b.T, accounts.FindOneAndDelete(b.T.Context(), bson.D{{Key: "_id", Value: account}}).Decode(&document))
		return func() { b.Insert("accounts", document) }
	}
}

// Forbidden lets a validator refuse every change of an account.
func Forbidden(account string) func(b *Bank) func() {
	return func(b *Bank) func() {
		validate := func(condition bson.M) {
			command := bson.D{{Key: "collMod", Value: "accounts"}, {Key: "validator", Value: condition}}
			require.NoError(b.T, b.DB.RunCommand(b.T.Context(), command).Err())
		}
		validate(bson.M{"_id": bson.M{"$ne": account}})
		return func() { validate(bson.M{}) }
	}
}

// Failing makes the server of a bank, which is its own, fail commands of a client.
func (b *Bank) Failing(app string, mode any, command string, code int) {
	b.T.Helper()
	require.NoError(b.T, b.DB.Client().Database("admin").RunCommand(b.T.Context(), bson.D{
		{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: mode},
		{Key: "data", Value: bson.M{"failCommands": bson.A{command}, "appName": app, "errorCode": code}},
	}).Err())
}
