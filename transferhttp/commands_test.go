package transferhttp_test

import (
	"context"
	"slices"
	"sync"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// commands are those that a client has sent.
type commands struct {
	mu   sync.Mutex
	sent []string
	// most are the limits of those that have one.
	most []int64
}

// client returns the options of a client whose commands are recorded.
func (c *commands) client() *options.ClientOptions {
	return options.Client().SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.sent = append(c.sent, e.CommandName)
		if limit, has := e.Command.Lookup("limit").AsInt64OK(); has {
			c.most = append(c.most, limit)
		}
	}})
}

// but returns the commands that are not among the given ones.
func (c *commands) but(names ...string) []string {
	return slices.DeleteFunc(c.take(), func(name string) bool { return slices.Contains(names, name) })
}

// limits returns the limits of what was asked for.
func (c *commands) limits() []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.most)
}

// take returns the commands, and forgets them.
func (c *commands) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.sent
	c.sent, c.most = nil, nil
	return taken
}
