package wire

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Detached returns a context without the caller's session.
// Our writes are never part of a transaction of the caller's, which could be rolled back
// after we have said that money moved.
func Detached(ctx context.Context) context.Context { return mongo.NewSessionContext(ctx, nil) }
