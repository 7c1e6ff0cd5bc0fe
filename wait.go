package transfer

import (
	"context"
	"errors"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/lookout"
)

// Wait waits until a transfer is final and answers as Transfer would: with its record,
// and the error that it failed with. When ctx ends first, or no server can be reached for
// 30 s, it answers with what it has seen: the error wraps ErrUnsettled where the transfer
// is committed, which is for good, and ErrInDoubt where it is undecided or was not seen.
// A context that had ended before anything was asked gives its own error alone, which
// says nothing of the transfer. ErrTransferNotFound means that there certainly is none.
//
// However many wait, for however many transfers, they share a few commands and hold no
// connection: look-ups of up to 1,000 transfers at once, with pauses in proportion to
// what they cost the server, and, while little happens, one change stream. So what
// another process has finished is told in milliseconds where little happens, within some
// 100 ms where few wait, and later where thousands wait for a busy server.
func (c *Coordinator) Wait(ctx context.Context, id string) (Record, error) {
	if err := document.CheckID(id); err != nil {
		return Record{}, invalid("transfer: %w", err)
	}
	if err := checkContext(ctx); err != nil {
		return Record{}, err
	}
	if err := withCause(ctx.Err(), c.closedError()); err != nil {
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

// await waits for sights of a transfer until one is final.
func (c *Coordinator) await(ctx context.Context, id string) (Record, error) {
	w := c.lookout.Watch(id)
	defer w.End()
	var (
		last  = Record{ID: id}
		cause error
		away  quiet
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
				return answered(last)
			}
		}
		if away.tooLong(c, cause) {
			break
		}
		seen, ended = c.nextSight(ctx, w, seen, n)
	}
	return asKnown(id, last, withCause(withCause(ctx.Err(), c.closedError()), cause))
}

// nextSight waits until something else is seen. Where nothing was, and no deciding read
// has said that there is nothing, it looks again after a pause.
func (c *Coordinator) nextSight(ctx context.Context, w *lookout.Watch, seen *lookout.Sight, n int) (*lookout.Sight, error) {
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
