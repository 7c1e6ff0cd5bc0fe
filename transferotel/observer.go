package transferotel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/mongotransfer/transfer"
)

// scope names the instrumentation.
const scope = "github.com/mongotransfer/transfer/transferotel"

// The keys of the attributes.
const (
	keyVerb    = attribute.Key("verb")
	keyOutcome = attribute.Key("outcome")
	keyState   = attribute.Key("state")          // of metrics: one of the counts of Stats
	keyID      = attribute.Key("transfer.id")    // of spans
	keyStands  = attribute.Key("transfer.state") // of spans
)

// Option changes a default of [New].
type Option func(*telemetry)

// WithAttributes adds attributes to each metric and each span of the observer.
// Where a process has coordinators of several deployments, one of them names the
// deployment, so that the counts are not taken for those of another one:
//
//	east := attribute.String("deployment", "east")
//	observer, err := transferotel.New(nil, nil, transferotel.WithAttributes(east))
//
// It can't replace an attribute of the package's own.
// Defaults to none.
func WithAttributes(attributes ...attribute.KeyValue) Option {
	return func(t *telemetry) { t.fixed = t.fixed.and(attributes) }
}

// New returns an observer for [transfer.WithObserver].
// A provider that is nil stands for the global one.
// It fails where the meter provider refuses an instrument.
//
// Several coordinators of one deployment may share an observer, or have one each: what
// one of them counts is measured, also if the others don't call Run.
// Coordinators of several deployments need an observer each, with an attribute that
// tells them apart: see [WithAttributes].
// The meter provider keeps an observer for as long as it lives itself: make one for each
// deployment, and not for each request.
func New(tracers trace.TracerProvider, meters metric.MeterProvider, opts ...Option) (transfer.Observer, error) {
	return newByClock(tracers, meters, time.Now, opts...) //nolint:forbidigo // the one place where the clock comes in; tests call newByClock
}

func newByClock(
	tracers trace.TracerProvider, meters metric.MeterProvider, now func() time.Time, opts ...Option,
) (transfer.Observer, error) {
	if tracers == nil {
		tracers = otel.GetTracerProvider()
	}
	if meters == nil {
		meters = otel.GetMeterProvider()
	}
	t := telemetry{tracer: tracers.Tracer(scope)}
	for i, opt := range opts {
		if opt == nil {
			return transfer.Observer{}, fmt.Errorf("transferotel: option %d is nil", i)
		}
		opt(&t)
	}
	last := &unfinished{now: now, fixed: t.fixed}
	meter := meters.Meter(scope)
	if err := errors.Join(t.create(meter), last.create(meter)); err != nil {
		return transfer.Observer{}, fmt.Errorf("transferotel: %w", err)
	}
	return transfer.Observer{
		TransferStarted: t.transferStarted,
		TransferDone:    t.transferDone,
		CommandDone:     t.commandDone,
		TakenOver:       t.takenOver,
		EventDone:       t.eventDone,
		Counted:         last.counted,
	}, nil
}

// telemetry makes spans and metrics of what an observer is told.
type telemetry struct {
	tracer trace.Tracer
	fixed  fixed
	instruments
}

// fixed are the attributes that all metrics and spans of an observer have.
type fixed []attribute.KeyValue

// and returns them and some more, of which the later ones win.
func (f fixed) and(more []attribute.KeyValue) fixed { return append(slices.Clip(f), more...) }

// with returns them and those of one measurement.
func (f fixed) with(more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(f.and(more)...)
}

// transferStarted begins the span of a call.
func (t telemetry) transferStarted(ctx context.Context, s transfer.TransferStart) context.Context {
	t.inFlight.Add(ctx, 1, t.fixed.with(keyVerb.String(s.Verb)))
	ctx, _ = t.tracer.Start(ctx, "transfer", trace.WithAttributes(t.fixed.and([]attribute.KeyValue{
		keyID.String(s.ID), keyVerb.String(s.Verb),
	})...))
	return ctx
}

// transferDone ends the span of a call, and adds its stages.
func (t telemetry) transferDone(info transfer.TransferInfo) {
	ctx := info.Context
	verb, outcome := keyVerb.String(info.Verb), keyOutcome.String(info.Outcome.String())
	t.inFlight.Add(ctx, -1, t.fixed.with(verb))
	t.duration.Record(ctx, info.Took.Seconds(), t.fixed.with(verb, outcome))
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		span.End()
		return
	}
	span.SetAttributes(outcome)
	if info.State != "" {
		span.SetAttributes(keyStands.String(string(info.State)))
	}
	if isError(info) {
		span.SetStatus(codes.Error, info.Err.Error())
	}
	for _, stage := range info.Stages {
		_, child := t.tracer.Start(ctx, "transfer."+stage.Name, trace.WithTimestamp(stage.Begun), trace.WithAttributes(t.fixed...))
		child.End(trace.WithTimestamp(stage.Begun.Add(stage.Took)))
	}
	span.End(trace.WithTimestamp(info.Begun.Add(info.Took)))
}

// isError reports whether a call has failed, and not only been refused.
func isError(info transfer.TransferInfo) bool {
	switch info.Outcome {
	case transfer.InDoubt, transfer.NothingStored:
		return info.Err != nil
	case transfer.Moved:
		return errors.Is(info.Err, transfer.ErrUnsettled)
	case transfer.Failed, transfer.Unchanged:
	}
	return false
}

// commandDone counts what a command has carried.
// Commands are shared, and belong to no call's context.
func (t telemetry) commandDone(info transfer.CommandInfo) {
	t.batchSize.Record(context.Background(), int64(info.Operations), t.fixed.with(keyVerb.String(info.Verb)))
}

// takenOver counts a takeover, and marks it in the span of the call.
func (t telemetry) takenOver(info transfer.TakeoverInfo) {
	t.takeovers.Add(info.Context, 1, t.fixed.with(keyVerb.String(info.Verb)))
	trace.SpanFromContext(info.Context).AddEvent("taken over", trace.WithAttributes(
		attribute.String("transfer.owner", info.Owner), attribute.Float64("transfer.idle", info.Idle.Seconds())))
}

// eventDone counts an attempt to deliver an event.
func (t telemetry) eventDone(info transfer.EventInfo) {
	outcome := "delivered"
	switch {
	case info.Err != nil && info.GivenUp:
		outcome = "given_up"
	case info.Err != nil:
		outcome = "failed"
	}
	ctx := info.Context
	if ctx == nil {
		ctx = context.Background()
	}
	t.events.Add(ctx, 1, t.fixed.with(keyVerb.String(info.Kind), keyOutcome.String(outcome)))
}
