package transferotel_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	metricapi "go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	traceapi "go.opentelemetry.io/otel/trace"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
	"github.com/mongotransfer/transfer/transferotel"
)

// lab is a coordinator whose telemetry is kept in memory.
type lab struct {
	*transfer.Coordinator
	t        *testing.T
	db       *mongo.Database
	spans    *tracetest.InMemoryExporter
	tracers  *trace.TracerProvider
	reader   *metric.ManualReader
	observer transfer.Observer

	counted chan struct{} // closed when Run has counted
	mu      sync.Mutex
	inSpan  []traceapi.SpanContext
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, spans: tracetest.NewInMemoryExporter(), reader: metric.NewManualReader(), counted: make(chan struct{})}
	l.tracers = trace.NewTracerProvider(trace.WithSyncer(l.spans))
	var err error
	l.observer, err = transferotel.New(l.tracers, metric.NewMeterProvider(metric.WithReader(l.reader)))
	require.NoError(t, err)
	watched, once := l.observer, sync.Once{}
	watched.Counted = func(s transfer.Stats) {
		l.observer.Counted(s)
		once.Do(func() { close(l.counted) })
	}
	monitor := &event.CommandMonitor{Started: func(ctx context.Context, _ *event.CommandStartedEvent) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.inSpan = append(l.inSpan, traceapi.SpanContextFromContext(ctx))
	}}
	l.db = mongotest.Database(t, options.Client().SetMonitor(monitor))
	l.Coordinator, err = transfer.NewCoordinator(l.db, transfer.WithObserver(watched), transfer.WithReturnAt(transfer.AtSuccess))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	require.NoError(t, l.Setup(t.Context()))
	for _, account := range []transfer.Account{{ID: "a", Balance: transfer.Units(100)}, {ID: "b"}} {
		_, err := l.OpenAccount(t.Context(), account)
		require.NoError(t, err)
	}
	return l
}

func move(id, from, to string, units int64) transfer.Request {
	return transfer.Request{ID: id, From: from, To: to, Amount: transfer.Units(units)}
}

// metrics returns what was measured, by name.
func (l *lab) metrics() map[string]metricdata.Metrics {
	l.t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(l.t, l.reader.Collect(l.t.Context(), &all))
	byName := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			byName[m.Name] = m
		}
	}
	return byName
}

// points returns the values of a metric, or the counts of a histogram, by attributes.
func points(m metricdata.Metrics) map[string]float64 {
	found := map[string]float64{}
	add := func(attributes attribute.Set, value float64) {
		found[attributes.Encoded(attribute.DefaultEncoder())] = value
	}
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			add(p.Attributes, float64(p.Value))
		}
	case metricdata.Gauge[int64]:
		for _, p := range data.DataPoints {
			add(p.Attributes, float64(p.Value))
		}
	case metricdata.Gauge[float64]:
		for _, p := range data.DataPoints {
			add(p.Attributes, p.Value)
		}
	case metricdata.Histogram[int64]:
		for _, p := range data.DataPoints {
			add(p.Attributes, float64(p.Count))
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			add(p.Attributes, float64(p.Count))
		}
	}
	return found
}

// attributesOf returns the attributes of a span as text.
func attributesOf(s tracetest.SpanStub) map[string]string {
	found := map[string]string{}
	for _, a := range s.Attributes {
		found[string(a.Key)] = a.Value.String()
	}
	return found
}

// A call has a span under the caller's, with its stages as children, which lie within it.
// Commands of the call alone are sent within the span, so that the driver's spans are its
// children as well.
func TestSpans(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	ctx, root := l.tracers.Tracer("test").Start(t.Context(), "request")
	_, err := l.Transfer(ctx, move("t", "a", "b", 60))
	require.NoError(t, err)
	root.End()
	var call tracetest.SpanStub
	children := map[string]bool{}
	for _, s := range l.spans.GetSpans() {
		if s.Name == "transfer" {
			call = s
		}
	}
	require.Equal(t, root.SpanContext().SpanID(), call.Parent.SpanID())
	require.Equal(t, map[string]string{
		"transfer.id": "t", "verb": "transfer", "outcome": "Moved", "transfer.state": "Success",
	}, attributesOf(call))
	require.Equal(t, codes.Unset, call.Status.Code)
	for _, s := range l.spans.GetSpans() {
		if s.Parent.SpanID() == call.SpanContext.SpanID() {
			children[s.Name] = true
			assert.False(t, s.StartTime.Before(call.StartTime.Add(-time.Millisecond)), s.Name)
			assert.False(t, s.EndTime.After(call.EndTime), s.Name)
			assert.Equal(t, call.SpanContext.TraceID(), s.SpanContext.TraceID())
		}
	}
	require.Equal(t, map[string]bool{
		"transfer.wait": true, "transfer.read": true, "transfer.claim": true, "transfer.prepare": true, "transfer.settle": true,
		"transfer.clear": true, "transfer.finish": true,
	}, children)
	l.mu.Lock()
	defer l.mu.Unlock()
	within := 0
	for _, s := range l.inSpan {
		if s.SpanID() == call.SpanContext.SpanID() {
			within++
		}
	}
	require.GreaterOrEqual(t, within, 6, "a transfer's own commands")
}

// An option that is nil is refused.
func TestNilOption(t *testing.T) {
	t.Parallel()
	_, err := transferotel.New(nil, nil, nil)
	require.EqualError(t, err, "transferotel: option 0 is nil")
}

// A refusal is an answer. What leaves the caller in doubt, and what was malformed, is an
// error.
func TestSpanStatus(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	_, err := l.Transfer(t.Context(), move("poor", "b", "a", 60))
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	_, err = l.Transfer(t.Context(), move("odd", "b", "b", 60))
	require.ErrorIs(t, err, transfer.ErrInvalidRequest)
	for id, err := range map[string]error{"doubt": transfer.ErrInDoubt, "unsettled": transfer.ErrUnsettled} {
		info := transfer.TransferInfo{ID: id, Verb: "transfer", Err: err, Outcome: transfer.OutcomeOf(err)}
		info.Context = l.observer.TransferStarted(t.Context(), transfer.TransferStart{ID: id, Verb: "transfer"})
		l.observer.TransferDone(info)
	}
	status := map[string]codes.Code{}
	for _, s := range l.spans.GetSpans() {
		if s.Name == "transfer" {
			status[attributesOf(s)["transfer.id"]] = s.Status.Code
		}
	}
	require.Equal(t, map[string]codes.Code{
		"poor": codes.Unset, "odd": codes.Error, "doubt": codes.Error, "unsettled": codes.Error,
	}, status)
}

// Each metric has its unit, and attributes of few values, none of which is an ID.
func TestMetrics(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	ids := map[string]bool{}
	for i := range 20 {
		id := fmt.Sprint("id-", i)
		ids[id] = true
		_, err := l.Transfer(t.Context(), move(id, "a", "b", 1))
		require.NoError(t, err)
	}
	_, err := l.Transfer(t.Context(), move("poor", "b", "a", 5000))
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	_, err = l.Submit(t.Context(), transfer.Request{
		ID: "later", From: "a", To: "b", Amount: transfer.Units(1), NotBefore: time.Now().Add(time.Hour),
	})
	require.NoError(t, err)
	l.observe()
	found := l.metrics()
	units := map[string]string{}
	for name, m := range found {
		units[name] = m.Unit
		for attributes := range points(m) {
			for id := range ids {
				require.NotContains(t, attributes, id)
			}
		}
	}
	require.Equal(t, map[string]string{
		"transfer.duration": "s", "transfer.in_flight": "{transfer}", "transfer.batch.size": "{operation}", "transfer.takeovers": "{transfer}",
		"transfer.unfinished": "{transfer}", "transfer.unfinished.age": "s", "transfer.events": "{event}",
	}, units)
	require.Equal(t, map[string]float64{
		"outcome=Moved,verb=transfer": 20, "outcome=Failed,verb=transfer": 1, "outcome=Moved,verb=submit": 1, "outcome=Moved,verb=recover": 1,
	}, points(found["transfer.duration"]))
	require.Equal(t, map[string]float64{"verb=transfer": 0, "verb=submit": 0, "verb=recover": 0}, points(found["transfer.in_flight"]))
	require.Equal(t, map[string]float64{"verb=recover": 1}, points(found["transfer.takeovers"]))
	unfinished := points(found["transfer.unfinished"])
	require.Len(t, unfinished, 9)
	require.InDelta(t, 1, unfinished["state=scheduled"], 0)
	require.InDelta(t, 0, unfinished["state=stuck"], 0)
	require.Equal(t, map[string]float64{
		"outcome=delivered,verb=succeeded": 1, "outcome=failed,verb=failed": 1, "outcome=given_up,verb=held": 1,
	}, points(found["transfer.events"]))
	batches := points(found["transfer.batch.size"])
	require.GreaterOrEqual(t, batches["verb=claim"], 22.0, "each came alone, and one was taken over; one that takes long is sent again")
	for _, verb := range []string{"record", "read", "write"} {
		require.Positive(t, batches["verb="+verb], verb)
	}
}

// observe brings about what the calls of a test have not: a takeover, a count by Run, and
// events.
func (l *lab) observe() {
	l.t.Helper()
	ctx := l.t.Context()
	stalled := bson.M{"$set": bson.M{"state": "Committed", "open": true, "lastModified": time.Now().Add(-time.Hour)}}
	_, err := l.db.Collection("transfers").UpdateByID(ctx, "id-0", stalled) // as if its process had died before the end
	require.NoError(l.t, err)
	report, err := l.Recover(ctx)
	require.NoError(l.t, err)
	require.Equal(l.t, transfer.RecoveryReport{Found: 1, Succeeded: 1}, report)
	for _, e := range []transfer.EventInfo{
		{Kind: "succeeded"}, {Kind: "failed", Err: errors.New("refused")}, {Kind: "held", Err: errors.New("refused"), GivenUp: true},
	} {
		l.observer.EventDone(e)
	}
	working, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- l.Run(working) }()
	select {
	case <-l.counted:
	case err := <-done:
		require.FailNow(l.t, "Run has ended without a count", "%v", err)
	}
	stop()
	require.NoError(l.t, bank.Within(l.t, done))
}

// The age is that of the oldest, and 0 where there is none.
func TestAge(t *testing.T) {
	t.Parallel()
	reader := metric.NewManualReader()
	l := &lab{t: t, reader: reader}
	observer, err := transferotel.New(nil, metric.NewMeterProvider(metric.WithReader(reader)))
	require.NoError(t, err)
	observer.Counted(transfer.Stats{Held: 1})
	require.Equal(t, map[string]float64{"": 0}, points(l.metrics()["transfer.unfinished.age"]))
	observer.Counted(transfer.Stats{Due: 1, Oldest: time.Now().Add(-time.Hour)})
	require.InDelta(t, 3600, points(l.metrics()["transfer.unfinished.age"])[""], 10)
	observer.Counted(transfer.Stats{Due: 1, Oldest: time.Now().Add(time.Hour)})
	require.Equal(t, map[string]float64{"": 0}, points(l.metrics()["transfer.unfinished.age"]), "another clock is ahead")
}

// What was counted is measured for a minute, and then not any more: so an alert fires
// once Run has ended, or can't count.
func TestOldCountsAreNotMeasured(t *testing.T) {
	t.Parallel()
	now := time.Now()
	l := &lab{t: t, reader: metric.NewManualReader()}
	meters := metric.NewMeterProvider(metric.WithReader(l.reader))
	observer, err := transferotel.NewByClock(nil, meters, func() time.Time { return now })
	require.NoError(t, err)
	names := []string{"transfer.unfinished", "transfer.unfinished.age"}
	requireMeasured := func(want bool) {
		t.Helper()
		found := l.metrics()
		for _, name := range names {
			require.Equal(t, want, len(points(found[name])) > 0, name)
		}
	}
	requireMeasured(false)
	observer.Counted(transfer.Stats{Due: 3, Oldest: now.Add(-time.Second)})
	requireMeasured(true)
	now = now.Add(time.Minute - time.Millisecond)
	requireMeasured(true)
	require.InDelta(t, 3, points(l.metrics()[names[0]])["state=due"], 0)
	require.InDelta(t, 61, points(l.metrics()[names[1]])[""], 0.01, "it grows older until it is counted again")
	now = now.Add(time.Millisecond)
	requireMeasured(false)
	observer.Counted(transfer.Stats{})
	requireMeasured(true)
}

// What is nil is the global provider, and a refused instrument is an error.
func TestProviders(t *testing.T) {
	t.Parallel()
	observer, err := transferotel.New(nil, nil)
	require.NoError(t, err)
	ctx := observer.TransferStarted(t.Context(), transfer.TransferStart{ID: "t", Verb: "transfer"})
	observer.TransferDone(transfer.TransferInfo{Context: ctx})
	_, err = transferotel.New(nil, refusing{MeterProvider: metric.NewMeterProvider()})
	require.ErrorContains(t, err, "no more instruments")
}

// refusing is a meter provider that refuses gauges.
type refusing struct{ metricapi.MeterProvider }

func (r refusing) Meter(name string, opts ...metricapi.MeterOption) metricapi.Meter {
	return refusingMeter{r.MeterProvider.Meter(name, opts...)}
}

type refusingMeter struct{ metricapi.Meter }

func (refusingMeter) Float64ObservableGauge(
	string, ...metricapi.Float64ObservableGaugeOption,
) (metricapi.Float64ObservableGauge, error) {
	return nil, errors.New("no more instruments")
}
