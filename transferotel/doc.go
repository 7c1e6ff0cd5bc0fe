// Package transferotel reports to OpenTelemetry what a [transfer.Coordinator] does.
//
//	observer, err := transferotel.New(otel.GetTracerProvider(), otel.GetMeterProvider())
//	if err != nil { … }
//	coord, err := transfer.NewCoordinator(db, transfer.WithObserver(observer))
//
// # Spans
//
// Each call about a transfer has a span named transfer, a child of the span in the
// caller's context.
// The transfers that Run and Recover work on have one each as well.
// Its attributes are transfer.id, verb, outcome and transfer.state.
// It has the status Error where the outcome is in doubt, where the call has stored
// nothing, and where a committed transfer is not in place everywhere.
// A refusal is an answer, and no error.
//
// The stages of the call are its children, such as transfer.prepare: see
// [transfer.Stage].
// What goes on after the answer is in no span.
//
// # Metrics
//
//   - transfer.duration, a histogram in seconds: calls about a transfer, by verb and
//     outcome.
//   - transfer.in_flight: calls that are under way, by verb.
//   - transfer.batch.size, a histogram: operations in one command, by the verb of the
//     command (claim, record, read, look, write).
//   - transfer.takeovers: stalled transfers that this process has taken over, by verb.
//   - transfer.unfinished: transfers that are unfinished, by state (scheduled, due,
//     preparing, held, overdue, committed, rollback, stuck, undelivered).
//     See [transfer.Stats]: the overdue are held, too, and the stuck are counted in their
//     state as well.
//   - transfer.unfinished.age, in seconds: since when the oldest of them should have come
//     to its end; 0 where there is none.
//   - transfer.events: attempts to deliver an event, by kind as the verb, and by outcome
//     (delivered, failed, given_up).
//
// Each attribute has a few values at most.
// IDs are on spans only.
// A process that calls Run counts what is unfinished, some four times a minute, and each
// of them counts the same: take the maximum.
// A count is measured for a minute.
// So where no process calls Run, or none can count, there is no transfer.unfinished.
package transferotel
