package recovery

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/words"
)

// progressStep is after how many transfers a sweep logs how far it has come.
const progressStep = 1000

// tally counts and logs what a sweep has done.
type tally struct {
	log   *slog.Logger
	quiet bool // the sweep comes again soon: what remains is not worth a warning each time

	mu        sync.Mutex
	report    Report
	concerned []string        // IDs of the first transfers that the report counts
	refused   error           // the first error that says that a right is missing
	ended     error           // why the sweep has ended before everything was begun and done
	warned    map[*route]bool // of these it was logged that a transfer hangs

	// A threshold of zero would find the same transfers again and again.
	seen    map[string]bool // could not be finished
	skipped map[string]bool // are left to others
	unable  *memory         // could not be finished by sweeps that come soon; may be nil
}

func newTally(log *slog.Logger) *tally {
	return &tally{
		log: log, warned: map[*route]bool{}, seen: map[string]bool{}, skipped: map[string]bool{},
	}
}

// endEarly records why the sweep ends before everything was begun and done.
func (t *tally) endEarly(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = cause
}

// skip leaves a transfer to others.
func (t *tally) skip(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.skipped[id] = true
}

// forgetSkipped lets the sweep take what it has left to others.
func (t *tally) forgetSkipped() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.skipped = map[string]bool{}
}

// knows reports whether a transfer was seen or skipped before.
// A document whose ID can't be read has no ID here: each one counts.
func (t *tally) knows(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return id != "" && (t.seen[id] || t.skipped[id] || t.unable != nil && t.unable.has(id))
}

// isStuck reports whether a transfer was counted as stuck.
func (t *tally) isStuck(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seen[id]
}

// countFinished counts a transfer that was brought to its end.
func (t *tally) countFinished(id string, state protocol.State, ended document.Transfer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.report.Found++
	switch {
	case state == protocol.Success:
		t.report.Succeeded++
	case ranOut(ended):
		t.report.Expired++
		t.report.Failed++
	default:
		t.report.Failed++
	}
	t.countConcerned(id)
}

// ranOut reports whether a failed transfer is a hold that has expired, no matter who has
// decided that.
func ranOut(t document.Transfer) bool {
	return t.Failure != nil && t.Failure.Code == protocol.Expired.String()
}

// countStuck counts a transfer that can't be finished now.
func (t *tally) countStuck(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.report.Found++
	t.report.Stuck++
	t.seen[id] = true
	t.countConcerned(id)
}

// countConcerned records the ID of a transfer that was counted, and logs how far a long
// sweep has come.
// The caller holds the lock.
func (t *tally) countConcerned(id string) {
	if len(t.concerned) < words.MaxListed {
		t.concerned = append(t.concerned, words.Clip(id))
	}
	if t.report.Found%progressStep == 0 {
		t.logReport("a recovery sweep is under way")
	}
}

// reportStuck counts and logs a transfer that can't be finished now.
func (t *tally) reportStuck(id string, cause error) {
	if t.unable != nil {
		t.unable.add(id)
	}
	t.logStuck(slog.LevelWarn, id, cause)
	t.countStuck(id)
}

// reportDenied counts and logs a transfer that can't be finished until a right is
// granted.
func (t *tally) reportDenied(id string, cause error) {
	t.mu.Lock()
	t.refused = cmp.Or(t.refused, cause)
	t.mu.Unlock()
	t.logStuck(slog.LevelWarn, id, cause)
	t.countStuck(id)
}

// reportHanging counts and logs a transfer that hangs, as others of its route do.
// There may be many: one warning is enough.
func (t *tally) reportHanging(id string, r *route, cause error) {
	t.mu.Lock()
	level := slog.LevelWarn
	if t.warned[r] {
		level = slog.LevelDebug
	}
	t.warned[r] = true
	t.mu.Unlock()
	t.logStuck(level, id, cause)
	t.countStuck(id)
}

func (t *tally) logStuck(level slog.Level, id string, cause error) {
	if t.quiet {
		level = slog.LevelDebug
	}
	t.log.LogAttrs(context.Background(), level, "a stalled transfer could not be finished",
		slog.String(words.KeyTransfer, words.Clip(id)), slog.Any(words.KeyCause, cause))
}

// end logs the end of a sweep, if it has done anything, and returns the report.
func (t *tally) end() Report {
	if t.report.Found > t.report.Stuck || t.report.Found > 0 && !t.quiet {
		t.logReport("a recovery sweep has ended")
	}
	return t.report
}

// logReport writes the line of the sweep.
// Holds that nobody decides expire every second: that is normal business, and no news.
func (t *tally) logReport(message string) {
	level := slog.LevelInfo
	if t.report.Found == t.report.Expired {
		level = slog.LevelDebug
	}
	t.log.LogAttrs(context.Background(), level, message, t.report.attributes(t.concerned)...)
}

// attributes returns a report as it is logged.
// Holds that have expired don't count as failed.
func (r Report) attributes(concerned []string) []slog.Attr {
	return []slog.Attr{
		slog.Int(words.KeyFound, r.Found), slog.Int(words.KeySucceeded, r.Succeeded),
		slog.Int(words.KeyFailed, r.Failed-r.Expired), slog.Int(words.KeyExpired, r.Expired),
		slog.Int(words.KeyStuck, r.Stuck), slog.Any(words.KeyTransfers, concerned),
	}
}

// trouble is something that goes wrong again and again while a server is away.
// It is worth a warning at first, and one a minute.
type trouble struct{ warned time.Time }

// troublePause is the time between two warnings of the same trouble.
const troublePause = time.Minute

// level returns the level of the next line about the trouble.
func (t *trouble) level(now time.Time) slog.Level {
	if !t.warned.IsZero() && now.Sub(t.warned) < troublePause {
		return slog.LevelDebug
	}
	t.warned = now
	return slog.LevelWarn
}

// over records that it went well.
func (t *trouble) over() { t.warned = time.Time{} }
