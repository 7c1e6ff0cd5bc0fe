package mongostore

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
)

// clocks are what the servers that commit transfers have shown for the time: one server,
// or the shards of a cluster.
type clocks struct{ earliest, latest time.Time }

// clocks asks the servers for the time by which they stamp commits.
func (s *Catalog) clocks(ctx context.Context) (clocks, error) {
	if s.routed(s.transfers) {
		return s.shardClocks(ctx)
	}
	answer, err := hello(ctx, s.transfers)
	now := answer.LocalTime.UTC()
	return clocks{now, now}, err
}

// shardClocks asks every shard that has transfers: a mongos has a clock of its own, and
// no commit is stamped by it.
func (s *Catalog) shardClocks(ctx context.Context) (clocks, error) {
	stage := bson.D{{Key: "$collStats", Value: bson.D{}}}
	cursor, err := reading(s.transfers, readconcern.Local()).Aggregate(ctx, bson.A{stage})
	if err != nil {
		return clocks{}, serverErrorOf(err, "collStats", namespaceOf(s.transfers))
	}
	var shards []struct {
		Now time.Time `bson:"localTime"`
	}
	if err := cursor.All(ctx, &shards); err != nil {
		return clocks{}, serverErrorOf(err, "collStats", namespaceOf(s.transfers))
	}
	if len(shards) == 0 {
		return clocks{}, errors.New("no shard shows its clock")
	}
	shown := clocks{shards[0].Now.UTC(), shards[0].Now.UTC()}
	for _, shard := range shards[1:] {
		shown = shown.with(shard.Now.UTC())
	}
	return shown, nil
}

// with takes in another clock.
func (c clocks) with(now time.Time) clocks {
	if now.Before(c.earliest) {
		c.earliest = now
	}
	if now.After(c.latest) {
		c.latest = now
	}
	return c
}

// passed reports whether all clocks have gone on beyond what any of them had shown when
// it was asked.
func (c clocks) passed(asked clocks) bool { return c.earliest.After(asked.latest) }

// rest waits for a while; the context's end ends it.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
