package engine

import (
	"context"
	"log/slog"

	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// levelTrace is that of the log of each single operation, below debug: it is for those who follow one transfer step by step.
const levelTrace = slog.LevelDebug - 4

// traceSent logs what is about to be performed.
func (e *Engine) traceSent(ctx context.Context, w *mongostore.Work, operations []protocol.Operation) {
	if !e.log.Enabled(ctx, levelTrace) {
		return
	}
	for _, op := range operations {
		e.log.LogAttrs(ctx, levelTrace, "perform", describe(w, op)...)
	}
}

// traceRepeat logs an answer that leaves the execution where it was.
func (e *Engine) traceRepeat(ctx context.Context, w *mongostore.Work, op protocol.Operation, answer protocol.Answer) {
	if !e.log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	attrs := append(describe(w, op), slog.String("result", answer.Result.String()))
	if w.Cause != nil {
		attrs = append(attrs, slog.String("cause", w.Cause.Error()))
	}
	e.log.LogAttrs(ctx, slog.LevelDebug, "asked again", attrs...)
}

func describe(w *mongostore.Work, op protocol.Operation) []slog.Attr {
	attrs := []slog.Attr{slog.String("transfer", w.Transfer.ID), slog.String("operation", op.Kind.String())}
	if op.Kind == protocol.Claim {
		attrs = append(attrs, slog.String("claiming", op.Claiming.String()))
	}
	if op.Participant != protocol.NoParticipant {
		attrs = append(attrs, slog.Int("participant", op.Participant))
	}
	return attrs
}
