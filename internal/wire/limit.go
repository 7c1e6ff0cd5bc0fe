package wire

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"
)

// grace is how long before its own time is up a client asks the server to give a command
// up. The answer that it was given up says that the server is there, and that nothing
// more of the command will happen.
const grace = time.Second

// CodeMaxTimeExpired is the server's code for a command that has used up its time.
const CodeMaxTimeExpired = 50

// limited says how long the commands of a context may take in all.
type limited struct {
	now   func() time.Time
	start time.Time
	limit time.Duration
}

type limitKey struct{}

// WithLimit returns a context that ends after a time, or when ctx does.
// The server is asked to give up a write that is sent with it a second earlier.
func WithLimit(ctx context.Context, now func() time.Time, limit time.Duration) (context.Context, context.CancelFunc) {
	l := limited{now: now, start: now(), limit: limit}
	if deadline, has := ctx.Deadline(); has {
		l.limit = min(limit, deadline.Sub(l.start))
	}
	return context.WithTimeout(context.WithValue(ctx, limitKey{}, l), limit)
}

// left returns for how long the server may try.
func (l limited) left() time.Duration {
	rest := l.limit - l.now().Sub(l.start)
	return max(rest-min(grace, rest/2), time.Millisecond)
}

// limit asks the server to give the command up before ctx ends, where that is known
// beforehand. It returns the context to send it with, and a function to call after that.
//
// The driver would ask for it by itself, out of the deadline of the context; but to give
// up at the very moment at which it gives up itself, so that the server's answer comes
// too late as often as not. And a command may not ask twice. So it is shown a deadline
// beyond all bounds, for which it asks for nothing, and it is cancelled when ctx ends.
func (m *Message) limit(ctx context.Context) (context.Context, func()) {
	l, has := ctx.Value(limitKey{}).(limited)
	if !has {
		return ctx, func() {}
	}
	m.Number("maxTimeMS", l.left().Milliseconds())
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	return unbounded{sending}, func() { stop(); cancel() }
}

// unbounded is a context whose deadline is so far away that the driver doesn't pass it on
// to the server.
type unbounded struct{ context.Context }

// Deadline implements context.Context.
func (unbounded) Deadline() (time.Time, bool) {
	return time.Date(2200, time.January, 1, 0, 0, 0, 0, time.UTC), true
}

// silence is the error of a command that was not answered within its time, or was stopped
// before.
type silence struct {
	ended   error  // of its context
	servers string // as the driver knew them, where none was found
	unsent  string // why it was not sent, where a server was found
}

// silenced turns the driver's error into one that says what has happened.
// The driver only knows that its own context was cancelled, which nobody has done.
func silenced(ended, err error) error {
	var (
		notSelected  topology.ServerSelectionError
		noConnection topology.WaitQueueTimeoutError
	)
	s := silence{ended: ended}
	if errors.As(err, &notSelected) {
		s.servers = awayText(notSelected.Desc)
	}
	if errors.As(err, &noConnection) {
		s.unsent = noneFree
	}
	return s
}

// Error says whether a server was found, and a connection to it.
func (s silence) Error() string {
	switch {
	case !errors.Is(s.ended, context.DeadlineExceeded):
		return "stopped before it was answered"
	case s.servers != "":
		return "no server could be reached in time: " + s.servers
	case s.unsent != "":
		return s.unsent
	}
	return "no answer in time"
}

// Unwrap returns the end of the time.
// A command that was stopped before wraps nothing: the caller's own context may go on.
func (s silence) Unwrap() error {
	if errors.Is(s.ended, context.DeadlineExceeded) {
		return s.ended
	}
	return nil
}

// ConcernError is the server's report that it does not know whether a majority has stored
// a write.
type ConcernError struct{ code int }

func (e ConcernError) Error() string {
	return "whether a majority has stored it is not known: " + serverText(e.code, codeName(e.code))
}

// HeldUp reports whether an error says that the server has given a command up before it
// came to its end: one of its documents may be locked.
func HeldUp(err error) bool { return CommandCode(err) == CodeMaxTimeExpired }

// GaveUp reports whether an error says that the server has given a command up, be it that
// a majority was too slow to store it.
func GaveUp(err error) bool {
	var concern ConcernError
	return HeldUp(err) || errors.As(err, &concern) && concern.code == CodeMaxTimeExpired
}

// Silent reports whether an error says that a command was not answered in its time.
func Silent(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) && !GaveUp(err)
}

// NextWithin moves a cursor on, within a limit of its own where that is positive.
func NextWithin(ctx context.Context, cursor *mongo.Cursor, limit time.Duration) bool {
	ctx, cancel := WithTimeout(ctx, limit)
	defer cancel()
	return cursor.Next(ctx)
}

// WithTimeout is context.WithTimeout, but a limit of zero means no limit.
func WithTimeout(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, limit)
}

// CommandLimit is how long one command may take. After it its answer counts as Unknown.
const CommandLimit = 5 * time.Second
