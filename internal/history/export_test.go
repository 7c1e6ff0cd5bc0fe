package history

import "context"

// MaxReads is how often undecided transfers are read again before they are barred.
const MaxReads = maxReads

// Bar bars undecided transfers.
func (h *History) Bar(ctx context.Context, ids []string) (bool, error) { return h.bar(ctx, ids) }
