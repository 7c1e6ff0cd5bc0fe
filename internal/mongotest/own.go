package mongotest

import (
	"context"
	"errors"
	"fmt"
)

// StartOwn starts a server of the caller's own, whatever MONGODB_URI names.
// It tries the ways that the package documentation describes.
// Use it for a second replica set beside that of [Main], or for one that a test may stop.
// It returns the server once it accepts writes.
// The context bounds the start alone.
// The server runs until Stop is called or this process ends.
func StartOwn(ctx context.Context) (*Server, error) {
	ways := []struct {
		name  string
		start func(context.Context) (*Server, error)
	}{
		{"a mongod on the PATH", startFromPath},
		{"a mongod fetched before", startFromCache},
		{"Docker", startContainer},
		{"a mongod fetched with pip", startFetched},
	}
	var failed error
	for _, way := range ways {
		server, err := way.start(ctx)
		if err == nil {
			if err = server.identify(ctx); err == nil {
				return server, nil
			}
			err = errors.Join(err, server.Stop())
		}
		failed = errors.Join(failed, fmt.Errorf("  - %s: %w", way.name, err))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("%s%w", advice, failed)
}
