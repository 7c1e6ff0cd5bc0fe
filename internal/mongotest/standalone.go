package mongotest

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// StartStandalone starts a mongod that is a member of no replica set.
// The library refuses to work on such a server.
// The mongod is the one on the PATH, or the one in the cache folder, which is fetched if
// need be.
// The context bounds the start alone.
// The server runs until Stop is called or this process ends.
func StartStandalone(ctx context.Context) (*Server, error) {
	path, err := findMongod(ctx)
	if err != nil {
		return nil, fmt.Errorf("mongotest: no mongod could be had for a standalone server: %w", err)
	}
	standalone := launch{
		flags: func(string) ([]string, error) { return standaloneFlags(), nil },
		ready: func(ctx context.Context, m member, ended <-chan struct{}) error {
			return m.reach(ctx, ended, func(context.Context, *mongo.Client) error { return nil })
		},
	}
	m, process, err := standalone.start(ctx, path)
	if err != nil {
		return nil, err
	}
	return newServer("mongodb://"+m.host+"/", process.stop), nil
}
