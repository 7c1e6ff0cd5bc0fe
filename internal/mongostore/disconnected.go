package mongostore

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Disconnected reports whether an error says that a client was disconnected. It never comes back,
// so there is no point in another try.
func Disconnected(err error) bool { return errors.Is(err, mongo.ErrClientDisconnected) }

// Fit makes sure that the servers of the transfers and of the given places can be used, for who only
// reads: nothing is written, as it is by [Store.Connect].
func (s *Store) Fit(ctx context.Context, places ...Address) error {
	ctx = detached(ctx)
	if err := s.fit(ctx, s.transfers); err != nil {
		return err
	}
	for _, p := range places {
		if err := s.fit(ctx, s.place(p).commands); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	return nil
}
