package bank

import (
	"context"
	"strings"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Traffic is what a client sends.
type Traffic struct {
	// Connections were opened.
	Connections atomic.Int64
	// Glances are reads of a part of transfers.
	Glances atomic.Int64
	// Streams were opened, or asked for.
	Streams atomic.Int64
	// More are the requests for changes on streams.
	More atomic.Int64
	// Closed streams were given back.
	Closed atomic.Int64
	// Writes are the statements on transfers.
	Writes atomic.Int64
	// Streamless are the streams, and requests for changes, that were refused.
	Streamless atomic.Int64
	// Resumed streams go on where another one was lost.
	Resumed atomic.Int64
	reads   atomic.Int64 // of whole transfers
}

// Client returns the options of a client whose traffic is counted.
func (f *Traffic) Client() *options.ClientOptions {
	pool := &event.PoolMonitor{Event: func(e *event.PoolEvent) {
		if e.Type == event.ConnectionCreated {
			f.Connections.Add(1)
		}
	}}
	return options.Client().SetPoolMonitor(pool).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) { f.count(e) },
		Failed: func(_ context.Context, e *event.CommandFailedEvent) {
			if e.CommandName == "aggregate" || e.CommandName == "getMore" {
				f.Streamless.Add(1)
			}
		},
	})
}

func (f *Traffic) count(e *event.CommandStartedEvent) {
	switch e.CommandName {
	case "find":
		if name, _ := e.Command.Lookup("find").StringValueOK(); name != "transfers" {
			return
		}
		if _, err := e.Command.LookupErr("projection"); err == nil {
			f.Glances.Add(1)
		} else {
			f.reads.Add(1)
		}
	case "aggregate":
		f.Streams.Add(1)
		if strings.Contains(e.Command.String(), "resumeAfter") {
			f.Resumed.Add(1)
		}
	case "getMore":
		f.More.Add(1)
	case "killCursors":
		f.Closed.Add(1)
	case "insert", "update":
		if name, _ := e.Command.Lookup(e.CommandName).StringValueOK(); name != "transfers" {
			return
		}
		for _, list := range []string{"documents", "updates"} {
			statements, _ := e.Command.Lookup(list).ArrayOK()
			values, _ := statements.Values()
			f.Writes.Add(int64(len(values)))
		}
	case "findAndModify":
		f.Writes.Add(1)
	}
}

// Commands counts the commands that read transfers or follow their changes.
func (f *Traffic) Commands() int64 {
	return f.reads.Load() + f.Glances.Load() + f.Streams.Load() + f.More.Load()
}

// Searches are those of a worker in the transfers.
type Searches struct {
	// Stalled receives when a search for stalled transfers begins.
	Stalled chan struct{}
	// Expired receives when a search for expired holds begins.
	Expired chan struct{}
}

// NewSearches returns searches that have not begun.
func NewSearches() *Searches {
	return &Searches{Stalled: make(chan struct{}, 1), Expired: make(chan struct{}, 1)}
}

// Client returns the options of a client whose searches are reported when they begin.
func (s *Searches) Client() *options.ClientOptions {
	return options.Client().SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if name, _ := e.Command.Lookup("find").StringValueOK(); name != "transfers" {
			return
		}
		begun := s.Stalled
		if hold, _ := e.Command.Lookup("filter", "hold").BooleanOK(); hold {
			begun = s.Expired
		} else if _, err := e.Command.LookupErr("filter", "$or"); err != nil {
			return
		}
		select {
		case begun <- struct{}{}:
		default:
		}
	}})
}
