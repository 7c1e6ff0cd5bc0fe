package audit

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// stallThresholds is for how many of them a transfer may stand still before that is a
// finding.
const stallThresholds = 10

// longestThreshold is the longest threshold that counts, some three years: seventy-three
// of them still are a duration.
const longestThreshold = math.MaxInt64 / 100 * time.Nanosecond

// overdue returns for how long an unfinished transfer that should have gone on has stood
// still, and whether that is too long.
//
// Recovery leaves a transfer alone for longer if its executors were killed again and
// again. Such a transfer is not overdue before recovery has tried it.
//
// A transfer that was modified ahead of the clock is not overdue: recovery takes it over
// at once, and it is a finding of its own.
func overdue(t *Transfer, now time.Time, threshold time.Duration) (time.Duration, bool) {
	threshold = min(threshold, longestThreshold)
	since, backOff := t.LastModified, t.backOff(threshold)
	if t.Stuck != nil {
		backOff = 0 // something is known to be in its way
	}
	if t.Stuck != nil && !t.StuckAt.IsZero() {
		since = t.StuckAt // further tries of recovery are no progress
	}
	switch t.State {
	case protocol.Initiated:
		since = latest(since, t.NotBefore)
	case protocol.Preparing:
		if t.Hold {
			since, backOff = latest(since, t.ExpiresAt), 0 // recovery decides an expired hold without waiting
		}
	case protocol.Committed:
		if t.Stuck != nil {
			since = t.CommittedAt
		}
	case protocol.Rollback:
	case protocol.Success, protocol.Fail:
		return 0, false
	}
	if threshold == 0 {
		// Zero doesn't say how long a transfer may take: a healthy one waits for its
		// commands.
		threshold = wire.CommandLimit
	}
	age := now.Sub(since)
	return age, age > stallThresholds*threshold+backOff
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// checkStalled finds the transfers that stand still. The snapshot of a primary that was
// cut off may be stale: a transfer that it shows as overdue is a finding only if a
// linearizable read shows it unchanged.
func (p *pass) checkStalled(ctx context.Context) error {
	for some := range slices.Chunk(p.overdue, batch) {
		ids := make([]string, len(some))
		for i, t := range some {
			ids[i] = t.ID
		}
		now, err := p.reader.DecideTransfers(ctx, ids)
		if err != nil {
			return fmt.Errorf("look again at transfers that stand still: %w", err)
		}
		for _, t := range some {
			later := now[t.ID]
			if later != nil && later.State == t.State && later.LastModified.Equal(t.LastModified) {
				p.add(p.stalled(t))
			}
		}
	}
	return nil
}

// stalled is the finding about an overdue transfer.
func (p *pass) stalled(t *Transfer) Finding {
	age, _ := overdue(t, p.report.At, p.options.Threshold)
	if t.State == protocol.Initiated {
		return aboutTransfer(t.ID, Unclaimed, "no worker has taken it for %s", age)
	}
	reason := "nothing stands in its way: does recovery run?"
	if obstacle := p.obstacles[t.ID]; obstacle != "" {
		reason = obstacle
	}
	if t.Stuck != nil {
		reason = t.Stuck.Message
	}
	return aboutTransfer(t.ID, Stalled, "it is %s for %s, was taken over %d times, and is not finished: %s",
		t.State, age, t.Attempts, reason)
}

// noteObstacle notes what may keep a transfer from its end.
func (p *pass) noteObstacle(id, obstacle string) {
	if len(p.obstacles) < maxFindings {
		p.obstacles[id] = obstacle
	}
}
