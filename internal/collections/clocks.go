package collections

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/mongotransfer/transfer/internal/wire"
)

// Clocks are what the servers that commit transfers have shown for the time: one server,
// or the shards of a cluster.
type Clocks struct {
	// Earliest is what the clock showed that is behind all others, and Latest what the
	// one showed that is ahead of them.
	Earliest, Latest time.Time
}

// Clocks asks the servers for the time by which they stamp commits.
func (c *Catalog) Clocks(ctx context.Context) (Clocks, error) {
	if c.Routed(c.Transfers) {
		return c.shardClocks(ctx)
	}
	answer, err := Hello(ctx, c.Transfers)
	now := answer.LocalTime.UTC()
	return Clocks{Earliest: now, Latest: now}, err
}

// shardClocks asks every shard that has transfers: a mongos has a clock of its own, and
// no commit is stamped by it.
func (c *Catalog) shardClocks(ctx context.Context) (Clocks, error) {
	stage := bson.D{{Key: "$collStats", Value: bson.D{}}}
	cursor, err := wire.ForReads(c.Transfers, readconcern.Local()).Aggregate(ctx, bson.A{stage})
	if err != nil {
		return Clocks{}, wire.ServerErrorOf(err, "collStats", wire.NamespaceOf(c.Transfers))
	}
	var shards []struct {
		Now time.Time `bson:"localTime"`
	}
	if err := cursor.All(ctx, &shards); err != nil {
		return Clocks{}, wire.ServerErrorOf(err, "collStats", wire.NamespaceOf(c.Transfers))
	}
	if len(shards) == 0 {
		return Clocks{}, errors.New("no shard shows its clock")
	}
	shown := Clocks{Earliest: shards[0].Now.UTC(), Latest: shards[0].Now.UTC()}
	for _, shard := range shards[1:] {
		shown = shown.With(shard.Now.UTC())
	}
	return shown, nil
}

// With returns the clocks and one more.
func (c Clocks) With(now time.Time) Clocks {
	if now.Before(c.Earliest) {
		c.Earliest = now
	}
	if now.After(c.Latest) {
		c.Latest = now
	}
	return c
}

// Passed reports whether all clocks have gone on beyond what any of them had shown when
// it was asked.
func (c Clocks) Passed(asked Clocks) bool { return c.Earliest.After(asked.Latest) }

// Pause waits for a while; the context's end ends it.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
