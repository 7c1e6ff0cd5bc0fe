package rights

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// workerVerbs run the transfers that root has submitted, and recover.
func (v *guarded) workerVerbs() []verb {
	return []verb{
		{"run", func(ctx context.Context, c *transfer.Coordinator, id string) error {
			_, err := v.all.Submit(ctx, oneUnit(id))
			require.NoError(v.t, err)
			return untilDone(ctx, c, func(running context.Context) error {
				_, err := v.all.Wait(running, id)
				return err
			})
		}},
		{"run what waits for funds", func(ctx context.Context, c *transfer.Coordinator, id string) error {
			req := bank.Move(id, "rich", "poor", 10_000_000)
			req.AwaitFundsUntil = time.Now().Add(time.Hour)
			_, err := v.all.Submit(ctx, req)
			require.NoError(v.t, err)
			err = untilDone(ctx, c, func(running context.Context) error {
				look := time.NewTicker(20 * time.Millisecond)
				defer look.Stop()
				rec, err := v.all.Get(running, id)
				for err == nil && rec.Waiting == nil {
					<-look.C
					rec, err = v.all.Get(running, id)
				}
				return err
			})
			_, cancelled := v.all.Cancel(ctx, id, "by the test")
			require.NoError(v.t, cancelled)
			return err
		}},
		{"recover", func(ctx context.Context, c *transfer.Coordinator, _ string) error {
			_, err := c.Recover(ctx)
			return err
		}},
	}
}

// untilDone runs a worker until something is done, or the worker has ended.
func untilDone(ctx context.Context, c *transfer.Coordinator, wait func(context.Context) error) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(running) }()
	done := make(chan error, 1)
	go func() { done <- wait(running) }()
	select {
	case err := <-ended:
		return err
	case err := <-done:
		stop()
		return errors.Join(err, <-ended)
	}
}
