package storetest

import (
	"context"
	"slices"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Command is one command as the server got it and answered it.
type Command struct {
	Name        string
	Body, Reply bson.Raw // no reply if it failed
}

// CommandLog is the list of the commands that a client has sent.
type CommandLog struct {
	mu       sync.Mutex
	commands []*Command
	pending  map[int64]*Command
	then     func() // what happens after the next answer, before the driver goes on; once
}

func NewCommandLog() *CommandLog { return &CommandLog{pending: map[int64]*Command{}} }

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
			l.goOn()
		},
		Failed: func(context.Context, *event.CommandFailedEvent) { l.goOn() },
	}
}

func (l *CommandLog) goOn() {
	l.mu.Lock()
	then := l.then
	l.then = nil
	l.mu.Unlock()
	if then != nil {
		then()
	}
}

// whenAnswered lets something happen after the next answer.
func (l *CommandLog) WhenAnswered(then func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.then = then
}

// take returns the commands sent since the last call.
func (l *CommandLog) Take() []*Command {
	l.mu.Lock()
	defer l.mu.Unlock()
	commands := l.commands
	l.commands = nil
	return commands
}

// Names returns the names of commands, in order.
func Names(commands []*Command) []string {
	list := make([]string, len(commands))
	for i, c := range commands {
		list[i] = c.Name
	}
	return list
}

// text returns a string of a command's body, "" if there is none at that path.
func (c *Command) Text(path ...string) string {
	value, _ := c.Body.Lookup(path...).StringValueOK()
	return value
}

// options returns the options of a client that is logged.
func (l *CommandLog) Options() *options.ClientOptions {
	return options.Client().SetMonitor(l.Monitor())
}
