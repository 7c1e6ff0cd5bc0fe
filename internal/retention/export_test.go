package retention

// The margins, for tests.
const (
	HistoryMargin = historyMargin
	ReadingAge    = readingAge
)

// UsedRetention is a document of the collection of retentions.
type UsedRetention = usedRetention

// AgeReading makes what was read of retentions as old as it may become.
func (r *Retention) AgeReading() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readAt = r.catalog.Clock.Now().Add(-readingAge)
}
