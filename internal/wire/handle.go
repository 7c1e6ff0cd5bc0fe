package wire

import (
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// ForCommands returns a handle of the same collection whose concerns are the library's
// own, and not the client's.
func ForCommands(c *mongo.Collection) *mongo.Collection {
	concerns := options.Database().
		SetReadPreference(readpref.Primary()).SetReadConcern(readconcern.Majority()).SetWriteConcern(writeconcern.Majority())
	return c.Database().Client().Database(c.Database().Name(), concerns).Collection(c.Name())
}

// ForReads returns the collection for reads from the primary, whatever the client
// prefers.
func ForReads(c *mongo.Collection, concern *readconcern.ReadConcern) *mongo.Collection {
	return c.Clone(options.Collection().SetReadConcern(concern).SetReadPreference(readpref.Primary()))
}

// NamespaceOf returns a collection's database and name, such as "bank.accounts".
func NamespaceOf(c *mongo.Collection) string { return c.Database().Name() + "." + c.Name() }
