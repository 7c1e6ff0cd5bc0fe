package soak

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

const (
	user = "service"
	role = "soakService"
)

// users manages the service's user and its rights.
type users struct {
	db       *mongo.Database
	password string
}

// uri returns the connection string of the service.
func (u users) uri(host string) string {
	return "mongodb://" + user + ":" + u.password + "@" + host + "&authSource=" + database
}

// create stores the user, with all rights.
func (u users) create(ctx context.Context) error {
	if err := u.run(ctx, "createRole", role, bson.D{
		{Key: "privileges", Value: u.privileges(true)}, {Key: "roles", Value: bson.A{}},
	}); err != nil {
		return err
	}
	return u.run(ctx, "createUser", user, bson.D{
		{Key: "pwd", Value: u.password}, {Key: "roles", Value: bson.A{role}},
	})
}

// grant gives the service all rights, or all except the right to change accounts.
func (u users) grant(ctx context.Context, whole bool) error {
	return u.run(ctx, "updateRole", role, bson.D{{Key: "privileges", Value: u.privileges(whole)}})
}

func (u users) run(ctx context.Context, command, name string, rest bson.D) error {
	return u.db.RunCommand(ctx, append(bson.D{{Key: command, Value: name}}, rest...)).Err()
}

// privileges returns the rights of a service that does its own set-up.
func (u users) privileges(whole bool) bson.A {
	on := func(collection string, actions ...string) bson.D {
		return bson.D{
			{Key: "resource", Value: bson.D{{Key: "db", Value: database}, {Key: "collection", Value: collection}}},
			{Key: "actions", Value: actions},
		}
	}
	all := bson.A{
		on("", "find", "insert", "remove", "listCollections", "listIndexes", "createCollection", "createIndex", "collMod", "changeStream"),
		on("transfers", "update"),
	}
	if whole {
		all = append(all, on("", "update"))
	}
	return all
}
