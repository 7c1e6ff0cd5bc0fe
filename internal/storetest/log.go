package storetest

import (
	"context"
	"slices"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Command is one command as the client sent it, and its reply.
type Command struct {
	// Name is the command's name, like "update".
	Name string
	// Body is the whole command.
	Body bson.Raw
	// Reply is the server's reply; nil if the command failed.
	Reply bson.Raw
}

// CommandLog is the list of the commands that a client has sent.
// It is safe for many goroutines.
type CommandLog struct {
	mu       sync.Mutex
	commands []*Command
	pending  map[int64]*Command
	then     func() // runs once after the next reply, before the driver continues
}

// NewCommandLog returns an empty log.
func NewCommandLog() *CommandLog { return &CommandLog{pending: map[int64]*Command{}} }

// Monitor returns the monitor that fills the log.
func (l *CommandLog) Monitor() *event.CommandMonitor {
	return &event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			l.mu.Lock()
			defer l.mu.Unlock()
			c := &Command{Name: e.CommandName, Body: slices.Clone(e.Command)}
			l.commands, l.pending[e.RequestID] = append(l.commands, c), c
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			l.mu.Lock()
			l.pending[e.RequestID].Reply = slices.Clone(e.Reply)
			l.mu.Unlock()
			l.runThen()
		},
		Failed: func(context.Context, *event.CommandFailedEvent) { l.runThen() },
	}
}

// runThen runs what was to happen after this reply.
func (l *CommandLog) runThen() {
	l.mu.Lock()
	then := l.then
	l.then = nil
	l.mu.Unlock()
	if then != nil {
		then()
	}
}

// WhenAnswered has a function called once, after the next reply and before the driver
// returns it.
func (l *CommandLog) WhenAnswered(then func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.then = then
}

// Take returns the commands that were sent since the last call, but for the pings of
// [mongotest.Client].
func (l *CommandLog) Take() []*Command {
	l.mu.Lock()
	defer l.mu.Unlock()
	commands := slices.DeleteFunc(l.commands, func(c *Command) bool { return c.Name == "ping" })
	l.commands = nil
	return commands
}

// Names returns the commands' names, in the same order.
func Names(commands []*Command) []string {
	list := make([]string, len(commands))
	for i, c := range commands {
		list[i] = c.Name
	}
	return list
}

// Text returns the string at a path of the command's body, or "" where there is none.
func (c *Command) Text(path ...string) string {
	value, _ := c.Body.Lookup(path...).StringValueOK()
	return value
}

// Options returns the options of a client whose commands are logged.
func (l *CommandLog) Options() *options.ClientOptions {
	return options.Client().SetMonitor(l.Monitor())
}
