package engine

import (
	"context"
	"log/slog"

	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/words"
)

// levelTrace is that of the log of each single operation, below debug: it is for those
// who follow one transfer step by step.
const levelTrace = slog.LevelDebug - 4

// traceSent logs what is about to be performed.
func (e *Engine) traceSent(ctx context.Context, requests []*mongostore.Call) {
	if !e.log.Enabled(ctx, levelTrace) {
		return
	}
	for _, r := range requests {
		e.log.LogAttrs(ctx, levelTrace, "perform", describe(r.Attempt, r.Op)...)
	}
}

// traceRepeat logs an answer that leaves the execution where it was.
func (e *Engine) traceRepeat(ctx context.Context, r *mongostore.Call) {
	if !e.log.Enabled(ctx, levelTrace) {
		return
	}
	attrs := append(describe(r.Attempt, r.Op), slog.String(words.KeyResult, r.Answer.Result.String()))
	if r.Attempt.Cause != nil {
		attrs = append(attrs, slog.Any(words.KeyCause, r.Attempt.Cause))
	}
	e.log.LogAttrs(ctx, levelTrace, "asked again", attrs...)
}

func describe(w *mongostore.Attempt, op protocol.Operation) []slog.Attr {
	attrs := []slog.Attr{slog.String(words.KeyTransfer, words.Clip(w.Transfer.ID)), slog.String(words.KeyOperation, op.Kind.String())}
	if op.Kind == protocol.Claim {
		attrs = append(attrs, slog.String(words.KeyClaiming, op.Claim.String()))
	}
	if op.Participant != protocol.NoParticipant {
		attrs = append(attrs, slog.Int(words.KeyParticipant, op.Participant))
	}
	return attrs
}
