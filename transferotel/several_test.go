package transferotel_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/transferotel"
)

// What only one of several observers has counted is measured, whichever it is: a process
// may have one coordinator that answers calls, and another one that runs.
func TestEachObserverCounts(t *testing.T) {
	t.Parallel()
	for counts := range 3 {
		l := &lab{t: t, reader: metric.NewManualReader()}
		meters := metric.NewMeterProvider(metric.WithReader(l.reader))
		var observers []transfer.Observer
		for range 3 {
			o, err := transferotel.New(nil, meters)
			require.NoError(t, err)
			observers = append(observers, o)
		}
		observers[counts].Counted(transfer.Stats{Stuck: 7, Oldest: time.Now().Add(-time.Hour)})
		require.InDelta(t, 7, points(l.metrics()["transfer.unfinished"])["state=stuck"], 0, "observer %d", counts)
		require.InDelta(t, 3600, points(l.metrics()["transfer.unfinished.age"])[""], 10, "observer %d", counts)
	}
}

// Two deployments in one process are told apart by an attribute, in metrics and spans.
func TestDeploymentsAreToldApart(t *testing.T) {
	t.Parallel()
	l := &lab{t: t, reader: metric.NewManualReader(), spans: tracetest.NewInMemoryExporter()}
	meters := metric.NewMeterProvider(metric.WithReader(l.reader))
	tracers := trace.NewTracerProvider(trace.WithSyncer(l.spans))
	for name, stuck := range map[string]int64{"east": 7, "west": 0} {
		o, err := transferotel.New(tracers, meters, transferotel.WithAttributes(attribute.String("deployment", name)))
		require.NoError(t, err)
		ctx := o.TransferStarted(t.Context(), transfer.TransferStart{ID: "t", Verb: "transfer"})
		o.TakenOver(transfer.TakeoverInfo{Context: ctx, Verb: "recover"})
		o.TransferDone(transfer.TransferInfo{Context: ctx, ID: "t", Verb: "transfer", Outcome: transfer.Moved})
		o.CommandDone(transfer.CommandInfo{Verb: "claim", Operations: 1})
		o.EventDone(transfer.EventInfo{Kind: "held"})
		o.Counted(transfer.Stats{Stuck: stuck})
	}
	found := l.metrics()
	for name, want := range map[string]map[string]float64{
		"transfer.duration":       {"deployment=east,outcome=Moved,verb=transfer": 1, "deployment=west,outcome=Moved,verb=transfer": 1},
		"transfer.in_flight":      {"deployment=east,verb=transfer": 0, "deployment=west,verb=transfer": 0},
		"transfer.batch.size":     {"deployment=east,verb=claim": 1, "deployment=west,verb=claim": 1},
		"transfer.takeovers":      {"deployment=east,verb=recover": 1, "deployment=west,verb=recover": 1},
		"transfer.events":         {"deployment=east,outcome=delivered,verb=held": 1, "deployment=west,outcome=delivered,verb=held": 1},
		"transfer.unfinished.age": {"deployment=east": 0, "deployment=west": 0},
	} {
		require.Equal(t, want, points(found[name]), name)
	}
	unfinished := points(found["transfer.unfinished"])
	require.Len(t, unfinished, 18)
	require.InDelta(t, 7, unfinished["deployment=east,state=stuck"], 0)
	require.InDelta(t, 0, unfinished["deployment=west,state=stuck"], 0)
	of := map[string]bool{}
	for _, span := range l.spans.GetSpans() {
		of[attributesOf(span)["deployment"]] = true
	}
	require.Equal(t, map[string]bool{"east": true, "west": true}, of)
}

// An attribute of the user's can't stand in for one of the library's.
func TestFixedAttributesChangeNoOther(t *testing.T) {
	t.Parallel()
	l := &lab{t: t, reader: metric.NewManualReader()}
	o, err := transferotel.New(nil, metric.NewMeterProvider(metric.WithReader(l.reader)),
		transferotel.WithAttributes(attribute.String("verb", "mine")), transferotel.WithAttributes(attribute.Int("shard", 3)))
	require.NoError(t, err)
	o.CommandDone(transfer.CommandInfo{Verb: "claim", Operations: 1})
	require.Equal(t, map[string]float64{"shard=3,verb=claim": 1}, points(l.metrics()["transfer.batch.size"]))
}
