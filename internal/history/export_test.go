package history

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// MaxReads is how often undecided transfers are read again before they are barred.
const MaxReads = maxReads

// MaxBarred is how many undecided transfers are barred at once.
const MaxBarred = maxBarred

// Bar bars undecided transfers.
func (h *History) Bar(ctx context.Context, ids []string) (bool, error) { return h.bar(ctx, ids) }

// Reach reads the account once, as is done before transfers are ordered by changes.
func (h *History) Reach(ctx context.Context) error {
	_, _, err := h.readApart(ctx)
	return err
}

// TracesIn returns the IDs of the transfers of which a change shows a trace.
func (h *History) TracesIn(change bson.Raw) []string { return h.tracesIn(change) }
