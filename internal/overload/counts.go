package overload

import (
	"context"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
)

// level is a number that rises and falls, with its highest value.
type level struct{ now, peak atomic.Int64 }

func (l *level) add(n int64) { raise(&l.peak, l.now.Add(n)) }

// forget makes the present value the highest one.
func (l *level) forget() { l.peak.Store(l.now.Load()) }

// raise raises a number to n if it is less.
func raise(number *atomic.Int64, n int64) {
	for {
		old := number.Load()
		if n <= old || number.CompareAndSwap(old, n) {
			return
		}
	}
}

// counts counts what one client sends.
type counts struct {
	// inFlight counts the commands without an answer, except those of change streams,
	// which wait.
	inFlight    level
	connections level        // open connections
	inUse       level        // connections that are in use
	statements  atomic.Int64 // of updates, including findAndModify; one for each account
	inserts     atomic.Int64 // documents
	finds       atomic.Int64
	getMores    atomic.Int64
	largest     atomic.Int64 // bytes of the largest command
}

// commands counts commands.
func (c *counts) commands() *event.CommandMonitor {
	over := func(name string) {
		if !waits(name) {
			c.inFlight.add(-1)
		}
	}
	return &event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if !waits(e.CommandName) {
				c.inFlight.add(1)
			}
			raise(&c.largest, int64(len(e.Command)))
			c.note(e.CommandName, e.Command)
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) { over(e.CommandName) },
		Failed:    func(_ context.Context, e *event.CommandFailedEvent) { over(e.CommandName) },
	}
}

// waits reports whether a command belongs to a change stream, which the server answers
// when there is an event.
func waits(name string) bool { return name == "aggregate" || name == "getMore" }

func (c *counts) note(name string, command bson.Raw) {
	switch name {
	case "update":
		c.statements.Add(writes(command))
	case "findAndModify":
		c.statements.Add(1)
	case "insert":
		c.inserts.Add(elements(command, "documents"))
	case "find":
		c.finds.Add(1)
	case "getMore":
		c.getMores.Add(1)
	}
}

// writes returns how many statements an update has. One that accounts share counts as one
// for each of them: how many share one depends on how many there are at the moment.
func writes(command bson.Raw) int64 {
	updates, _ := command.Lookup("updates").ArrayOK()
	values, _ := updates.Values()
	n := int64(0)
	for _, value := range values {
		update, _ := value.DocumentOK()
		_, shared := update.Lookup("u").ArrayOK()
		ids, _ := update.Lookup("q", "_id").DocumentOK()
		if accounts := elements(ids, "$in"); shared && accounts > 0 {
			n += accounts
		} else {
			n++
		}
	}
	return n
}

// elements returns how many elements an array has.
func elements(command bson.Raw, array string) int64 {
	values, is := command.Lookup(array).ArrayOK()
	if !is {
		return 0
	}
	all, err := values.Values()
	if err != nil {
		return 0
	}
	return int64(len(all))
}

// pool counts connections.
func (c *counts) pool() *event.PoolMonitor {
	return &event.PoolMonitor{Event: func(e *event.PoolEvent) {
		switch e.Type {
		case event.ConnectionCreated:
			c.connections.add(1)
		case event.ConnectionClosed:
			c.connections.add(-1)
		case event.ConnectionCheckedOut:
			c.inUse.add(1)
		case event.ConnectionCheckedIn:
			c.inUse.add(-1)
		}
	}}
}
