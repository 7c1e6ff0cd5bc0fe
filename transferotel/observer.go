package transferotel

import (
	"context"
	"errors"
	"fmt"
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

// New returns an observer for [transfer.WithObserver].
// A provider that is nil stands for the global one.
// It fails where the meter provider refuses an instrument.
func New(tracers trace.TracerProvider, meters metric.MeterProvider) (transfer.Observer, error) {
	return newByClock(tracers, meters, time.Now) //nolint:forbidigo // users get the real clock; tests call newByClock with their own
}

func newByClock(tracers trace.TracerProvider, meters metric.MeterProvider, now func() time.Time) (transfer.Observer, error) {
	if tracers == nil {
		tracers = otel.GetTracerProvider()
	}
	if meters == nil {
		meters = otel.GetMeterProvider()
	}
	t, last := telemetry{tracer: tracers.Tracer(scope)}, &unfinished{now: now}
	if err := t.create(meters.Meter(scope), last); err != nil {
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
	instruments
}

// transferStarted begins the span of a call.
func (t telemetry) transferStarted(ctx context.Context, s transfer.TransferStart) context.Context {
	t.inFlight.Add(ctx, 1, metric.WithAttributes(keyVerb.String(s.Verb)))
	ctx, _ = t.tracer.Start(ctx, "transfer", trace.WithAttributes(keyID.String(s.ID), keyVerb.String(s.Verb)))
	return ctx
}

// transferDone ends the span of a call, and adds its stages.
func (t telemetry) transferDone(info transfer.TransferInfo) {
	ctx := info.Context
	verb, outcome := keyVerb.String(info.Verb), keyOutcome.String(info.Outcome.String())
	t.inFlight.Add(ctx, -1, metric.WithAttributes(verb))
	t.duration.Record(ctx, info.Took.Seconds(), metric.WithAttributes(verb, outcome))
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
		_, child := t.tracer.Start(ctx, "transfer."+stage.Name, trace.WithTimestamp(stage.Begun))
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
	t.batchSize.Record(context.Background(), int64(info.Operations), metric.WithAttributes(keyVerb.String(info.Verb)))
}

// takenOver counts a takeover, and marks it in the span of the call.
func (t telemetry) takenOver(info transfer.TakeoverInfo) {
	t.takeovers.Add(info.Context, 1, metric.WithAttributes(keyVerb.String(info.Verb)))
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
	t.events.Add(ctx, 1, metric.WithAttributes(keyVerb.String(info.Kind), keyOutcome.String(outcome)))
}
