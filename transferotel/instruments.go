package transferotel

import (
	"errors"

	"go.opentelemetry.io/otel/metric"
)

// instruments are the metrics, but for those of what is unfinished, which are asked for.
type instruments struct {
	duration  metric.Float64Histogram
	inFlight  metric.Int64UpDownCounter
	batchSize metric.Int64Histogram
	takeovers metric.Int64Counter
	events    metric.Int64Counter
}

// create creates the metrics.
func (i *instruments) create(meter metric.Meter) error {
	var all [5]error
	i.duration, all[0] = meter.Float64Histogram("transfer.duration", metric.WithUnit("s"),
		metric.WithDescription("How long calls about a transfer take."),
		metric.WithExplicitBucketBoundaries(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60))
	i.inFlight, all[1] = meter.Int64UpDownCounter("transfer.in_flight", metric.WithUnit("{transfer}"),
		metric.WithDescription("Calls about a transfer that are under way."))
	i.batchSize, all[2] = meter.Int64Histogram("transfer.batch.size", metric.WithUnit("{operation}"),
		metric.WithDescription("Operations in one command."),
		metric.WithExplicitBucketBoundaries(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096))
	i.takeovers, all[3] = meter.Int64Counter("transfer.takeovers", metric.WithUnit("{transfer}"),
		metric.WithDescription("Stalled transfers that this process has taken over."))
	i.events, all[4] = meter.Int64Counter("transfer.events", metric.WithUnit("{event}"),
		metric.WithDescription("Attempts to deliver an event."))
	return errors.Join(all[:]...)
}
