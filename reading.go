package transfer

import (
	"context"
	"errors"

	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// readable is ready for who only reads: it refuses work on a closed coordinator, or on an unfit
// server, and writes nothing. 1. A reads from a standalone server, which has no majority: it is told
// what may be taken back, or nothing for as long as a server that is away is waited for. 2. Only its
// first transfer tells A why. Once the servers are known to be fit it costs next to nothing.
func (c *Coordinator) readable(ctx context.Context, places ...mongostore.Address) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	var try persistence
	for try.again(ctx, c) {
		if c.engine.Closed() {
			return ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		err := c.store.Fit(ctx, places...)
		if err == nil || errors.Is(err, mongostore.ErrUnsupported) {
			return deployment(err)
		}
		try.went(protocol.NotSent, err)
	}
	return try.fails(errors.New("the server can't be reached"))
}
