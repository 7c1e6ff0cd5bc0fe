package transfer

import (
	"context"
	"errors"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/lookout"
)

// Wait waits until a transfer is final and answers as Transfer would: with its record,
// and the error that it failed with.
//
// When ctx ends first, or no server can be reached for 30 s, it answers with what it has
// seen.
// The error wraps ErrUnsettled where the transfer is committed, which is for good.
// It wraps ErrInDoubt where the transfer is undecided or was not seen.
// A context that had ended before the call gives its own error alone, which says nothing
// about the transfer.
// ErrTransferNotFound means that there certainly is no such transfer.
//
// All callers share a few commands and hold no connection, no matter how many wait for
// how many transfers.
// There are look-ups of up to 1,000 transfers at once, with pauses in proportion to what
// they cost the server, and, while little happens, one change stream.
// So Wait learns in milliseconds what another process has finished where little happens,
// within some 100 ms where few callers wait, and later where thousands wait for a busy
// server.
func (c *Coordinator) Wait(ctx context.Context, id string) (Record, error) {
	if err := document.CheckID(id); err != nil {
		return Record{}, invalid("transfer: %w", err)
	}
	if err := checkContext(ctx); err != nil {
		return Record{}, err
	}
	if err := c.stopped(ctx); err != nil {
		return Record{}, c.early(id, err)
	}
	switch err := c.readyToRead(ctx); {
	case errors.Is(err, ErrClosed), errors.Is(err, ErrUnsupportedDeployment), lasting(err):
		return Record{}, err
	case err != nil:
		return Record{ID: id}, inDoubt(id, err)
	}
	return c.await(ctx, id)
}

// await waits until a transfer is seen to be final.
func (c *Coordinator) await(ctx context.Context, id string) (Record, error) {
	w := c.lookout.Watch(id)
	defer w.End()
	var (
		last   = Record{ID: id}
		cause  error
		outage engine.Outage
	)
	seen, ended := w.Look(ctx)
	for n := 1; ended == nil; n++ {
		cause = seen.Err
		switch {
		case errors.Is(cause, document.ErrUnreadable):
			return Record{}, aboutTransfer(id, cause)
		case cause == nil && !seen.Found:
			cause = ErrTransferNotFound
			if w.SurelyMissing(ctx) {
				return Record{}, aboutTransfer(id, cause)
			}
		case cause == nil:
			if last = recordOf(seen.Transfer); last.State.Final() {
				return asFinal(last)
			}
		}
		if c.tooLong(&outage, cause) {
			break
		}
		seen, ended = c.nextSight(ctx, w, seen, n)
	}
	return asKnown(id, last, withCause(c.stopped(ctx), cause))
}

// nextSight waits until something else is seen.
// Where nothing was seen, and no deciding read has said that there is nothing, it reads
// again after a pause.
func (c *Coordinator) nextSight(
	ctx context.Context, w *lookout.Watch, seen *lookout.Sight, n int,
) (*lookout.Sight, error) {
	pause := newPause(n)
	if seen.Found || seen.Err != nil {
		pause.Stop()
	}
	defer pause.Stop()
	select {
	case <-seen.Replaced:
		return w.Latest(), nil
	case <-pause.C:
		return w.Look(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.engine.Closing():
		return nil, ErrClosed
	}
}
