package engine

import "time"

// Outage measures for how long reads have failed in a row.
type Outage struct{ since time.Time }

// TooLong records how the latest read went, and reports whether reads have failed for
// AwayLimit by now.
func (o *Outage) TooLong(now time.Time, err error) bool {
	if err == nil {
		o.since = time.Time{}
		return false
	}
	if o.since.IsZero() {
		o.since = now
	}
	return now.Sub(o.since) >= AwayLimit
}
