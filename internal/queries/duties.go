package queries

import (
	"context"
	"iter"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Duty is a kind of work that a worker finds among the transfers.
type Duty string

const (
	// Submitted means that a transfer waits for a worker, and its time has come.
	Submitted Duty = "submitted"
	// Expired means that a hold has expired and is not decided.
	Expired Duty = "expired"
	// Quiet means that a transfer in progress was not modified for a while: the process
	// that has claimed it may have died.
	Quiet Duty = "quiet"
)

// Duties returns the kinds of work that there are now. It is one command, which reads one
// transfer of each kind, by an index: an idle worker asks for nothing else. A transfer in
// progress counts as quiet after the given while.
func (q *Queries) Duties(ctx context.Context, quiet time.Duration) ([]Duty, error) {
	kinds := []struct {
		duty   Duty
		filter bson.D
	}{
		{Submitted, document.InitiatedAndDue(0)},
		{Submitted, document.InitiatedAtOnce(0)},
		{Expired, document.ExpiredHolds()},
		{Quiet, document.LeftQuiet(quiet)},
	}
	var pipeline bson.A
	for i, kind := range kinds {
		one := bson.A{
			bson.D{{Key: "$match", Value: kind.filter}},
			bson.D{{Key: "$limit", Value: int64(1)}},
			bson.D{{Key: "$project", Value: bson.D{
				{Key: "_id", Value: 0}, {Key: "duty", Value: bson.D{{Key: "$literal", Value: string(kind.duty)}}},
			}}},
		}
		if i == 0 {
			pipeline = one
			continue
		}
		pipeline = append(pipeline, bson.D{{Key: "$unionWith", Value: bson.D{
			{Key: "coll", Value: q.catalog.Majority.Name()}, {Key: "pipeline", Value: one},
		}}})
	}
	limited, cancel := wire.WithTimeout(wire.Detached(ctx), wire.CommandLimit)
	defer cancel()
	found, err := wire.Aggregate(limited, q.catalog.Majority, pipeline)
	if err != nil {
		return nil, err
	}
	var duties []Duty
	for _, one := range found {
		duty, _ := one.Lookup("duty").StringValueOK()
		if !slices.Contains(duties, Duty(duty)) {
			duties = append(duties, Duty(duty))
		}
	}
	return duties, nil
}

// QuietOwners returns the owners of the transfers that were left quiet for a while (see
// [document.LeftQuiet]), one of those that are the same up to their last hyphen: those of
// one process. It goes through a number of transfers at most, in no order.
func (q *Queries) QuietOwners(ctx context.Context, quiet time.Duration, most int) ([]string, error) {
	ctx, cancel := wire.WithTimeout(wire.Detached(ctx), wire.CommandLimit)
	defer cancel()
	parts := bson.D{{Key: "$split", Value: bson.A{"$owner", "-"}}}
	process := bson.D{{Key: "$slice", Value: bson.A{
		"$$parts", bson.D{{Key: "$subtract", Value: bson.A{bson.D{{Key: "$size", Value: "$$parts"}}, 1}}},
	}}}
	isText := bson.D{{Key: "$expr", Value: bson.D{{Key: "$eq", Value: bson.A{bson.D{{Key: "$type", Value: "$owner"}}, "string"}}}}}
	pipeline := bson.A{
		bson.D{{Key: "$match", Value: bson.D{{Key: "$and", Value: bson.A{document.LeftQuiet(quiet), isText}}}}},
		bson.D{{Key: "$limit", Value: int64(most)}},
		bson.D{{Key: "$group", Value: bson.D{
			{Key: "_id", Value: bson.D{{Key: "$let", Value: bson.D{
				{Key: "vars", Value: bson.D{{Key: "parts", Value: parts}}}, {Key: "in", Value: process},
			}}}},
			{Key: "owner", Value: bson.D{{Key: "$first", Value: "$owner"}}},
		}}},
		bson.D{{Key: "$project", Value: bson.D{{Key: "_id", Value: 0}, {Key: "owner", Value: 1}}}},
	}
	found, err := wire.Aggregate(ctx, q.catalog.Majority, pipeline)
	if err != nil {
		return nil, err
	}
	owners := make([]string, 0, len(found))
	for _, one := range found {
		if owner, isText := one.Lookup("owner").StringValueOK(); isText {
			owners = append(owners, owner)
		}
	}
	return owners, nil
}

// Abandoned yields the transfers that were left quiet for a while, and whose owner begins
// with one of the given texts, oldest first. It leaves out those on the given routes.
func (q *Queries) Abandoned(
	ctx context.Context, owners []string, quiet time.Duration, without ...Route,
) iter.Seq2[document.Transfer, error] {
	filter := append(document.LeftQuiet(quiet), document.OwnedBy(owners)...)
	return q.search(ctx, filter, "lastModified", without)
}
