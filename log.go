package transfer

import (
	"context"
	"log/slog"
	"time"

	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/words"
)

// handled is the message of the one line that each call about a transfer has, and each
// transfer that a worker or a sweep has worked on.
const handled = "a transfer was handled"

// logLine is that line, which is written at the end.
// Where Debug is off it is the zero value, and costs nothing.
type logLine struct {
	coordinator *Coordinator
	verb, id    string
	begun       time.Time
}

// lineOf begins the line of a transfer.
func (c *Coordinator) lineOf(ctx context.Context, verb, id string) logLine {
	if ctx == nil || !c.log.Enabled(ctx, slog.LevelDebug) {
		return logLine{}
	}
	return logLine{coordinator: c, verb: verb, id: id, begun: c.now()}
}

// end writes the line: where the transfer stands, if the record is its own, and the
// error.
func (l logLine) end(ctx context.Context, rec *Record, err error) {
	c := l.coordinator
	if c == nil {
		return
	}
	attrs := make([]slog.Attr, 0, 5)
	attrs = append(attrs, slog.String(words.KeyTransfer, words.Clip(l.id)), slog.String(words.KeyVerb, l.verb))
	if rec.ID == l.id { // a reversal's may be that of the original
		attrs = append(attrs, slog.String(words.KeyState, words.Clip(string(rec.State))))
	}
	if err != nil {
		attrs = append(attrs, slog.Any(words.KeyCause, err))
	}
	c.log.LogAttrs(ctx, slog.LevelDebug, handled, append(attrs, slog.Duration(words.KeyTook, c.now().Sub(l.begun)))...)
}

// swept writes the line of a transfer that a sweep has worked on, unless another one was
// first.
func (l logLine) swept(ctx context.Context, result engine.Result, err error) {
	switch {
	case l.coordinator == nil:
		return
	case err != nil:
		err = withCause(err, result.Cause)
	case result.Outcome == protocol.Stuck:
		_, err = stuck(recordOf(result.Transfer), result)
	case result.Outcome == protocol.Unclaimable:
		err = result.Cause
	case result.Outcome != protocol.Finished:
		return
	}
	l.end(ctx, &Record{ID: l.id, State: State(result.State)}, err)
}

// sweepVerb names what a sweep does.
func sweepVerb(start protocol.Start) string {
	if start.RollBack == protocol.Expired {
		return "expire"
	}
	return "recover"
}
