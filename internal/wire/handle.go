package wire

import (
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// ForCommands returns a handle of the same collection whose concerns and codecs are the
// library's own, and not the client's.
func ForCommands(c *mongo.Collection) *mongo.Collection { return ForReads(c, readconcern.Majority()) }

// ForReads returns such a handle with another read concern.
// It encodes and decodes as the driver does by default: with a codec of the user's, such
// as one that trims texts, a read would search for another ID, or time, than is stored.
func ForReads(c *mongo.Collection, concern *readconcern.ReadConcern) *mongo.Collection {
	handle := options.Database().
		SetReadPreference(readpref.Primary()).SetReadConcern(concern).SetWriteConcern(writeconcern.Majority()).
		SetRegistry(bson.NewRegistry()).SetBSONOptions(&options.BSONOptions{})
	return c.Database().Client().Database(c.Database().Name(), handle).Collection(c.Name())
}

// NamespaceOf returns a collection's database and name, such as "bank.accounts".
func NamespaceOf(c *mongo.Collection) string { return c.Database().Name() + "." + c.Name() }
