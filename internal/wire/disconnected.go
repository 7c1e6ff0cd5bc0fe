package wire

import (
	"errors"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Disconnected reports whether an error says that a client was disconnected. It never
// comes back, so there is no point in another try.
func Disconnected(err error) bool { return errors.Is(err, mongo.ErrClientDisconnected) }
