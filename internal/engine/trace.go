package engine

import (
	"context"
	"log/slog"

	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/words"
)

// levelTrace is the level at which each single operation is logged, below debug.
// It serves to follow one transfer step by step.
const levelTrace = slog.LevelDebug - 4

// traceSent logs calls that are about to be performed.
func (e *Engine) traceSent(ctx context.Context, calls []*mongostore.Call) {
	if !e.log.Enabled(ctx, levelTrace) {
		return
	}
	for _, call := range calls {
		e.log.LogAttrs(ctx, levelTrace, "perform", describe(call.Attempt, call.Op)...)
	}
}

// traceRepeat logs an answer that leaves the execution where it was.
func (e *Engine) traceRepeat(ctx context.Context, call *mongostore.Call) {
	if !e.log.Enabled(ctx, levelTrace) {
		return
	}
	attrs := append(describe(call.Attempt, call.Op), slog.String(words.KeyResult, call.Answer.Result.String()))
	if call.Attempt.Cause != nil {
		attrs = append(attrs, slog.Any(words.KeyCause, call.Attempt.Cause))
	}
	e.log.LogAttrs(ctx, levelTrace, "asked again", attrs...)
}

func describe(attempt *mongostore.Attempt, op protocol.Operation) []slog.Attr {
	attrs := []slog.Attr{
		slog.String(words.KeyTransfer, words.Clip(attempt.Transfer.ID)), slog.String(words.KeyOperation, op.Kind.String()),
	}
	if op.Kind == protocol.Claim {
		attrs = append(attrs, slog.String(words.KeyClaiming, op.Claim.String()))
	}
	if op.Participant != protocol.NoParticipant {
		attrs = append(attrs, slog.Int(words.KeyParticipant, op.Participant))
	}
	return attrs
}
