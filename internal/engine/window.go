package engine

import "time"

const (
	// firstOverdue is the shortest time after which a command is overdue.
	firstOverdue = 250 * time.Millisecond
	// shortestLimit and longestLimit bound how long a command may take before it is given
	// up.
	// One second of that is for the answer, and the rest for the server.
	shortestLimit = 1750 * time.Millisecond
	longestLimit  = 5 * time.Second
	// firstSize is how many operations a command may carry before the speed of the server
	// is known.
	firstSize = 64
	// growth is the least number of operations by which a command may grow after an
	// answer.
	growth = 32
	// longTryEvery says which time-outs in a row are followed by a command that may take
	// the longest limit: every fourth.
	// A server that is slower than the usual limit would otherwise never get an answer
	// through.
	longTryEvery = 4
	// maxDoublings bounds how often the time is doubled after which a command is overdue.
	maxDoublings = 4
)

// window paces the commands of one lane, as TCP paces its segments.
// The size of a command grows by addition and shrinks by division (V. Jacobson,
// "Congestion avoidance and control", 1988; RFC 5681, section 3.1), after a slow start in
// which it doubles.
// Its timers follow the times that answers took (RFC 6298).
type window struct {
	largest   int // bounds size
	size      int // operations that the next command may carry
	threshold int // up to which the size doubles
	smoothedTime
	timeouts int // since the last answer
}

func newWindow(largest int) window {
	return window{largest: largest, size: min(firstSize, largest), threshold: largest}
}

// recordAnswer records that a command was answered, how long that took, and whether the
// command was as large as it could be.
func (w *window) recordAnswer(took time.Duration, full bool) {
	w.add(took)
	w.timeouts = 0
	switch {
	case !full:
	case w.size < w.threshold:
		w.size = min(w.size+max(w.size, growth), w.threshold)
	default:
		w.size = min(w.size+growth, w.largest)
	}
}

// recordTimeout records that a command is overdue, or was given up.
func (w *window) recordTimeout() {
	w.timeouts++
	w.size = max(w.size/2, 1)
	w.threshold = min(max(w.size, growth), w.largest)
}

// recordSilence records that a command was given up, and that no other command of the
// lane was answered since it was sent.
// The next commands only probe whether the server answers: more operations in them would
// be sent in vain.
func (w *window) recordSilence() { w.size = 1 }

// expectedTime returns how long an answer takes at most, unless something is wrong.
func (w *window) expectedTime() time.Duration { return w.mean + 4*w.deviation }

// overdueAfter returns after what time other commands stop waiting for a command.
// It doubles with each time-out in a row.
func (w *window) overdueAfter() time.Duration {
	return min(max(firstOverdue, w.expectedTime())<<min(w.timeouts, maxDoublings), longestLimit)
}

// giveUpAfter returns after what time a command is given up.
func (w *window) giveUpAfter() time.Duration {
	if w.timeouts%longTryEvery == longTryEvery-1 {
		return longestLimit
	}
	return min(max(shortestLimit, time.Second+w.expectedTime()), longestLimit)
}
