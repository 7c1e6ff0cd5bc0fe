package mongotest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	// givenLimit is how long the server that MONGODB_URI names may take to answer.
	givenLimit = 30 * time.Second
	// wireVersion50 is what a server of version 5.0 announces as its maxWireVersion.
	wireVersion50 = 13
)

// helloReply is what the package reads of a server's reply to the hello command.
type helloReply struct {
	SetName           string `bson:"setName"`
	Msg               string `bson:"msg"`
	IsWritablePrimary bool   `bson:"isWritablePrimary"`
	MaxWireVersion    int    `bson:"maxWireVersion"`
}

// useGiven returns the server that MONGODB_URI names.
// Its errors don't contain the URI, because the URI may contain a password.
func useGiven(ctx context.Context, uri string) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, givenLimit)
	defer cancel()
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return nil, fmt.Errorf("mongotest: MONGODB_URI can't be used: %w", err)
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()

	hello, err := sayHello(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("mongotest: no replica set with a primary and no mongos answers at MONGODB_URI: %w", err)
	}
	if err := judge(hello); err != nil {
		return nil, fmt.Errorf("mongotest: the server at MONGODB_URI can't be used: %w", err)
	}
	server := newServer(uri, func() error { return nil })
	if err := server.identify(ctx); err != nil {
		return nil, fmt.Errorf("mongotest: the server at MONGODB_URI can't be used: %w", err)
	}
	return server, nil
}

// judge returns an error if a server with this reply to hello can't be used.
func judge(hello helloReply) error {
	if hello.SetName == "" && hello.Msg != "isdbgrid" {
		return errors.New("it is neither a member of an initiated replica set nor a mongos (start mongod with --replSet)")
	}
	if hello.MaxWireVersion < wireVersion50 {
		return errors.New("it is older than version 5.0")
	}
	return nil
}

func sayHello(ctx context.Context, client *mongo.Client) (helloReply, error) {
	var hello helloReply
	err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello)
	return hello, err
}
