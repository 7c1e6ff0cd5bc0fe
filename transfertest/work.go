package transfertest

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/protocol"
)

const (
	// workLimit is how long a fake's worker may take for what is due.
	workLimit = 10 * time.Second
	// finishLimit is how long a coordinator may take for what it does after its answer.
	finishLimit = 5 * time.Second
	// workPause is the time between two looks whether it has done all of it.
	workPause = time.Millisecond
	// lookPause is the time between two looks for more of it while somebody waits.
	lookPause = 10 * time.Millisecond
)

// work runs a coordinator's worker until it has done what is due now.
func (f *Fake) work(ctx context.Context, worker *transfer.Coordinator) error {
	if f.delivers {
		f.awaitFinishes(ctx)
	}
	if _, err := f.hasten(ctx); err != nil {
		return err
	}
	now := bson.NewDateTimeFromTime(f.server.Now())
	transfers, err := f.server.IDs(fakeTransfers, dueTransfers(now))
	if err != nil {
		return err
	}
	events, err := f.server.IDs(fakeTransfers, bson.D{{Key: "outbox.due", Value: bson.D{{Key: "$lte", Value: now}}}})
	if err != nil || len(transfers)+len(events) == 0 {
		return err
	}
	left := f.leftOf(transfers, events, now)
	working, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(working) }()
	look := time.NewTicker(workPause)
	defer look.Stop()
	for {
		select {
		case err := <-ended:
			return errors.Join(err, ctx.Err())
		case <-look.C:
			if ids, err := f.server.IDs(fakeTransfers, left); len(ids) == 0 || err != nil {
				stop()
				return errors.Join(err, <-ended)
			}
		}
	}
}

// hasten ends the pauses of transfers that wait for funds, if an account was changed
// since it last did. It returns how many they are.
func (f *Fake) hasten(ctx context.Context) (waiting int, err error) {
	writes := f.server.Writes(fakeTransfers)
	f.mu.Lock()
	changed := writes != f.writes
	f.writes = writes
	f.mu.Unlock()
	if !changed {
		return 0, nil
	}
	pausing := bson.D{
		{Key: "state", Value: string(protocol.Initiated)}, {Key: "postponed", Value: bson.D{{Key: "$gt", Value: 0}}},
		{Key: "notBefore", Value: bson.D{{Key: "$gt", Value: bson.NewDateTimeFromTime(f.server.Now())}}},
	}
	now := bson.D{{Key: "$currentDate", Value: bson.D{{Key: "notBefore", Value: true}, {Key: "lastModified", Value: true}}}}
	hastened, err := f.client.Database(fakeDatabase).Collection("transfers").UpdateMany(ctx, pausing, now)
	if err != nil {
		return 0, err
	}
	return int(hastened.MatchedCount), nil
}

// awaitFinishes waits for what a coordinator does a little later than it answers: only
// then is there an event. What has stalled is not waited for: it may never come.
func (f *Fake) awaitFinishes(ctx context.Context) {
	stalled := bson.NewDateTimeFromTime(f.server.Now().Add(-finishLimit))
	finishing := bson.D{
		{Key: "lastModified", Value: bson.D{{Key: "$gt", Value: stalled}}},
		{Key: "open", Value: true}, {Key: "stuck", Value: nil}, {Key: "state", Value: bson.D{{Key: "$ne", Value: string(protocol.Initiated)}}},
		{Key: "$nor", Value: bson.A{bson.D{{Key: "state", Value: string(protocol.Preparing)}, {Key: "held", Value: true}}}},
	}
	ctx, cancel := context.WithTimeout(ctx, finishLimit)
	defer cancel()
	look := time.NewTicker(workPause)
	defer look.Stop()
	for ctx.Err() == nil {
		if ids, err := f.server.IDs(fakeTransfers, finishing); len(ids) == 0 || err != nil {
			return
		}
		<-look.C
	}
}

// workUntil runs the worker again and again, until ctx ends.
func (f *Fake) workUntil(ctx context.Context) {
	look := time.NewTicker(lookPause)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			_ = f.work(ctx, f.coordinator())
		}
	}
}

// dueTransfers selects transfers that were submitted and may begin, and holds that have
// expired.
func dueTransfers(now bson.DateTime) bson.D {
	return bson.D{{Key: "$or", Value: bson.A{
		bson.D{{Key: "state", Value: string(protocol.Initiated)}, {Key: "notBefore", Value: nil}},
		bson.D{{Key: "state", Value: string(protocol.Initiated)}, {Key: "notBefore", Value: bson.D{{Key: "$lte", Value: now}}}},
		bson.D{
			{Key: "state", Value: string(protocol.Preparing)}, {Key: "hold", Value: true},
			{Key: "expiresAt", Value: bson.D{{Key: "$lte", Value: now}}},
		},
	}}}
}

// leftOf selects what the worker is not done with: transfers that it has neither ended
// nor put off, and all those with an event that was due at an instant, or is in its hand.
func (f *Fake) leftOf(transfers, events bson.A, now bson.DateTime) bson.D {
	putOff := bson.D{{Key: "$gt", Value: bson.A{"$notBefore", "$$NOW"}}}
	left := bson.A{bson.D{
		{Key: "_id", Value: bson.D{{Key: "$in", Value: transfers}}}, {Key: "open", Value: true}, {Key: "stuck", Value: nil},
		{Key: "$nor", Value: bson.A{bson.D{
			{Key: "state", Value: string(protocol.Initiated)}, {Key: "$expr", Value: putOff},
		}}},
	}}
	if f.delivers {
		left = append(left, bson.D{
			{Key: "_id", Value: bson.D{{Key: "$in", Value: slices.Concat(transfers, events)}}},
			{Key: "outbox", Value: bson.D{{Key: "$elemMatch", Value: bson.D{{Key: "$or", Value: bson.A{
				bson.D{{Key: "due", Value: bson.D{{Key: "$lte", Value: now}}}},
				bson.D{{Key: "due", Value: bson.D{{Key: "$type", Value: "date"}}}, {Key: "by", Value: bson.D{{Key: "$exists", Value: true}}}},
			}}}}}},
		})
	}
	return bson.D{{Key: "$or", Value: left}}
}
