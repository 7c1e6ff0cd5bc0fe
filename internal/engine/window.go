package engine

import "time"

const (
	// firstOverdue is after what time a command is overdue at the earliest.
	firstOverdue = 250 * time.Millisecond
	// shortestLimit and longestLimit bound for how long a command may be out. A second of
	// that is for the answer, and the rest for the server.
	shortestLimit = 1750 * time.Millisecond
	longestLimit  = 5 * time.Second
	// firstSize is how many requests a command may carry before it is known how quick the
	// server is.
	firstSize = 64
	// growth is by how many requests a command may grow after one that was answered, at
	// least.
	growth = 32
	// longShot is the how manieth time-out in a row gives the next command all the time
	// there is: a server that needs longer than the usual limit would otherwise never be
	// heard.
	longShot = 4
	// maxDoublings bounds how often the time is doubled after which a command is overdue.
	maxDoublings = 4
)

// window paces the commands of one lane, as TCP paces its segments: by additive increase
// and multiplicative decrease of what a command carries (V. Jacobson, "Congestion
// avoidance and control", 1988; RFC 5681, section 3.1), with a slow start, in which it
// doubles, and by timers that follow the times that answers took (RFC 6298).
type window struct {
	largest   int // requests in a command, at most
	size      int // requests in the next one, at most
	threshold int // up to which the size doubles
	mean      time.Duration
	deviation time.Duration
	timeouts  int // since the last answer
}

func newWindow(largest int) window {
	return window{largest: largest, size: min(firstSize, largest), threshold: largest}
}

// answered takes in that a command was answered, in what time, and whether it was as
// large as it could be.
func (w *window) answered(took time.Duration, full bool) {
	if w.mean == 0 {
		w.mean, w.deviation = took, took/2
	} else {
		w.deviation += ((w.mean - took).Abs() - w.deviation) / 4
		w.mean += (took - w.mean) / 8
	}
	w.timeouts = 0
	switch {
	case !full:
	case w.size < w.threshold:
		w.size = min(w.size+max(w.size, growth), w.threshold)
	default:
		w.size = min(w.size+growth, w.largest)
	}
}

// late takes in that a command is overdue, or was given up.
func (w *window) late() {
	w.timeouts++
	w.size = max(w.size/2, 1)
	w.threshold = max(w.size, growth)
}

// silent takes in that a command was given up and no other of the lane was answered since
// it was sent. The next ones are no more than questions whether anybody is there: what
// they carry is sent in vain.
func (w *window) silent() { w.size = 1 }

// expected returns how long an answer takes, at most, unless something is wrong.
func (w *window) expected() time.Duration { return w.mean + 4*w.deviation }

// overdue returns after what time others need not wait for a command any more. It doubles
// with each time-out in a row.
func (w *window) overdue() time.Duration {
	return min(max(firstOverdue, w.expected())<<min(w.timeouts, maxDoublings), longestLimit)
}

// limit returns after what time a command is given up.
func (w *window) limit() time.Duration {
	if w.timeouts%longShot == longShot-1 {
		return longestLimit
	}
	return min(max(shortestLimit, time.Second+w.expected()), longestLimit)
}
