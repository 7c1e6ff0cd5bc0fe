package transfer

import (
	"context"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// answersCommitted reports whether a committed transfer is where a caller gets its
// answer, by what WithReturnAt says.
// Another call, of this process or another, runs the transfer, and it may take a while
// until nothing is left to be done.
func (c *Coordinator) answersCommitted(ctx context.Context, stored document.Transfer) bool {
	switch c.settings.returnAt {
	case AtCommit:
		return true
	case AtSettled:
		return c.arrived(ctx, stored)
	default:
		return false
	}
}

// arrived reports whether the money of a committed transfer is there for every reader.
// The servers have to be known as those of the deployment: on another one nobody has a
// marker, which would look as if all were paid.
func (c *Coordinator) arrived(ctx context.Context, stored document.Transfer) bool {
	if stored.State != protocol.Committed || sound(stored) != nil {
		return false
	}
	attempt, err := c.store.NewAttempt(stored, "")
	if err != nil || c.connect(ctx, &stored) != nil {
		return false
	}
	limited, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	arrived, err := c.store.Arrived(limited, attempt)
	return err == nil && arrived
}
